-- Deferred constraint trigger on assets and asset_variants: at commit, an asset that is ready has its original and
-- every rendition of its profile ready. Refuses with 23514, assets_ready_requires_renditions.
CREATE OR REPLACE FUNCTION assets.assert_ready_asset_renditions() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_asset_id uuid;
BEGIN
    IF TG_TABLE_NAME = 'assets' THEN
        v_asset_id := NEW.id;
    ELSIF TG_OP = 'DELETE' THEN
        v_asset_id := OLD.asset_id;
    ELSE
        v_asset_id := NEW.asset_id;
    END IF;
    IF EXISTS (
        SELECT FROM assets.assets a
        WHERE a.id = v_asset_id AND a.status = 'ready'
            AND (assets.profile_rendition_codes(a.rendition_profile) IS NULL
                OR EXISTS (
                    SELECT FROM unnest(
                        ARRAY['original'] || assets.profile_rendition_codes(a.rendition_profile)) AS needed (code)
                    WHERE NOT EXISTS (
                        SELECT FROM assets.asset_variants v
                        WHERE v.asset_id = a.id AND v.variant_code = needed.code AND v.status = 'ready')))
    ) THEN
        RAISE EXCEPTION 'a ready asset has its original and every rendition of its profile ready'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_ready_requires_renditions';
    END IF;
    RETURN NULL;
END $$;
