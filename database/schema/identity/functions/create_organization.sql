-- Operators: creates an organization and, unless p_plan_code is NULL, subscribes it to the active version of that
-- plan. Not idempotent: two organizations may share a name. Refuses an unknown plan (23514, plan_unknown).
CREATE OR REPLACE FUNCTION identity.create_organization(p_name varchar, p_plan_code varchar DEFAULT 'pionero')
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_organization_id uuid;
BEGIN
    INSERT INTO organization.organizations (name) VALUES (p_name) RETURNING id INTO v_organization_id;
    IF p_plan_code IS NOT NULL THEN
        PERFORM platform.move_subscription(v_organization_id, p_plan_code);
    END IF;
    RETURN v_organization_id;
END $$;
