"""How other services show assets."""
