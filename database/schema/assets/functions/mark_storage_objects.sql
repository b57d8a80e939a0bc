-- Writes down that objects (1 to 1000) are `missing` from their provider, or `available` again, and counts the usage of
-- their organizations anew. Returns those whose status changed, with their asset. Repeating it changes nothing. Waits
-- for nobody but the organizations' usage rows, taken in their order. For operators: no grant.
-- Refuses with 23514: assets_processing_isolation, assets_page_size, storage_objects_status_chk.
CREATE OR REPLACE FUNCTION assets.mark_storage_objects(p_storage_object_ids uuid[], p_status varchar)
RETURNS TABLE (storage_object_id uuid, object_key varchar, organization_id uuid, asset_id uuid, asset_status varchar)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_organization_ids uuid[];
    v_changed uuid[];
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    IF cardinality(p_storage_object_ids) IS NULL OR cardinality(p_storage_object_ids) NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION '1 to 1000 objects are marked at once'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_page_size';
    END IF;
    SELECT array_agg(DISTINCT o.organization_id) INTO v_organization_ids
    FROM assets.storage_objects o WHERE o.id = ANY (p_storage_object_ids) AND o.status <> p_status;
    PERFORM FROM assets.organization_usage u WHERE u.organization_id = ANY (v_organization_ids)
    ORDER BY u.organization_id FOR UPDATE;
    WITH marked AS (
        UPDATE assets.storage_objects o
        SET status = p_status, verified_at = CASE p_status WHEN 'available' THEN now() ELSE o.verified_at END
        WHERE o.id = ANY (p_storage_object_ids) AND o.organization_id = ANY (v_organization_ids)
            AND o.status <> p_status
        RETURNING o.id)
    SELECT array_agg(m.id) INTO v_changed FROM marked m;
    PERFORM assets.recount_usage(listed.id) FROM unnest(v_organization_ids) AS listed (id);
    RETURN QUERY
    SELECT o.id, o.object_key::varchar, o.organization_id, a.id, a.status
    FROM assets.storage_objects o
    JOIN assets.asset_variants v ON v.id = o.variant_id
    JOIN assets.assets a ON a.id = v.asset_id
    WHERE o.id = ANY (v_changed) ORDER BY o.object_key;
END $$;
