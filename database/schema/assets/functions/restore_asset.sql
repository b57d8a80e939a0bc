-- Takes an asset out of the archive within 30 days and occupies a slot of the asset limit again. (§15) Returns
-- restored | not_archived | not_found (also for another organization's). The audit record is part of the write.
-- Refuses with 23514: assets_admission_isolation, assets_status_transition (purging or failed),
-- assets_restoration_expired, assets_asset_limit; with 42501 tenant_context_missing.
CREATE OR REPLACE FUNCTION assets.restore_asset(p_asset_id uuid) RETURNS varchar
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_organization_id uuid;
    v_active_count integer;
    v_asset assets.assets;
BEGIN
    PERFORM identity.assert_tenant_context();
    PERFORM assets.assert_read_committed('assets_admission_isolation');
    v_organization_id := identity.current_organization_id();
    SELECT active_asset_count INTO STRICT v_active_count FROM assets.organization_usage
    WHERE organization_id = v_organization_id FOR UPDATE;
    SELECT * INTO v_asset FROM assets.assets
    WHERE id = p_asset_id AND organization_id = v_organization_id FOR UPDATE;
    IF v_asset.id IS NULL THEN
        RETURN 'not_found';
    END IF;
    IF v_asset.status = 'purging' THEN
        RAISE EXCEPTION 'the asset is being deleted'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_status_transition';
    END IF;
    IF v_asset.archived_at IS NULL THEN
        RETURN 'not_archived';
    END IF;
    IF v_asset.status = 'failed' THEN
        RAISE EXCEPTION 'a failed asset cannot be restored'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_status_transition';
    END IF;
    IF v_asset.archived_at <= now() - interval '30 days' THEN
        RAISE EXCEPTION 'an asset can be restored for 30 days'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_restoration_expired';
    END IF;
    IF v_active_count + 1 > platform.effective_limit(v_organization_id, 'assets.active_assets') THEN
        RAISE EXCEPTION 'the plan allows no further asset'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_asset_limit';
    END IF;
    UPDATE assets.assets SET archived_at = NULL WHERE id = p_asset_id;
    UPDATE assets.organization_usage SET active_asset_count = active_asset_count + 1, updated_at = now()
    WHERE organization_id = v_organization_id;
    PERFORM audit.append('assets.asset.restored', 'assets.asset', p_asset_id, NULL, NULL);
    RETURN 'restored';
END $$;
