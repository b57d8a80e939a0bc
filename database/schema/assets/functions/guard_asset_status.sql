-- Trigger: lets an asset's status move only along the table below (the same status is always allowed), and freezes
-- status and archival once it is purging. Refuses with 23514, assets_status_transition.
CREATE OR REPLACE FUNCTION assets.guard_asset_status() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF OLD.status = 'purging' AND (NEW.status <> 'purging' OR NEW.archived_at IS DISTINCT FROM OLD.archived_at)
        OR NEW.status <> OLD.status AND (OLD.status, NEW.status) NOT IN (
            ('pending', 'processing'), ('pending', 'failed'),
            ('processing', 'ready'), ('processing', 'failed'),
            ('failed', 'processing'),
            ('ready', 'purging'), ('failed', 'purging'))
    THEN
        RAISE EXCEPTION 'an asset does not go from % to %', OLD.status, NEW.status
            USING ERRCODE = '23514', CONSTRAINT = 'assets_status_transition';
    END IF;
    RETURN NEW;
END $$;
