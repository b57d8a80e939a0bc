-- Archives an asset and frees its slot of the asset limit. (§15) Returns archived | already_archived | not_found (also
-- for another organization's); repeating it changes nothing. The audit record is part of the write.
-- Refuses with 23514: assets_admission_isolation, assets_status_transition (purging); with 42501
-- tenant_context_missing.
CREATE OR REPLACE FUNCTION assets.archive_asset(p_asset_id uuid) RETURNS varchar
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_organization_id uuid;
    v_asset assets.assets;
BEGIN
    PERFORM identity.assert_tenant_context();
    PERFORM assets.assert_read_committed('assets_admission_isolation');
    v_organization_id := identity.current_organization_id();
    PERFORM FROM assets.organization_usage WHERE organization_id = v_organization_id FOR UPDATE;
    SELECT * INTO v_asset FROM assets.assets
    WHERE id = p_asset_id AND organization_id = v_organization_id FOR UPDATE;
    IF v_asset.id IS NULL THEN
        RETURN 'not_found';
    END IF;
    IF v_asset.status = 'purging' THEN
        RAISE EXCEPTION 'the asset is being deleted'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_status_transition';
    END IF;
    IF v_asset.archived_at IS NOT NULL THEN
        RETURN 'already_archived';
    END IF;
    UPDATE assets.assets SET archived_at = now() WHERE id = p_asset_id;
    UPDATE assets.organization_usage SET active_asset_count = active_asset_count - 1, updated_at = now()
    WHERE organization_id = v_organization_id AND assets.counts_as_active_asset(v_asset.status, NULL);
    PERFORM audit.append('assets.asset.archived', 'assets.asset', p_asset_id, NULL, NULL);
    RETURN 'archived';
END $$;
