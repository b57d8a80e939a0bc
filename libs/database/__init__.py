"""PostgreSQL as every service uses it: a pool, transactions, and errors read by SQLSTATE."""
