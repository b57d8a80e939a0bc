-- Operators: revokes a session at once. Returns whether it was not revoked before; idempotent.
CREATE OR REPLACE FUNCTION identity.revoke_session(p_session_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE identity.sessions SET revoked_at = now() WHERE id = p_session_id AND revoked_at IS NULL;
    RETURN FOUND;
END $$;
