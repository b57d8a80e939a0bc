-- Appends the record of a write that succeeded, in the write's own transaction, for the actor, service, permission
-- and request of the tenant context. Internal: called by the function that writes, no grant.
-- Refuses a transaction without tenant context (42501) and unregistered actions or kinds (23503).
CREATE OR REPLACE FUNCTION audit.append(
    p_action varchar, p_resource_kind varchar, p_resource_id uuid, p_before jsonb, p_after jsonb)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_context record;
BEGIN
    PERFORM identity.assert_tenant_context();
    v_context := identity.tenant_context();
    INSERT INTO audit.records (organization_id, actor_id, service, action_code, resource_kind, resource_id, outcome,
        authorization_decision, permission_code, before_attributes, after_attributes, request_id)
    VALUES (v_context.organization_id, v_context.actor_id, v_context.service, p_action, p_resource_kind,
        p_resource_id, 'succeeded', 'authorized', v_context.permission, p_before, p_after, v_context.request_id);
END $$;
