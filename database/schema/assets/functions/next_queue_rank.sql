-- The place that a job of this organization takes in the line of its kind: behind the organization's own jobs, but
-- beside the head of the line when it has none waiting. So organizations take turns, however many jobs one of them
-- has queued, and two index probes decide it. Two jobs may share a rank (available_at and id order them); concurrent
-- callers need no lock. Rank 0 is before the line (an erasure) and not its head. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.next_queue_rank(p_organization_id uuid, p_job_kind varchar) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_head bigint;
    v_own bigint;
BEGIN
    SELECT j.queue_rank INTO v_head FROM assets.processing_jobs j
    WHERE j.job_kind = p_job_kind AND j.state = 'pending' AND j.queue_rank > 0
    ORDER BY j.queue_rank, j.available_at, j.id LIMIT 1;
    IF v_head IS NULL THEN  -- an empty line starts over behind everything it ever served
        SELECT max(j.queue_rank) + 1 INTO v_head FROM assets.processing_jobs j
        WHERE j.job_kind = p_job_kind AND j.queue_rank IS NOT NULL;
    END IF;
    SELECT max(j.queue_rank) + 1 INTO v_own FROM assets.processing_jobs j
    WHERE j.organization_id = p_organization_id AND j.job_kind = p_job_kind AND j.queue_rank IS NOT NULL;
    RETURN greatest(v_head, v_own, 1);
END $$;
