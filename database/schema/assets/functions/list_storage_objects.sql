-- The objects that rows say a provider holds, in the byte order in which object storage lists them: keys with p_prefix
-- after p_after ('' at first), at most p_limit (1 to 1000). For operators: no grant. Refuses with 23514
-- assets_page_size.
CREATE OR REPLACE FUNCTION assets.list_storage_objects(
    p_provider_code varchar, p_prefix varchar, p_after varchar, p_limit integer)
RETURNS TABLE (object_key varchar, storage_object_id uuid, status varchar, organization_id uuid, asset_id uuid,
    asset_status varchar, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'a page has 1 to 1000 rows' USING ERRCODE = '23514', CONSTRAINT = 'assets_page_size';
    END IF;
    RETURN QUERY
    SELECT o.object_key::varchar, o.id, o.status, o.organization_id, a.id, a.status, o.created_at
    FROM assets.storage_objects o
    JOIN assets.asset_variants v ON v.id = o.variant_id
    JOIN assets.assets a ON a.id = v.asset_id
    WHERE o.provider_id = (SELECT p.id FROM assets.storage_providers p WHERE p.code = p_provider_code)
        AND o.object_key > p_after AND starts_with(o.object_key, p_prefix)
    ORDER BY o.object_key LIMIT p_limit;
END $$;
