"""The local stack: real child processes on this machine."""
