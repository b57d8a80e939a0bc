-- The ceiling of an organization's plan version, also when its subscription lapsed. NULL is no ceiling: no
-- subscription, no row for the limit, or a row without a value. Internal: no grant.
CREATE OR REPLACE FUNCTION platform.effective_limit(p_organization_id uuid, p_limit varchar) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.limit_value
    FROM platform.subscriptions s
    JOIN platform.plan_version_limits l ON l.plan_version_id = s.plan_version_id
    WHERE s.organization_id = p_organization_id AND s.replaced_at IS NULL AND l.limit_code = p_limit
$$;
