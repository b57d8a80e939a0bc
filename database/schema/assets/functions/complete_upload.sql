-- Hands an upload whose bytes were posted to the workers: upload `received`, asset and original `processing`, one
-- `process_upload` job, and the workers woken at commit. Never touches storage. (§5.2)
-- outcome: completed | already_received (repeats, also after it was verified) | expired | rejected | not_found (also
-- for another organization's). Every outcome but `completed` writes nothing. p_trace_context is a W3C traceparent or
-- NULL. Refuses with 23514 assets_admission_isolation, with 42501 tenant_context_missing.
CREATE OR REPLACE FUNCTION assets.complete_upload(p_upload_id uuid, p_trace_context varchar)
RETURNS TABLE (outcome varchar, asset_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_organization_id uuid;
    v_asset_id uuid;
    v_upload assets.uploads;
    v_outcome varchar;
BEGIN
    PERFORM identity.assert_tenant_context();
    PERFORM assets.assert_read_committed('assets_admission_isolation');
    v_organization_id := identity.current_organization_id();

    SELECT u.asset_id INTO v_asset_id FROM assets.uploads u
    WHERE u.id = p_upload_id AND u.organization_id = v_organization_id;
    IF v_asset_id IS NULL THEN
        RETURN QUERY SELECT 'not_found'::varchar, NULL::uuid;
        RETURN;
    END IF;
    -- Asset before upload: the lock order of every function here.
    PERFORM FROM assets.assets a WHERE a.id = v_asset_id FOR UPDATE;
    SELECT * INTO v_upload FROM assets.uploads u
    WHERE u.id = p_upload_id AND u.organization_id = v_organization_id FOR UPDATE;
    v_outcome := CASE
        WHEN v_upload.id IS NULL THEN 'not_found'
        WHEN v_upload.state IN ('received', 'verified') THEN 'already_received'
        WHEN v_upload.state = 'rejected' THEN 'rejected'
        WHEN v_upload.state = 'expired' OR v_upload.expires_at <= now() THEN 'expired'
        ELSE 'completed'
    END;
    IF v_outcome = 'completed' THEN
        UPDATE assets.uploads u SET state = 'received', received_at = now() WHERE u.id = p_upload_id;
        UPDATE assets.assets a SET status = 'processing' WHERE a.id = v_asset_id;
        UPDATE assets.asset_variants v SET status = 'processing'
        WHERE v.asset_id = v_asset_id AND v.variant_code = 'original';
        INSERT INTO assets.processing_jobs (id, organization_id, asset_id, job_kind, trace_context)
        VALUES (uuidv7(), v_organization_id, v_asset_id, 'process_upload', p_trace_context);
    END IF;
    RETURN QUERY SELECT v_outcome, v_upload.asset_id;
END $$;
