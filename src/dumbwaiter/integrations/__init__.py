"""Doors into other people's frameworks, each in a file of its own."""
