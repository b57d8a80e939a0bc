-- What a worker may do with objects it is about to write, or has written, for a job:
--   held        the lease is still the caller's: go on;
--   superseded  the lease is lost, but the asset lives, or may be requeued: its objects belong to whoever settles it,
--               so leave them alone;
--   unwanted    the lease is lost and the asset has failed for good, is being purged or is gone: it never comes back,
--               and what this attempt wrote must go.
-- Changes nothing.
CREATE OR REPLACE FUNCTION assets.lease_standing(p_job_id uuid, p_lease_token uuid, p_asset_id uuid) RETURNS varchar
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN EXISTS (
            SELECT FROM assets.processing_jobs j
            WHERE j.id = p_job_id AND j.state = 'leased' AND j.lease_token = p_lease_token
                AND j.lease_expires_at > clock_timestamp()) THEN 'held'
        WHEN EXISTS (
            SELECT FROM assets.assets a
            WHERE a.id = p_asset_id
                AND (a.status IN ('pending', 'processing', 'ready') OR a.status = 'failed' AND EXISTS (
                    SELECT FROM assets.processing_jobs j
                    WHERE j.asset_id = p_asset_id AND j.job_kind = 'process_upload' AND j.state = 'dead_lettered')))
            THEN 'superseded'
        ELSE 'unwanted'
    END::varchar
$$;
