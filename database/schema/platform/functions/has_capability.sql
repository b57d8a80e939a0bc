-- Whether an organization's current subscription, not lapsed, has a capability. Internal: no grant.
CREATE OR REPLACE FUNCTION platform.has_capability(p_organization_id uuid, p_capability varchar) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM platform.subscriptions s
        JOIN platform.plan_version_capabilities c ON c.plan_version_id = s.plan_version_id
        WHERE s.organization_id = p_organization_id AND s.replaced_at IS NULL
            AND (s.ends_at IS NULL OR s.ends_at > now())
            AND c.capability_code = p_capability
    )
$$;
