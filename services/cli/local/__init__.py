"""The local stack: real PostgreSQL and a real S3 server as child processes."""
