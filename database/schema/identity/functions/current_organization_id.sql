-- The organization of the verified tenant context; NULL without one.
CREATE OR REPLACE FUNCTION identity.current_organization_id() RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT c.organization_id FROM identity.tenant_context() c $$;
