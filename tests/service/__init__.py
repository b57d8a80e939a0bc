"""Services on a real gRPC server."""
