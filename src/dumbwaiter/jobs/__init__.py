"""Ready-made task types."""
