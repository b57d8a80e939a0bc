-- What an organization uses, counted from its rows: assets that occupy a slot, bytes of ready variants whose primary
-- object is available, declared bytes of open uploads. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.count_usage(p_organization_id uuid)
RETURNS TABLE (active_assets integer, stored_bytes bigint, reserved_bytes bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        (SELECT count(*) FROM assets.assets a
            WHERE a.organization_id = p_organization_id
                AND assets.counts_as_active_asset(a.status, a.archived_at))::integer,
        coalesce((SELECT sum(v.byte_size) FROM assets.asset_variants v
            JOIN assets.storage_objects o ON o.variant_id = v.id AND o.is_primary AND o.status = 'available'
            WHERE v.organization_id = p_organization_id AND v.status = 'ready'), 0)::bigint,
        coalesce((SELECT sum(u.declared_byte_size) FROM assets.uploads u
            WHERE u.organization_id = p_organization_id AND u.state IN ('issued', 'received')), 0)::bigint
$$;
