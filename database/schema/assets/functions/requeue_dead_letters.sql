-- Gives 1 to 500 dead-lettered jobs another go with both budgets at zero. (§14) An upload's asset waits again
-- (`processing`, upload `received`), its slot and its declared bytes are reserved again; a purge goes on where it was.
-- One row per id, in the order asked for:
--   requeued
--   skipped_over_limit   reason asset_limit | storage_limit: the plan has no room for what it would reserve
--   skipped_ineligible   reason unknown | not_dead_lettered | too_old | archived | state (assets.requeue_refusal)
-- A skipped job does not stop the rest. Waits for the expiry sweep and the reconciliation to end (their lock), then
-- locks the usage rows in the order of the organizations, and the rest in the usual order.
-- Repeating it finds the jobs no longer dead-lettered.
-- Refuses with 23514: assets_processing_isolation, assets_requeue_batch. For operators: no grant.
CREATE OR REPLACE FUNCTION assets.requeue_dead_letters(p_job_ids uuid[])
RETURNS TABLE (job_id uuid, outcome varchar, reason varchar)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_asset_ids uuid[];
    v_id uuid;
    v_job assets.processing_jobs;
    v_declared bigint;
    v_usage assets.organization_usage;
    v_reason varchar;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    SELECT array_agg(listed.id ORDER BY listed.place) INTO v_ids
    FROM (SELECT given.id, min(given.place) AS place
        FROM unnest(p_job_ids) WITH ORDINALITY AS given (id, place) WHERE given.id IS NOT NULL
        GROUP BY given.id) AS listed;
    IF coalesce(cardinality(v_ids), 0) NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION '1 to 500 jobs are requeued at once'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_requeue_batch';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('assets.expire_uploads', 0));
    PERFORM FROM assets.organization_usage u
    WHERE u.organization_id IN (SELECT j.organization_id FROM assets.processing_jobs j WHERE j.id = ANY (v_ids))
    ORDER BY u.organization_id FOR UPDATE;
    SELECT array_agg(DISTINCT j.asset_id) INTO v_asset_ids FROM assets.processing_jobs j WHERE j.id = ANY (v_ids);
    PERFORM FROM assets.assets a WHERE a.id = ANY (v_asset_ids) ORDER BY a.id FOR UPDATE;
    PERFORM FROM assets.uploads u WHERE u.asset_id = ANY (v_asset_ids) ORDER BY u.asset_id FOR UPDATE;
    PERFORM FROM assets.asset_variants v
    WHERE v.asset_id = ANY (v_asset_ids) AND v.variant_code = 'original' ORDER BY v.asset_id FOR UPDATE;
    PERFORM FROM assets.processing_jobs j WHERE j.id = ANY (v_ids) ORDER BY j.id FOR UPDATE;

    FOREACH v_id IN ARRAY v_ids LOOP
        SELECT j.* INTO v_job FROM assets.processing_jobs j WHERE j.id = v_id;
        v_reason := CASE
            WHEN v_job.id IS NULL THEN 'unknown'
            WHEN v_job.state <> 'dead_lettered' THEN 'not_dead_lettered'
            ELSE assets.requeue_refusal(v_job.id)
        END;
        IF v_reason IS NULL AND v_job.job_kind = 'process_upload' THEN
            SELECT u.declared_byte_size INTO STRICT v_declared FROM assets.uploads u
            WHERE u.asset_id = v_job.asset_id;
            SELECT u.* INTO STRICT v_usage FROM assets.organization_usage u
            WHERE u.organization_id = v_job.organization_id;
            v_reason := CASE
                WHEN v_usage.active_asset_count + 1
                    > platform.effective_limit(v_job.organization_id, 'assets.active_assets') THEN 'asset_limit'
                WHEN v_usage.stored_bytes + v_usage.reserved_bytes + v_declared
                    > platform.effective_limit(v_job.organization_id, 'assets.stored_megabytes') * 1048576
                    THEN 'storage_limit'
            END;
            IF v_reason IS NULL THEN
                UPDATE assets.organization_usage u
                SET active_asset_count = u.active_asset_count + 1, reserved_bytes = u.reserved_bytes + v_declared,
                    updated_at = now()
                WHERE u.organization_id = v_job.organization_id;
                UPDATE assets.assets a SET status = 'processing', failed_at = NULL, failure_code = NULL
                WHERE a.id = v_job.asset_id;
                UPDATE assets.uploads u SET state = 'received', settled_at = NULL, rejection_code = NULL
                WHERE u.asset_id = v_job.asset_id;
                UPDATE assets.asset_variants v SET status = 'processing', failed_at = NULL, failure_code = NULL
                WHERE v.asset_id = v_job.asset_id AND v.variant_code = 'original';
            END IF;
        END IF;
        IF v_reason IS NULL THEN
            UPDATE assets.processing_jobs j
            SET state = 'pending', available_at = now(), attempt_count = 0, processing_error_count = 0,
                queue_rank = assets.next_queue_rank(j.organization_id, j.job_kind), updated_at = now()
            WHERE j.id = v_job.id;
            PERFORM audit.append_operation(v_job.organization_id, 'operator', 'assets.asset.requeued', 'assets.asset',
                v_job.asset_id, jsonb_build_object('errorCode', v_job.last_error_code),
                jsonb_build_object('jobId', v_job.id, 'jobKind', v_job.job_kind));
            PERFORM pg_notify('assets_processing_jobs', '');
        END IF;
        job_id := v_id;
        outcome := CASE WHEN v_reason IS NULL THEN 'requeued'
            WHEN v_reason IN ('asset_limit', 'storage_limit') THEN 'skipped_over_limit'
            ELSE 'skipped_ineligible' END;
        reason := v_reason;
        RETURN NEXT;
    END LOOP;
END $$;
