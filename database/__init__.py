"""Schema, migrations and the migrator."""
