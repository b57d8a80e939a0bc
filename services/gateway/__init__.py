"""The HTTP side of the product: routes in front of the services' RPCs, and nothing else."""
