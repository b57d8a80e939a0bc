-- Names an asset. (§15) Returns renamed | unchanged (the same name: nothing is written) | not_found (also for another
-- organization's). The audit record, with both names, is part of the write. Refuses an empty, overlong or
-- control-character name (23514, assets_display_name_chk); with 42501 tenant_context_missing.
CREATE OR REPLACE FUNCTION assets.rename_asset(p_asset_id uuid, p_display_name varchar) RETURNS varchar
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_organization_id uuid;
    v_asset assets.assets;
BEGIN
    PERFORM identity.assert_tenant_context();
    PERFORM assets.assert_read_committed('assets_admission_isolation');
    v_organization_id := identity.current_organization_id();
    SELECT * INTO v_asset FROM assets.assets
    WHERE id = p_asset_id AND organization_id = v_organization_id FOR UPDATE;
    IF v_asset.id IS NULL THEN
        RETURN 'not_found';
    END IF;
    IF v_asset.display_name IS NOT DISTINCT FROM p_display_name THEN
        RETURN 'unchanged';
    END IF;
    UPDATE assets.assets SET display_name = p_display_name WHERE id = p_asset_id;
    PERFORM audit.append('assets.asset.renamed', 'assets.asset', p_asset_id,
        jsonb_build_object('displayName', v_asset.display_name), jsonb_build_object('displayName', p_display_name));
    RETURN 'renamed';
END $$;
