-- Queues `purge_asset` jobs for up to p_batch (1 to 500) assets, those longest due first: ready and archived for more
-- than 30 days, or failed for more than 7. (§16) Left out: assets with an open job of that kind, with one that was
-- dead-lettered (an operator requeues it), and with one completed in the last 30 days (still referenced: asked again
-- monthly). Returns how many; fewer than p_batch means that none is left, or that others hold the rest locked. Never
-- waits for a lock. Idempotent: a queued asset is not found again.
-- Refuses with 23514: assets_processing_isolation, assets_sweep_batch.
CREATE OR REPLACE FUNCTION assets.enqueue_purge_candidates(p_batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_queued integer;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    IF p_batch IS NULL OR p_batch NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'a batch is 1 to 500' USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_batch';
    END IF;
    WITH due AS (
        (SELECT a.id, a.archived_at AS since FROM assets.assets a
        WHERE a.status = 'ready' AND a.archived_at < now() - interval '30 days'
            AND assets.may_queue_purge(a.id)
        ORDER BY a.archived_at, a.id LIMIT p_batch)
        UNION ALL
        (SELECT a.id, a.failed_at FROM assets.assets a
        WHERE a.status = 'failed' AND a.failed_at < now() - interval '7 days'
            AND assets.may_queue_purge(a.id)
        ORDER BY a.failed_at, a.id LIMIT p_batch)
    ), chosen AS (
        SELECT a.id, a.organization_id FROM assets.assets a
        WHERE a.id IN (SELECT d.id FROM due d ORDER BY d.since, d.id LIMIT p_batch)
            AND (a.status = 'ready' AND a.archived_at < now() - interval '30 days'
                OR a.status = 'failed' AND a.failed_at < now() - interval '7 days')
        FOR UPDATE SKIP LOCKED
    )
    INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind)
    SELECT uuidv7(), c.organization_id, c.id, 'purge_asset' FROM chosen c
    ON CONFLICT (asset_id, job_kind) WHERE state IN ('pending', 'leased') DO NOTHING;
    GET DIAGNOSTICS v_queued = ROW_COUNT;
    RETURN v_queued;
END $$;
