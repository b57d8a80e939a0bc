-- Trigger: wakes the workers that listen. The notification carries nothing; it is sent when the transaction commits.
CREATE OR REPLACE FUNCTION assets.announce_jobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_notify('assets_processing_jobs', '');
    RETURN NULL;
END $$;
