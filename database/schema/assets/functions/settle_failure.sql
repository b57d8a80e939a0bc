-- What every failure of an upload does: asset and original `failed`, upload `rejected` (or `expired`), the reserved
-- bytes and, while the asset counts, its slot released. The caller holds usage, asset, upload and variant locked and
-- has checked that the upload is open, so nothing is released twice. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.settle_failure(p_asset_id uuid, p_failure_code varchar, p_upload_state varchar)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_organization_id uuid;
    v_declared bigint;
    v_counted boolean;
BEGIN
    SELECT a.organization_id, assets.counts_as_active_asset(a.status, a.archived_at), u.declared_byte_size
    INTO STRICT v_organization_id, v_counted, v_declared
    FROM assets.assets a JOIN assets.uploads u ON u.asset_id = a.id WHERE a.id = p_asset_id;
    UPDATE assets.organization_usage
    SET reserved_bytes = reserved_bytes - v_declared, active_asset_count = active_asset_count - v_counted::integer,
        updated_at = now()
    WHERE organization_id = v_organization_id;
    UPDATE assets.assets SET status = 'failed', failed_at = now(), failure_code = p_failure_code
    WHERE id = p_asset_id;
    UPDATE assets.uploads
    SET state = p_upload_state, settled_at = now(),
        rejection_code = CASE WHEN p_upload_state = 'rejected' THEN p_failure_code END
    WHERE asset_id = p_asset_id;
    UPDATE assets.asset_variants SET status = 'failed', failed_at = now(), failure_code = p_failure_code
    WHERE asset_id = p_asset_id AND variant_code = 'original';
END $$;
