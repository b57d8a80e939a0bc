-- Why a dead-lettered job would not be requeued, whatever the plan's limits; NULL when nothing stands in the way.
--   too_old   an upload created a day ago or longer: its bytes in the inbox are gone;
--   archived  the upload's asset was archived: nobody waits for it;
--   state     the asset is not where a requeue could go on: not failed, being purged, or a newer job is open.
-- Internal: no grant.
CREATE OR REPLACE FUNCTION assets.requeue_refusal(p_job_id uuid) RETURNS varchar
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN j.job_kind NOT IN ('process_upload', 'purge_asset') THEN 'state'
        WHEN EXISTS (
            SELECT FROM assets.processing_jobs other
            WHERE other.asset_id = j.asset_id AND other.job_kind = j.job_kind
                AND other.state IN ('pending', 'leased')) THEN 'state'
        WHEN j.job_kind = 'purge_asset' THEN NULL
        WHEN u.id IS NULL OR u.created_at <= now() - interval '1 day' THEN 'too_old'
        WHEN a.status <> 'failed' OR u.state <> 'rejected' OR u.received_at IS NULL THEN 'state'
        WHEN a.archived_at IS NOT NULL THEN 'archived'
    END::varchar
    FROM assets.processing_jobs j
    JOIN assets.assets a ON a.id = j.asset_id
    LEFT JOIN assets.uploads u ON u.asset_id = j.asset_id
    WHERE j.id = p_job_id
$$;
