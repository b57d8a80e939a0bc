-- Records that a consumer uses an asset in one of its records, so that no purge removes it. (DESIGN D1) Locks the asset
-- for share: a purge that began first is seen, one that begins later meets the claim. Returns recorded, or why not:
-- not_found (also for another organization's) | purging | archived | not_ready. A repeat keeps one row with the highest
-- revision; a higher one than before is unsettled again. Internal so far: no grant.
-- Refuses with 23514: assets_usage_isolation and the table's own constraints.
CREATE OR REPLACE FUNCTION assets.record_claim(
    p_consumer varchar, p_organization_id uuid, p_reference varchar, p_revision bigint, p_asset_id uuid)
RETURNS varchar LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_asset assets.assets;
BEGIN
    PERFORM assets.assert_read_committed('assets_usage_isolation');
    SELECT * INTO v_asset FROM assets.assets
    WHERE id = p_asset_id AND organization_id = p_organization_id FOR SHARE;
    IF v_asset.id IS NULL THEN
        RETURN 'not_found';
    ELSIF v_asset.status = 'purging' THEN
        RETURN 'purging';
    ELSIF v_asset.archived_at IS NOT NULL THEN
        RETURN 'archived';
    ELSIF v_asset.status <> 'ready' THEN
        RETURN 'not_ready';
    END IF;
    INSERT INTO assets.asset_claims AS c (organization_id, consumer, reference, asset_id, revision)
    VALUES (p_organization_id, p_consumer, p_reference, p_asset_id, p_revision)
    ON CONFLICT ON CONSTRAINT asset_claims_pk DO UPDATE
    SET revision = greatest(c.revision, excluded.revision),
        unsettled_since = CASE WHEN excluded.revision > c.revision THEN coalesce(c.unsettled_since, now())
            ELSE c.unsettled_since END;
    RETURN 'recorded';
END $$;
