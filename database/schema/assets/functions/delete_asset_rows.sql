-- Deletes an asset with everything that hangs on it, in the order of the foreign keys: its jobs (the running one too),
-- storage objects, variants, upload, the asset. Returns how many rows of each. Internal: the caller holds the asset
-- locked. A row of a consumer that still points at the asset raises 23503.
CREATE OR REPLACE FUNCTION assets.delete_asset_rows(p_asset_id uuid) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_jobs integer;
    v_objects integer;
    v_variants integer;
    v_uploads integer;
BEGIN
    DELETE FROM assets.processing_jobs WHERE asset_id = p_asset_id;
    GET DIAGNOSTICS v_jobs = ROW_COUNT;
    DELETE FROM assets.storage_objects o USING assets.asset_variants v
    WHERE v.asset_id = p_asset_id AND o.variant_id = v.id;
    GET DIAGNOSTICS v_objects = ROW_COUNT;
    DELETE FROM assets.asset_variants WHERE asset_id = p_asset_id;
    GET DIAGNOSTICS v_variants = ROW_COUNT;
    DELETE FROM assets.uploads WHERE asset_id = p_asset_id;
    GET DIAGNOSTICS v_uploads = ROW_COUNT;
    DELETE FROM assets.assets WHERE id = p_asset_id;
    RETURN jsonb_build_object('assets', 1, 'uploads', v_uploads, 'variants', v_variants,
        'storageObjects', v_objects, 'jobs', v_jobs);
END $$;
