-- Trigger: a job that may run now takes its place in line when it is queued; a delayed one does so when it is due
-- (assets.claim_processing_job).
CREATE OR REPLACE FUNCTION assets.line_up_job() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.state = 'pending' AND NEW.queue_rank IS NULL AND NEW.available_at <= now() THEN
        NEW.queue_rank := assets.next_queue_rank(NEW.organization_id, NEW.job_kind);
    END IF;
    RETURN NEW;
END $$;
