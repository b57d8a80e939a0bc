-- Appends the record of a change that no member asked for (an operator's command, a worker's purge), in the change's
-- own transaction. p_service names who did it. Internal: called by the function that writes, no grant.
-- Refuses unregistered actions or kinds (23503).
CREATE OR REPLACE FUNCTION audit.append_operation(
    p_organization_id uuid, p_service varchar, p_action varchar, p_resource_kind varchar, p_resource_id uuid,
    p_before jsonb, p_after jsonb)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO audit.records (organization_id, service, action_code, resource_kind, resource_id, outcome,
        before_attributes, after_attributes)
    VALUES (p_organization_id, p_service, p_action, p_resource_kind, p_resource_id, 'succeeded', p_before, p_after)
$$;
