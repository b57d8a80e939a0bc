-- Whether the sweep may queue a purge of an asset: none is open or dead-lettered, and none was completed in the last 30
-- days. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.may_queue_purge(p_asset_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT NOT EXISTS (
        SELECT FROM assets.processing_jobs j
        WHERE j.asset_id = p_asset_id AND j.job_kind = 'purge_asset'
            AND (j.state <> 'completed' OR j.completed_at > now() - interval '30 days'))
$$;
