-- Erases an asset on request, whatever its state (`ninaku assets erase`): unfinished work fails first
-- (assets.erased), the asset is archived and `purging` from this moment, and a purge job stands before its line. The
-- worker deletes the objects and the CDN's copies; assets.purge_receipts then has the receipt. outcome:
--   queued          the purge is queued or already runs (job_id);
--   already_purged  there is a receipt already;
--   referenced      claims hold the asset (claim_consumers and claim_references, place by place); nothing changed.
--                   With p_detach they are deleted instead, and reported the same way;
--   not_found.
-- Repeating it is safe. A reference that is no claim raises 23503 (assets_asset_referenced), and nothing changed.
-- Refuses with 23514: assets_processing_isolation. For operators: no grant.
CREATE OR REPLACE FUNCTION assets.erase_asset(p_asset_id uuid, p_detach boolean DEFAULT false)
RETURNS TABLE (outcome varchar, organization_id uuid, job_id uuid, claim_consumers varchar[],
    claim_references varchar[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_organization_id uuid;
    v_asset assets.assets;
    v_consumers varchar[];
    v_references varchar[];
    v_job_id uuid;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    SELECT a.organization_id INTO v_organization_id FROM assets.assets a WHERE a.id = p_asset_id;
    PERFORM FROM assets.organization_usage u WHERE u.organization_id = v_organization_id FOR UPDATE;
    SELECT a.* INTO v_asset FROM assets.assets a WHERE a.id = p_asset_id FOR UPDATE;
    IF v_asset.id IS NULL THEN
        RETURN QUERY
        SELECT CASE WHEN r.asset_id IS NULL THEN 'not_found' ELSE 'already_purged' END::varchar, r.organization_id,
            NULL::uuid, '{}'::varchar[], '{}'::varchar[]
        FROM (VALUES (p_asset_id)) AS asked (id) LEFT JOIN assets.purge_receipts r ON r.asset_id = asked.id;
        RETURN;
    END IF;

    SELECT coalesce(array_agg(c.consumer ORDER BY c.consumer, c.reference), '{}'),
        coalesce(array_agg(c.reference ORDER BY c.consumer, c.reference), '{}')
    INTO v_consumers, v_references FROM assets.asset_claims c WHERE c.asset_id = p_asset_id;
    IF cardinality(v_consumers) > 0 THEN
        IF p_detach IS NOT TRUE THEN
            RETURN QUERY SELECT 'referenced'::varchar, v_organization_id, NULL::uuid, v_consumers, v_references;
            RETURN;
        END IF;
        DELETE FROM assets.asset_claims c WHERE c.asset_id = p_asset_id;
    END IF;

    IF v_asset.status <> 'purging' THEN
        IF assets.asset_is_referenced(p_asset_id) THEN
            RAISE EXCEPTION 'the asset is in use'
                USING ERRCODE = '23503', CONSTRAINT = 'assets_asset_referenced';
        END IF;
        IF v_asset.status IN ('pending', 'processing') THEN
            PERFORM FROM assets.uploads u WHERE u.asset_id = p_asset_id FOR UPDATE;
            PERFORM FROM assets.asset_variants v WHERE v.asset_id = p_asset_id FOR UPDATE;
            PERFORM assets.settle_failure(p_asset_id, 'assets.erased', 'rejected');
        ELSIF assets.counts_as_active_asset(v_asset.status, v_asset.archived_at) THEN
            UPDATE assets.organization_usage u
            SET active_asset_count = u.active_asset_count - 1, updated_at = now()
            WHERE u.organization_id = v_organization_id;
        END IF;
        -- Other work on the asset is over: whoever holds it finds the lease gone.
        UPDATE assets.processing_jobs j
        SET state = 'completed', completed_at = now(), lease_owner = NULL, lease_token = NULL,
            lease_expires_at = NULL, last_error_code = 'assets.erased', updated_at = now()
        WHERE j.asset_id = p_asset_id AND j.job_kind <> 'purge_asset' AND j.state IN ('pending', 'leased');
        UPDATE assets.assets a SET status = 'purging', archived_at = coalesce(a.archived_at, now())
        WHERE a.id = p_asset_id;
        PERFORM audit.append_operation(v_organization_id, 'operator', 'assets.asset.erasure_requested',
            'assets.asset', p_asset_id, jsonb_build_object('status', v_asset.status),
            jsonb_build_object('detachedClaims', cardinality(v_consumers)));
    END IF;

    -- Before the line and at once, also when the purge already waits.
    UPDATE assets.processing_jobs j
    SET queue_rank = 0, available_at = least(j.available_at, now()), updated_at = now()
    WHERE j.asset_id = p_asset_id AND j.job_kind = 'purge_asset' AND j.state = 'pending'
    RETURNING j.id INTO v_job_id;
    IF v_job_id IS NULL THEN
        SELECT j.id INTO v_job_id FROM assets.processing_jobs j
        WHERE j.asset_id = p_asset_id AND j.job_kind = 'purge_asset' AND j.state = 'leased';
    ELSE
        PERFORM pg_notify('assets_processing_jobs', '');
    END IF;
    IF v_job_id IS NULL THEN
        INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, queue_rank)
        VALUES (uuidv7(), v_organization_id, p_asset_id, 'purge_asset', 0)
        RETURNING id INTO v_job_id;
    END IF;
    RETURN QUERY SELECT 'queued'::varchar, v_organization_id, v_job_id, v_consumers, v_references;
END $$;
