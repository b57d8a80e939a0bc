-- Trigger: gives every new organization its usage row. Runs as the owner, whoever creates the organization.
CREATE OR REPLACE FUNCTION assets.create_organization_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO assets.organization_usage (organization_id) VALUES (NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
