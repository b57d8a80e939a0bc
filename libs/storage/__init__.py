"""Object storage: clients with explicit credentials, upload policies, and bytes by provider and key."""
