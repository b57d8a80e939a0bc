"""What two or more contexts use."""
