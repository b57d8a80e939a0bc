-- What a purge removed, and how many audit records about the asset stay (they say who did what and when). One row, none
-- while the purge is not finished. For operators: no grant.
CREATE OR REPLACE FUNCTION assets.read_purge_receipt(p_asset_id uuid)
RETURNS TABLE (asset_id uuid, organization_id uuid, delivery_token varchar, access_class varchar,
    rendition_profile smallint, provider_codes varchar[], object_keys varchar[], staging_key varchar,
    stored_bytes bigint, removed_rows jsonb, purged_at timestamptz, audit_records bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.asset_id, r.organization_id, r.delivery_token, r.access_class, r.rendition_profile, r.provider_codes,
        r.object_keys, r.staging_key, r.stored_bytes, r.removed_rows, r.purged_at,
        (SELECT count(*) FROM audit.records a WHERE a.resource_id = r.asset_id AND a.resource_kind = 'assets.asset')
    FROM assets.purge_receipts r WHERE r.asset_id = p_asset_id
$$;
