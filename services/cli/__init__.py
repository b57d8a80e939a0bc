"""The `ninaku` command line."""
