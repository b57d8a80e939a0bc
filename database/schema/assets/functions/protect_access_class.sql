-- Trigger: the access class of an asset never changes, since its keys and URLs follow from it.
-- Refuses with 23514, assets_access_class_immutable.
CREATE OR REPLACE FUNCTION assets.protect_access_class() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.access_class IS DISTINCT FROM OLD.access_class THEN
        RAISE EXCEPTION 'the access class of an asset never changes'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_access_class_immutable';
    END IF;
    RETURN NEW;
END $$;
