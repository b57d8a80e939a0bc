-- Deletes up to p_batch (1 to 500) uploads settled more than 35 days ago, oldest first, and returns how many. Who reads
-- a settled upload is done with it by then: a repeated idempotency key (its intent lived 15 minutes), a requeue
-- (1 day), a purge (the staging object is gone after 1 day). Never waits for a lock. Refuses with
-- 23514: assets_sweep_batch.
CREATE OR REPLACE FUNCTION assets.prune_settled_uploads(p_batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_pruned integer;
BEGIN
    IF p_batch IS NULL OR p_batch NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'a batch is 1 to 500' USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_batch';
    END IF;
    DELETE FROM assets.uploads WHERE id IN (
        SELECT u.id FROM assets.uploads u
        WHERE u.settled_at < now() - interval '35 days'
        ORDER BY u.settled_at, u.id LIMIT p_batch
        FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_pruned = ROW_COUNT;
    RETURN v_pruned;
END $$;
