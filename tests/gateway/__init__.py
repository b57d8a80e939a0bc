"""The gateway on a real socket, in front of real gRPC servers that give canned answers."""
