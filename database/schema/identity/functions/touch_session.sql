-- Keeps a session alive. Writes at most once a minute per session, and never waits: whoever holds the row has just
-- written the same. Idempotent. Internal: no grant.
CREATE OR REPLACE FUNCTION identity.touch_session(p_session_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE identity.sessions SET last_seen_at = now()
    WHERE id = (
        SELECT s.id FROM identity.sessions s
        WHERE s.id = p_session_id AND s.last_seen_at < now() - interval '1 minute'
        FOR NO KEY UPDATE SKIP LOCKED
    );
END $$;
