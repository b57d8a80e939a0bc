-- Operators: revokes every session of the user of an e-mail address; returns how many lived. Idempotent.
CREATE OR REPLACE FUNCTION identity.revoke_user_sessions(p_email varchar) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count integer;
BEGIN
    UPDATE identity.sessions SET revoked_at = now()
    WHERE revoked_at IS NULL
        AND user_id = (SELECT id FROM identity.users WHERE lower(email) = lower(p_email));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
