-- Gives delayed jobs of a kind that are due their place in line, oldest first, at most p_batch. Never waits for a
-- lock. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.line_up_due_jobs(p_job_kind varchar, p_batch integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_due record;
BEGIN
    FOR v_due IN
        SELECT j.id, j.organization_id FROM assets.processing_jobs j
        WHERE j.job_kind = p_job_kind AND j.state = 'pending' AND j.queue_rank IS NULL AND j.available_at <= now()
        ORDER BY j.available_at, j.id LIMIT p_batch
        FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE assets.processing_jobs
        SET queue_rank = assets.next_queue_rank(v_due.organization_id, p_job_kind) WHERE id = v_due.id;
    END LOOP;
END $$;
