-- Records a refusal, in a transaction of its own after the refused one was rolled back. p_outcome is the refusing
-- outcome of the call: forbidden | not_entitled | context_rejected. A caller without a living session is recorded
-- nowhere (anybody could fill the table); one without membership is recorded outside every organization.
-- Not idempotent: every refusal counts. Refuses unregistered actions or kinds (23503) and outcomes (23514).
CREATE OR REPLACE FUNCTION audit.record_denial(
    p_token_hash bytea, p_organization_id uuid, p_permission varchar, p_action varchar, p_resource_kind varchar,
    p_resource_id uuid, p_outcome varchar, p_service varchar, p_request_id varchar)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_actor_id uuid;
    v_organization_id uuid;
BEGIN
    SELECT u.actor_id, m.organization_id INTO v_actor_id, v_organization_id
    FROM identity.sessions s
    JOIN identity.users u ON u.id = s.user_id AND u.status = 'active'
    LEFT JOIN identity.memberships m
        ON m.user_id = u.id AND m.organization_id = p_organization_id AND m.status = 'active'
    WHERE s.token_hash = p_token_hash
        AND identity.session_lives(s.created_at, s.last_seen_at, s.revoked_at);
    IF v_actor_id IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO audit.records (organization_id, actor_id, service, action_code, resource_kind, resource_id, outcome,
        authorization_decision, permission_code, request_id)
    VALUES (v_organization_id, v_actor_id, p_service, p_action, p_resource_kind, p_resource_id, 'denied', p_outcome,
        p_permission, audit.clean_request_id(p_request_id));
END $$;
