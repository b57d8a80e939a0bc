-- Refuses (42501, constraint tenant_context_missing) a transaction without a verified tenant context.
CREATE OR REPLACE FUNCTION identity.assert_tenant_context() RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT identity.has_active_tenant_context() THEN
        RAISE EXCEPTION 'no tenant context is open in this transaction'
            USING ERRCODE = '42501', CONSTRAINT = 'tenant_context_missing';
    END IF;
END $$;
