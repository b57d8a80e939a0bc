-- Deletes up to p_batch (1 to 500) jobs completed more than 35 days ago, oldest first, and returns how many. The
-- monthly purge rule (assets.may_queue_purge) reads the last 30 days of them. Dead letters stay until they are requeued
-- or their asset is purged. Never waits for a lock. Refuses with 23514: assets_sweep_batch.
CREATE OR REPLACE FUNCTION assets.prune_finished_jobs(p_batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_pruned integer;
BEGIN
    IF p_batch IS NULL OR p_batch NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'a batch is 1 to 500' USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_batch';
    END IF;
    DELETE FROM assets.processing_jobs WHERE id IN (
        SELECT j.id FROM assets.processing_jobs j
        WHERE j.state = 'completed' AND j.completed_at < now() - interval '35 days'
        ORDER BY j.completed_at, j.id LIMIT p_batch
        FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_pruned = ROW_COUNT;
    RETURN v_pruned;
END $$;
