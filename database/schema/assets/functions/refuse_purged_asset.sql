-- Trigger: the id and the delivery token of a purged asset, and with the token its paths, are never used again.
-- Refuses with 23514, assets_purged_for_good.
CREATE OR REPLACE FUNCTION assets.refuse_purged_asset() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM assets.purge_receipts WHERE delivery_token = NEW.delivery_token)
        OR EXISTS (SELECT FROM assets.purge_receipts WHERE asset_id = NEW.id)
    THEN
        RAISE EXCEPTION 'this asset was purged'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_purged_for_good';
    END IF;
    RETURN NEW;
END $$;
