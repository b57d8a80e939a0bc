"""Who is calling: people by session, services by signed token."""
