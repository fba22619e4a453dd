"""What several test folders share: services, databases."""
