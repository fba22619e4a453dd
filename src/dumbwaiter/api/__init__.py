"""The HTTP door: tasks as resources, for pages and programs."""
