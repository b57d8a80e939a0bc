"""The gateway's parts without I/O."""
