-- Operators: a session for the user of an e-mail address; p_token_hash is the SHA-256 of the token, which only the
-- caller ever knows. Refuses an unknown or disabled user (23514, user_unknown) and a known token (23505).
CREATE OR REPLACE FUNCTION identity.create_session(p_email varchar, p_token_hash bytea) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_user_id uuid;
    v_session_id uuid;
BEGIN
    SELECT id INTO v_user_id FROM identity.users WHERE lower(email) = lower(p_email) AND status = 'active';
    IF v_user_id IS NULL THEN
        RAISE EXCEPTION 'no active user with the e-mail address %', p_email
            USING ERRCODE = '23514', CONSTRAINT = 'user_unknown';
    END IF;
    INSERT INTO identity.sessions (user_id, token_hash) VALUES (v_user_id, p_token_hash) RETURNING id INTO v_session_id;
    RETURN v_session_id;
END $$;
