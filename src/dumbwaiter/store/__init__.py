"""The task table as the rest of the program sees it. The only room where SQL is spoken."""
