-- Records how a leased job ended, in one transaction with everything that follows from it. (§6)
--   ready             the arrays name 'original' (its existing id) and every rendition of the profile (new ids), one
--                     stored object each: variants and asset ready, upload verified, reserved bytes become stored;
--   retry_storage     back to pending at p_available_at, without an attempt cap; the processing budget untouched;
--   retry_processing  the same and counted; the fifth dead-letters the job and fails the asset
--                     (assets.processing_exhausted);
--   failed_permanent  the asset fails with p_error_code, the reservation is released.
-- Returns completed | pending | dead_lettered. The lease makes it happen once: a repeat finds it gone.
-- Refuses with 23514: assets_processing_isolation, assets_job_lease_lost (expired, reclaimed or settled; nothing is
-- written), assets_outcome_unknown, assets_outcome_job_kind (only retry_storage fits other kinds),
-- assets_outcome_shape (arrays, ids, codes or keys do not fit), assets_retry_backoff (over 15 minutes ahead),
-- assets_outcome_state (the asset no longer waits).
CREATE OR REPLACE FUNCTION assets.record_processing_outcome(
    p_job_id uuid, p_lease_token uuid, p_outcome varchar, p_error_code varchar, p_available_at timestamptz,
    p_variant_codes varchar[], p_media_types varchar[], p_byte_sizes bigint[], p_checksums bytea[],
    p_widths integer[], p_heights integer[], p_variant_ids uuid[], p_storage_object_ids uuid[],
    p_provider_codes varchar[], p_object_keys varchar[])
RETURNS varchar LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_job assets.processing_jobs;
    v_asset assets.assets;
    v_upload assets.uploads;
    v_original_id uuid;
    v_settles boolean;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    IF p_outcome IS NULL OR p_outcome NOT IN ('ready', 'retry_storage', 'retry_processing', 'failed_permanent') THEN
        RAISE EXCEPTION 'unknown outcome' USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_unknown';
    END IF;
    SELECT * INTO v_job FROM assets.processing_jobs WHERE id = p_job_id;
    IF v_job.job_kind <> 'process_upload' AND p_outcome <> 'retry_storage' THEN
        RAISE EXCEPTION 'this outcome is for uploads'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_job_kind';
    END IF;
    IF p_outcome <> 'ready' AND p_error_code IS NULL THEN
        RAISE EXCEPTION 'a failure has a code' USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_shape';
    END IF;
    IF p_outcome IN ('retry_storage', 'retry_processing')
        AND (p_available_at IS NULL OR p_available_at > now() + interval '15 minutes')
    THEN
        RAISE EXCEPTION 'a retry is at most 15 minutes ahead'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_retry_backoff';
    END IF;

    -- Read without a lock to know what must be locked before the job: under a live lease, which is what is checked once
    -- everything is locked, only this function changes the processing budget.
    v_settles := p_outcome IN ('ready', 'failed_permanent')
        OR p_outcome = 'retry_processing' AND v_job.processing_error_count + 1 >= 5;
    IF v_settles THEN
        PERFORM FROM assets.organization_usage WHERE organization_id = v_job.organization_id FOR UPDATE;
        SELECT * INTO v_asset FROM assets.assets WHERE id = v_job.asset_id FOR UPDATE;
        SELECT * INTO v_upload FROM assets.uploads WHERE asset_id = v_job.asset_id FOR UPDATE;
        SELECT id INTO v_original_id FROM assets.asset_variants
        WHERE asset_id = v_job.asset_id AND variant_code = 'original' FOR UPDATE;
    END IF;
    SELECT * INTO v_job FROM assets.processing_jobs
    WHERE id = p_job_id AND state = 'leased' AND lease_token = p_lease_token
        AND lease_expires_at > clock_timestamp()  -- waiting for the locks may have used the lease up
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease is lost' USING ERRCODE = '23514', CONSTRAINT = 'assets_job_lease_lost';
    END IF;
    IF v_settles AND (v_asset.status <> 'processing' OR v_upload.state IS DISTINCT FROM 'received') THEN
        RAISE EXCEPTION 'the asset no longer waits for an outcome'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_state';
    END IF;

    IF p_outcome IN ('retry_storage', 'retry_processing') AND NOT v_settles THEN
        UPDATE assets.processing_jobs
        SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,
            available_at = p_available_at, queue_rank = NULL, attempt_count = attempt_count + 1,
            processing_error_count = processing_error_count + (p_outcome = 'retry_processing')::integer,
            error_class = CASE p_outcome WHEN 'retry_storage' THEN 'storage' ELSE 'processing' END,
            last_error_code = p_error_code, updated_at = now()
        WHERE id = p_job_id;
        RETURN 'pending';
    END IF;
    IF p_outcome = 'retry_processing' THEN
        PERFORM assets.settle_failure(v_job.asset_id, 'assets.processing_exhausted', 'rejected');
        UPDATE assets.processing_jobs
        SET state = 'dead_lettered', lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,
            attempt_count = attempt_count + 1, processing_error_count = processing_error_count + 1,
            error_class = 'processing', last_error_code = p_error_code, updated_at = now()
        WHERE id = p_job_id;
        RETURN 'dead_lettered';
    END IF;

    IF p_outcome = 'ready' THEN
        PERFORM assets.store_variants(v_asset.organization_id, v_asset.id, v_asset.rendition_profile, v_original_id,
            p_variant_codes, p_media_types, p_byte_sizes, p_checksums, p_widths, p_heights, p_variant_ids,
            p_storage_object_ids, p_provider_codes, p_object_keys);
        UPDATE assets.assets SET status = 'ready', ready_at = now() WHERE id = v_asset.id;
        UPDATE assets.uploads SET state = 'verified', settled_at = now() WHERE id = v_upload.id;
        UPDATE assets.organization_usage
        SET reserved_bytes = reserved_bytes - v_upload.declared_byte_size,
            stored_bytes = stored_bytes + (SELECT sum(size) FROM unnest(p_byte_sizes) AS stored (size)),
            updated_at = now()
        WHERE organization_id = v_job.organization_id;
    ELSE
        PERFORM assets.settle_failure(v_job.asset_id, p_error_code, 'rejected');
    END IF;
    UPDATE assets.processing_jobs
    SET state = 'completed', completed_at = now(), lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,
        error_class = CASE p_outcome WHEN 'failed_permanent' THEN 'permanent' ELSE error_class END,
        last_error_code = CASE p_outcome WHEN 'failed_permanent' THEN p_error_code ELSE last_error_code END,
        updated_at = now()
    WHERE id = p_job_id;
    RETURN 'completed';
END $$;
