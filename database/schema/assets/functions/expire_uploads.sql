-- Expires uploads that were issued and never completed, oldest first, at most p_batch (1 to 500): upload `expired`,
-- asset and original `failed` (assets.upload_expired), reservation released. (§6) Returns the staging objects to
-- delete, once. A row that cannot be expired (a counter that drifted, a rule that refuses) does not stop the rest: it
-- stays as it is and comes back with its provider and key NULL; p_skip_upload_ids leaves such rows out of later
-- batches. Idempotent: an expired upload is not found again. Refuses with 23514: assets_processing_isolation,
-- assets_sweep_batch.
CREATE OR REPLACE FUNCTION assets.expire_uploads(p_batch integer, p_skip_upload_ids uuid[])
RETURNS TABLE (upload_id uuid, staging_provider_code varchar, staging_object_key varchar)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_candidate record;
    v_key varchar;
    v_provider_id uuid;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    IF p_batch IS NULL OR p_batch NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'a batch is 1 to 500' USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_batch';
    END IF;
    -- Chosen without a lock, oldest first; then locked in the usual order, organizations and assets by id.
    FOR v_candidate IN
        SELECT oldest.id, oldest.organization_id, oldest.asset_id
        FROM (SELECT u.id, u.organization_id, u.asset_id FROM assets.uploads u
            WHERE u.state = 'issued' AND u.expires_at <= now()
                AND u.id <> ALL (coalesce(p_skip_upload_ids, '{}'))
            ORDER BY u.expires_at, u.id LIMIT p_batch) AS oldest
        ORDER BY oldest.organization_id, oldest.asset_id
    LOOP
        BEGIN
            PERFORM FROM assets.organization_usage WHERE organization_id = v_candidate.organization_id FOR UPDATE;
            PERFORM FROM assets.assets WHERE id = v_candidate.asset_id FOR UPDATE;
            SELECT u.staging_object_key, u.staging_provider_id INTO v_key, v_provider_id FROM assets.uploads u
            WHERE u.id = v_candidate.id AND u.state = 'issued' AND u.expires_at <= now()
            FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            PERFORM FROM assets.asset_variants
            WHERE asset_id = v_candidate.asset_id AND variant_code = 'original' FOR UPDATE;
            PERFORM assets.settle_failure(v_candidate.asset_id, 'assets.upload_expired', 'expired');
        EXCEPTION WHEN integrity_constraint_violation OR raise_exception THEN
            RETURN QUERY SELECT v_candidate.id, NULL::varchar, NULL::varchar;
            CONTINUE;
        END;
        RETURN QUERY SELECT v_candidate.id, p.code, v_key FROM assets.storage_providers p WHERE p.id = v_provider_id;
    END LOOP;
END $$;
