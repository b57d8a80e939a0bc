-- What rows say about keys (1 to 1000) found at a provider, one row each in the order asked for:
--   known        an available object has a row with this key;
--   found_again  a row has it, but says it is missing;
--   in_flight    its asset or upload is not settled, or is being purged: leave it to the workers;
--   purged       its asset was purged: nothing may be left of it;
--   stray        a settled or unknown asset, and no row has this key.
-- Changes nothing. For operators: no grant. Refuses with 23514 assets_page_size.
CREATE OR REPLACE FUNCTION assets.judge_storage_keys(p_provider_code varchar, p_object_keys varchar[])
RETURNS TABLE (object_key varchar, verdict varchar, storage_object_id uuid, asset_id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_provider_id uuid;
BEGIN
    IF cardinality(p_object_keys) IS NULL OR cardinality(p_object_keys) NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION '1 to 1000 keys are judged at once' USING ERRCODE = '23514', CONSTRAINT = 'assets_page_size';
    END IF;
    SELECT p.id INTO v_provider_id FROM assets.storage_providers p WHERE p.code = p_provider_code;
    RETURN QUERY
    SELECT asked.key,
        CASE
            WHEN o.status = 'available' THEN 'known'
            WHEN o.status = 'missing' THEN 'found_again'
            WHEN r.asset_id IS NOT NULL THEN 'purged'
            WHEN a.status IN ('pending', 'processing', 'purging') THEN 'in_flight'
            WHEN u.state IN ('issued', 'received') THEN 'in_flight'
            ELSE 'stray'
        END::varchar,
        o.id, coalesce(a.id, u.asset_id, r.asset_id)
    FROM unnest(p_object_keys) WITH ORDINALITY AS asked (key, place)
    LEFT JOIN assets.storage_objects o ON o.provider_id = v_provider_id AND o.object_key = asked.key
    LEFT JOIN assets.uploads u ON u.staging_provider_id = v_provider_id AND u.staging_object_key = asked.key
    LEFT JOIN assets.assets a ON a.delivery_token = split_part(asked.key, '/', 2)
    LEFT JOIN assets.purge_receipts r ON r.delivery_token = split_part(asked.key, '/', 2)
    ORDER BY asked.place;
END $$;
