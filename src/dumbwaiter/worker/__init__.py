"""A process that runs tasks: one file for each of its duties."""
