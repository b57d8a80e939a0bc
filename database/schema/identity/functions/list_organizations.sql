-- Operators: every organization with its plan, oldest first. `entitled` is false when the subscription lapsed.
CREATE OR REPLACE FUNCTION identity.list_organizations()
RETURNS TABLE (organization_id uuid, name varchar, status varchar, plan_code varchar, version_number integer,
    subscription_ends_at timestamptz, entitled boolean, active_asset_count integer, stored_bytes bigint,
    created_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT o.id, o.name, o.status, p.code, v.version_number, s.ends_at,
        s.id IS NOT NULL AND (s.ends_at IS NULL OR s.ends_at > now()),
        u.active_asset_count, u.stored_bytes, o.created_at
    FROM organization.organizations o
    LEFT JOIN platform.subscriptions s ON s.organization_id = o.id AND s.replaced_at IS NULL
    LEFT JOIN platform.plan_versions v ON v.id = s.plan_version_id
    LEFT JOIN platform.plans p ON p.id = v.plan_id
    LEFT JOIN assets.organization_usage u ON u.organization_id = o.id
    ORDER BY o.created_at, o.id
$$;
