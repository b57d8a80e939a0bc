-- Authenticates a session, resolves its membership, authorizes one permission (organization-wide) and, unless
-- p_capability is NULL, one capability of the plan; then opens the tenant context for this transaction.
-- outcome: authorized | unauthenticated | context_rejected | forbidden | not_entitled. Only `authorized` opens a
-- context; any other outcome closes one that was open. Repeating it is harmless: it writes only the session's
-- last use, at most once a minute. Raises nothing of its own.
CREATE OR REPLACE FUNCTION identity.open_tenant_context(
    p_token_hash bytea, p_organization_id uuid, p_permission varchar, p_capability varchar,
    p_service varchar, p_request_id varchar)
RETURNS TABLE (outcome varchar, actor_id uuid, user_id uuid, membership_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_session_id uuid;
    v_stale boolean;
    v_user_id uuid;
    v_actor_id uuid;
    v_membership_id uuid;
    v_outcome varchar;
    v_body text;
BEGIN
    SELECT s.id, s.last_seen_at < now() - interval '1 minute', u.id, u.actor_id, m.id
    INTO v_session_id, v_stale, v_user_id, v_actor_id, v_membership_id
    FROM identity.sessions s
    JOIN identity.users u ON u.id = s.user_id AND u.status = 'active'
    LEFT JOIN (identity.memberships m
        JOIN organization.organizations o ON o.id = m.organization_id AND o.status = 'active')
        ON m.user_id = u.id AND m.organization_id = p_organization_id AND m.status = 'active'
    WHERE s.token_hash = p_token_hash
        AND identity.session_lives(s.created_at, s.last_seen_at, s.revoked_at);

    IF v_session_id IS NULL THEN
        v_outcome := 'unauthenticated';
    ELSE
        IF v_stale THEN
            PERFORM identity.touch_session(v_session_id);
        END IF;
        IF v_membership_id IS NULL THEN
            v_outcome := 'context_rejected';
        ELSIF identity.holds_permission(v_membership_id, p_permission) IS NOT TRUE THEN
            v_outcome := 'forbidden';
        ELSIF p_capability IS NOT NULL AND NOT platform.has_capability(p_organization_id, p_capability) THEN
            v_outcome := 'not_entitled';
        ELSE
            v_outcome := 'authorized';
        END IF;
    END IF;

    IF v_outcome = 'authorized' THEN
        v_body := jsonb_build_array(p_organization_id, v_membership_id, v_actor_id, v_user_id, p_permission,
            p_service, audit.clean_request_id(p_request_id))::text;
        PERFORM set_config('ninaku.tenant_context', identity.seal_tenant_context(v_body) || v_body, true);
    ELSE
        PERFORM set_config('ninaku.tenant_context', '', true);
    END IF;
    RETURN QUERY SELECT v_outcome, v_actor_id, v_user_id, v_membership_id;
END $$;
