-- Recomputes the usage of up to p_batch (1 to 500) organizations after p_after (NULL: from the first) from their rows,
-- each under its usage lock. (§6) Returns the last one, NULL when none followed. Idempotent.
-- Refuses with 23514: assets_processing_isolation, assets_sweep_batch.
CREATE OR REPLACE FUNCTION assets.reconcile_usage_batch(p_after uuid, p_batch integer) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_organization_id uuid;
    v_last uuid;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    IF p_batch IS NULL OR p_batch NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'a batch is 1 to 500' USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_batch';
    END IF;
    FOR v_organization_id IN
        SELECT organization_id FROM assets.organization_usage
        WHERE p_after IS NULL OR organization_id > p_after
        ORDER BY organization_id LIMIT p_batch
    LOOP
        PERFORM FROM assets.organization_usage WHERE organization_id = v_organization_id FOR UPDATE;
        PERFORM assets.recount_usage(v_organization_id);
        v_last := v_organization_id;
    END LOOP;
    RETURN v_last;
END $$;
