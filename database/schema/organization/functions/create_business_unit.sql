-- Operators: creates a business unit, or returns the one of that name. Refuses an unknown organization (23503).
CREATE OR REPLACE FUNCTION organization.create_business_unit(p_organization_id uuid, p_name varchar) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_id uuid;
BEGIN
    INSERT INTO organization.business_units (organization_id, name) VALUES (p_organization_id, p_name)
    ON CONFLICT ON CONSTRAINT business_units_name_uq DO NOTHING RETURNING id INTO v_id;
    IF v_id IS NULL THEN
        SELECT id INTO v_id FROM organization.business_units
        WHERE organization_id = p_organization_id AND name = p_name;
    END IF;
    RETURN v_id;
END $$;
