"""gRPC as every service speaks it: one server, one chain of interceptors, one way to open a channel."""
