"""The library of an organization: what it has, and where each asset stands."""
