-- Trigger: audit records are never changed, deleted or truncated (23514, audit_records_append_only), not even by the
-- owner.
CREATE OR REPLACE FUNCTION audit.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'audit records are append-only'
        USING ERRCODE = '23514', CONSTRAINT = 'audit_records_append_only';
END $$;
