-- When the next job of these kinds can be claimed: a time in the past means now, NULL means none is open. Jobs under
-- another worker's lease count when that lease ends.
CREATE OR REPLACE FUNCTION assets.next_job_at(p_job_kinds varchar[]) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT min(least(
        (SELECT j.available_at FROM assets.processing_jobs j
            WHERE j.job_kind = k.kind AND j.state = 'pending' AND j.queue_rank IS NOT NULL
            ORDER BY j.queue_rank, j.available_at, j.id LIMIT 1),
        (SELECT j.available_at FROM assets.processing_jobs j
            WHERE j.job_kind = k.kind AND j.state = 'pending' AND j.queue_rank IS NULL
            ORDER BY j.available_at, j.id LIMIT 1),
        (SELECT j.lease_expires_at FROM assets.processing_jobs j
            WHERE j.job_kind = k.kind AND j.state = 'leased'
            ORDER BY j.lease_expires_at, j.id LIMIT 1)))
    FROM unnest(p_job_kinds) AS k (kind)
$$;
