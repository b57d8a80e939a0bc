-- Claims at most one job of the kinds asked for. (§6, §14) claim_state:
--   leased         the caller holds the job until now + p_lease_seconds (30 to 900) under p_lease_token;
--   dead_lettered  the job's lease ran out for the fifth processing error: it is settled, nothing is leased;
--   completed      the asset no longer waits for this job (assets.job_abandoned): it is settled, nothing is leased.
-- Order: jobs whose lease ran out (each counted as a processing error); then the line of each kind, uploads before
-- purges before backfills, in which organizations take turns (assets.next_queue_rank). At every fourth claim of the
-- fleet a job of a later kind that has waited 15 minutes, or that goes before its line (an erasure), passes first, so
-- that nothing starves. Never waits for a lock. Not idempotent. Refuses with 23514: assets_processing_isolation,
-- assets_job_lease_seconds.
CREATE OR REPLACE FUNCTION assets.claim_processing_job(
    p_lease_owner varchar, p_lease_token uuid, p_lease_seconds integer, p_job_kinds varchar[])
RETURNS TABLE (job_id uuid, organization_id uuid, asset_id uuid, job_kind varchar, attempt_count integer,
    delivery_token varchar, access_class varchar, rendition_profile smallint, upload_id uuid,
    staging_provider_code varchar, staging_object_key varchar, declared_media_type varchar,
    declared_byte_size bigint, original_variant_id uuid, upload_expires_at timestamptz,
    processing_error_count integer, claim_state varchar, trace_context varchar)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    c_fifth constant integer := 5;
    v_kinds varchar[];
    v_kind varchar;
    v_aged_kind varchar;
    v_job assets.processing_jobs;
    v_due assets.processing_jobs;
    v_reclaimed boolean := false;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    IF p_lease_seconds IS NULL OR p_lease_seconds NOT BETWEEN 30 AND 900 THEN
        RAISE EXCEPTION 'a lease lasts 30 to 900 seconds'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_job_lease_seconds';
    END IF;

    -- 1. A lease that ran out for the fifth time settles its asset, which needs the locks above the job's. They are
    --    taken in the usual order before the job, and only when free: a claim never waits.
    FOR v_due IN
        SELECT j.* FROM assets.processing_jobs j
        WHERE j.job_kind = 'process_upload' AND j.job_kind = ANY (p_job_kinds) AND j.state = 'leased'
            AND j.lease_expires_at <= now() AND j.processing_error_count + 1 >= c_fifth
        ORDER BY j.lease_expires_at, j.id LIMIT 10
    LOOP
        PERFORM FROM assets.organization_usage u WHERE u.organization_id = v_due.organization_id
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM assets.assets a WHERE a.id = v_due.asset_id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM assets.uploads u WHERE u.asset_id = v_due.asset_id FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM assets.asset_variants v
        WHERE v.asset_id = v_due.asset_id AND v.variant_code = 'original' FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT j.* INTO v_job FROM assets.processing_jobs j
        WHERE j.id = v_due.id AND j.state = 'leased' AND j.lease_token = v_due.lease_token
            AND j.lease_expires_at <= now()
        FOR UPDATE SKIP LOCKED;
        EXIT WHEN v_job.id IS NOT NULL;
    END LOOP;

    -- 2. Any other lease that ran out.
    IF v_job.id IS NULL THEN
        FOREACH v_kind IN ARRAY coalesce(p_job_kinds, '{}') LOOP
            SELECT j.* INTO v_job FROM assets.processing_jobs j
            WHERE j.job_kind = v_kind AND j.state = 'leased' AND j.lease_expires_at <= now()
                AND NOT (j.job_kind = 'process_upload' AND j.processing_error_count + 1 >= c_fifth)
            ORDER BY j.lease_expires_at, j.id LIMIT 1
            FOR UPDATE SKIP LOCKED;
            EXIT WHEN v_job.id IS NOT NULL;
        END LOOP;
    END IF;
    v_reclaimed := v_job.id IS NOT NULL;

    -- 3. The lines.
    IF v_job.id IS NULL THEN
        SELECT array_agg(k.kind ORDER BY assets.job_kind_class(k.kind), k.kind) INTO v_kinds
        FROM (SELECT DISTINCT asked.kind FROM unnest(p_job_kinds) AS asked (kind)) AS k;
        IF nextval('assets.processing_claims_seq') % 4 = 0 THEN
            SELECT k.kind INTO v_aged_kind
            FROM unnest(v_kinds) AS k (kind)
            CROSS JOIN LATERAL (
                SELECT j.available_at, j.queue_rank FROM assets.processing_jobs j
                WHERE j.job_kind = k.kind AND j.state = 'pending' AND j.queue_rank IS NOT NULL
                ORDER BY j.queue_rank, j.available_at, j.id LIMIT 1) AS head
            WHERE assets.job_kind_class(k.kind) > 0
                AND (head.available_at <= now() - interval '15 minutes' OR head.queue_rank = 0)
            ORDER BY head.available_at LIMIT 1;
            IF v_aged_kind IS NOT NULL THEN
                v_kinds := v_aged_kind || v_kinds;
            END IF;
        END IF;
        FOREACH v_kind IN ARRAY coalesce(v_kinds, '{}') LOOP
            PERFORM assets.line_up_due_jobs(v_kind, 100);
            SELECT j.* INTO v_job FROM assets.processing_jobs j
            WHERE j.job_kind = v_kind AND j.state = 'pending' AND j.queue_rank IS NOT NULL
                AND j.available_at <= now()
            ORDER BY j.queue_rank, j.available_at, j.id LIMIT 1
            FOR UPDATE SKIP LOCKED;
            EXIT WHEN v_job.id IS NOT NULL;
        END LOOP;
    END IF;
    IF v_job.id IS NULL THEN
        RETURN;
    END IF;

    IF v_reclaimed THEN
        v_job.attempt_count := v_job.attempt_count + 1;
        v_job.processing_error_count := v_job.processing_error_count + 1;
        v_job.error_class := 'processing';
        v_job.last_error_code := 'assets.lease_expired';
    END IF;
    v_job.lease_owner := NULL;
    v_job.lease_token := NULL;
    v_job.lease_expires_at := NULL;
    IF v_job.job_kind = 'process_upload' AND NOT assets.awaits_outcome(v_job.asset_id) THEN
        v_job.state := 'completed';
        v_job.completed_at := now();
        v_job.last_error_code := 'assets.job_abandoned';
    ELSIF v_reclaimed AND v_job.processing_error_count >= c_fifth THEN
        v_job.state := 'dead_lettered';
        IF v_job.job_kind = 'process_upload' THEN
            PERFORM assets.settle_failure(v_job.asset_id, 'assets.processing_exhausted', 'rejected');
        END IF;
    ELSE
        v_job.state := 'leased';
        v_job.lease_owner := p_lease_owner;
        v_job.lease_token := p_lease_token;
        v_job.lease_expires_at := now() + make_interval(secs => p_lease_seconds);
    END IF;
    UPDATE assets.processing_jobs j
    SET state = v_job.state, lease_owner = v_job.lease_owner, lease_token = v_job.lease_token,
        lease_expires_at = v_job.lease_expires_at, attempt_count = v_job.attempt_count,
        processing_error_count = v_job.processing_error_count, error_class = v_job.error_class,
        last_error_code = v_job.last_error_code, completed_at = v_job.completed_at, updated_at = now()
    WHERE j.id = v_job.id;

    RETURN QUERY
    SELECT v_job.id, v_job.organization_id, v_job.asset_id, v_job.job_kind, v_job.attempt_count, a.delivery_token,
        a.access_class, a.rendition_profile, u.id, p.code, u.staging_object_key, u.declared_media_type,
        u.declared_byte_size, v.id, u.expires_at, v_job.processing_error_count, v_job.state, v_job.trace_context
    FROM assets.assets a
    LEFT JOIN assets.uploads u ON u.asset_id = a.id
    LEFT JOIN assets.storage_providers p ON p.id = u.staging_provider_id
    LEFT JOIN assets.asset_variants v ON v.asset_id = a.id AND v.variant_code = 'original'
    WHERE a.id = v_job.asset_id;
END $$;
