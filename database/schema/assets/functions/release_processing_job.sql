-- Gives a leased job back untried (a worker that drains): pending at once at its old place, both budgets untouched,
-- the other workers woken. Returns released, or lease_lost when the lease is no longer the caller's: a repeat is safe.
-- Refuses with 23514 assets_processing_isolation.
CREATE OR REPLACE FUNCTION assets.release_processing_job(p_job_id uuid, p_lease_token uuid) RETURNS varchar
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    UPDATE assets.processing_jobs
    SET state = 'pending', lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL, updated_at = now()
    WHERE id = p_job_id AND state = 'leased' AND lease_token = p_lease_token AND lease_expires_at > now();
    IF NOT FOUND THEN
        RETURN 'lease_lost';
    END IF;
    PERFORM pg_notify('assets_processing_jobs', '');
    RETURN 'released';
END $$;
