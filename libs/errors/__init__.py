"""Refusals: one registry of public codes, and how each travels over gRPC and HTTP."""
