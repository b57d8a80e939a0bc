-- Whether an asset still waits for the outcome of its upload: a job for anything else is stranded. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.awaits_outcome(p_asset_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM assets.assets a JOIN assets.uploads u ON u.asset_id = a.id
        WHERE a.id = p_asset_id AND a.status = 'processing' AND u.state = 'received')
$$;
