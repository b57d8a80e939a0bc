"""Whole ways through the product, over HTTP: every service a process, a real database, a real object storage."""
