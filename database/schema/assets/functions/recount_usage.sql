-- Recomputes one organization's usage from its rows. Internal: the caller holds the usage row locked; no grant.
CREATE OR REPLACE FUNCTION assets.recount_usage(p_organization_id uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE assets.organization_usage u
    SET active_asset_count = counted.active_assets, stored_bytes = counted.stored_bytes,
        reserved_bytes = counted.reserved_bytes, updated_at = now()
    FROM assets.count_usage(p_organization_id) AS counted
    WHERE u.organization_id = p_organization_id
$$;
