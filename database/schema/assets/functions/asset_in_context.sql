-- One asset of the tenant context's organization, with the columns of assets.read_asset, for a transaction that is
-- authorized already. Always one row; outcome: found | not_found. Refuses with 42501 tenant_context_missing.
CREATE OR REPLACE FUNCTION assets.asset_in_context(p_asset_id uuid)
RETURNS TABLE (outcome varchar, id uuid, status varchar, access_class varchar, media_kind varchar,
    source_kind varchar, display_name varchar, original_filename varchar, width integer, height integer,
    byte_size bigint, created_at timestamptz, ready_at timestamptz, archived_at timestamptz, failure_code varchar,
    delivery_token varchar, rendition_profile smallint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_organization_id uuid := identity.current_organization_id();
BEGIN
    IF v_organization_id IS NULL THEN
        PERFORM identity.assert_tenant_context();
    END IF;
    RETURN QUERY
    SELECT CASE WHEN a.id IS NULL THEN 'not_found' ELSE 'found' END::varchar, a.id, a.status, a.access_class,
        a.media_kind, a.source_kind, a.display_name, a.original_filename, v.width, v.height, v.byte_size,
        a.created_at, a.ready_at, a.archived_at, a.failure_code, a.delivery_token, a.rendition_profile
    FROM (VALUES (p_asset_id)) AS asked (id)
    LEFT JOIN assets.assets a ON a.id = asked.id AND a.organization_id = v_organization_id
    LEFT JOIN assets.asset_variants v
        ON v.asset_id = a.id AND v.variant_code = 'original' AND v.status = 'ready';
END $$;
