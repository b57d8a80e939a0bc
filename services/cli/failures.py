"""What the command line says when something is in the way: one plain message, never a traceback."""


class Failure(Exception):
    """Ends the command with this message and status 1."""
