-- Whether anything still refers to an asset (a claim, or a consumer's own foreign key): its rows are deleted and the
-- deletion is taken back. Internal: the caller holds the asset locked, so no claim can arrive meanwhile.
CREATE OR REPLACE FUNCTION assets.asset_is_referenced(p_asset_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    BEGIN
        PERFORM assets.delete_asset_rows(p_asset_id);
        RAISE EXCEPTION 'taken back' USING ERRCODE = 'NK001';
    EXCEPTION
        WHEN foreign_key_violation THEN
            RETURN true;
        WHEN SQLSTATE 'NK001' THEN
            RETURN false;
    END;
END $$;
