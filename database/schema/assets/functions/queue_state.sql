-- The queue as it is now, counted in one statement: one row per kind, zeros included. ready could be claimed now,
-- delayed waits out a retry, leased is held by a worker, lease_expired was let go by one and is taken next;
-- oldest_ready_at is since when the oldest ready job could have been claimed (NULL: none). dead_letter_codes and
-- dead_letter_counts go place by place. Changes nothing.
CREATE OR REPLACE FUNCTION assets.queue_state()
RETURNS TABLE (job_kind varchar, ready bigint, delayed bigint, leased bigint, lease_expired bigint,
    oldest_ready_at timestamptz, dead_letter_codes varchar[], dead_letter_counts bigint[], counted_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT kinds.kind,
        coalesce(sum(open.jobs) FILTER (WHERE open.standing = 'ready'), 0)::bigint,
        coalesce(sum(open.jobs) FILTER (WHERE open.standing = 'delayed'), 0)::bigint,
        coalesce(sum(open.jobs) FILTER (WHERE open.standing = 'leased'), 0)::bigint,
        coalesce(sum(open.jobs) FILTER (WHERE open.standing = 'lease_expired'), 0)::bigint,
        min(open.oldest) FILTER (WHERE open.standing = 'ready'),
        dead.codes, dead.counts, now()
    FROM (VALUES ('process_upload'::varchar), ('purge_asset'), ('render_profile')) AS kinds (kind)
    LEFT JOIN (
        SELECT j.job_kind,
            CASE WHEN j.available_at <= now() THEN 'ready' ELSE 'delayed' END AS standing,
            count(*) AS jobs, min(j.available_at) AS oldest
        FROM assets.processing_jobs j WHERE j.state = 'pending' GROUP BY 1, 2
        UNION ALL
        SELECT j.job_kind,
            CASE WHEN j.lease_expires_at > now() THEN 'leased' ELSE 'lease_expired' END,
            count(*), NULL
        FROM assets.processing_jobs j WHERE j.state = 'leased' GROUP BY 1, 2
    ) AS open ON open.job_kind = kinds.kind
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(coded.code ORDER BY coded.code), '{}') AS codes,
            coalesce(array_agg(coded.jobs ORDER BY coded.code), '{}') AS counts
        FROM (SELECT coalesce(j.last_error_code, '') ::varchar AS code, count(*) AS jobs FROM assets.processing_jobs j
            WHERE j.state = 'dead_lettered' AND j.job_kind = kinds.kind GROUP BY 1) AS coded
    ) AS dead
    GROUP BY kinds.kind, dead.codes, dead.counts
    ORDER BY assets.job_kind_class(kinds.kind), kinds.kind
$$;
