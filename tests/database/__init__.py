"""SQL functions against a real PostgreSQL."""
