-- Whether this transaction has a verified tenant context.
CREATE OR REPLACE FUNCTION identity.has_active_tenant_context() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT c.organization_id IS NOT NULL FROM identity.tenant_context() c $$;
