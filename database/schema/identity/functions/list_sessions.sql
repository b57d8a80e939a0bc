-- Operators: sessions, newest first, of one user or (p_email NULL) of all; never the token or its hash.
CREATE OR REPLACE FUNCTION identity.list_sessions(p_email varchar DEFAULT NULL)
RETURNS TABLE (session_id uuid, email varchar, created_at timestamptz, last_seen_at timestamptz,
    revoked_at timestamptz, lives boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.id, u.email, s.created_at, s.last_seen_at, s.revoked_at,
        u.status = 'active' AND identity.session_lives(s.created_at, s.last_seen_at, s.revoked_at)
    FROM identity.sessions s JOIN identity.users u ON u.id = s.user_id
    WHERE p_email IS NULL OR lower(u.email) = lower(p_email)
    ORDER BY s.created_at DESC, s.id DESC
$$;
