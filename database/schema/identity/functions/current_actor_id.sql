-- The actor of the verified tenant context; NULL without one.
CREATE OR REPLACE FUNCTION identity.current_actor_id() RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT c.actor_id FROM identity.tenant_context() c $$;
