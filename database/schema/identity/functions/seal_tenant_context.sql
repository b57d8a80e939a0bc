-- The seal of a tenant context: a MAC over the values, this backend and this transaction, with a secret that only the
-- owner can read. A context copied from another transaction or connection therefore does not verify.
-- Internal: whoever could call it could forge a context, so it has no grant.
CREATE OR REPLACE FUNCTION identity.seal_tenant_context(p_body text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_secret bytea;
BEGIN
    SELECT secret INTO STRICT v_secret FROM identity.tenant_context_secret;
    -- Hashed twice with the secret (as HMAC does), so that nothing can be appended to a known body.
    RETURN encode(sha256(v_secret || sha256(v_secret || convert_to(
        concat_ws('|', pg_backend_pid(), extract(epoch FROM transaction_timestamp()), p_body), 'UTF8'))), 'hex');
END $$;
