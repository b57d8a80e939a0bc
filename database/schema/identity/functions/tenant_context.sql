-- The verified tenant context of this transaction, or NULLs: none was opened, or its seal does not match.
-- Internal: the granted functions below expose single values of it.
CREATE OR REPLACE FUNCTION identity.tenant_context(
    OUT organization_id uuid, OUT membership_id uuid, OUT actor_id uuid, OUT user_id uuid,
    OUT permission varchar, OUT service varchar, OUT request_id varchar)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_setting text := current_setting('ninaku.tenant_context', true);
    v_values jsonb;
BEGIN
    IF v_setting IS NULL OR length(v_setting) <= 64
        OR left(v_setting, 64) <> identity.seal_tenant_context(substr(v_setting, 65))
    THEN
        RETURN;
    END IF;
    v_values := substr(v_setting, 65)::jsonb;
    organization_id := (v_values ->> 0)::uuid;
    membership_id := (v_values ->> 1)::uuid;
    actor_id := (v_values ->> 2)::uuid;
    user_id := (v_values ->> 3)::uuid;
    permission := v_values ->> 4;
    service := v_values ->> 5;
    request_id := v_values ->> 6;
END $$;
