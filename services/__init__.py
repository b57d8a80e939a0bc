"""The bounded contexts, the gateway and the command line."""
