-- Operators: sets when an organization's current subscription lapses (NULL: open-ended again; a past time lapses it
-- now). Returns whether there is one. Idempotent.
CREATE OR REPLACE FUNCTION platform.end_subscription(p_organization_id uuid, p_ends_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE platform.subscriptions SET ends_at = CASE WHEN p_ends_at < started_at THEN started_at ELSE p_ends_at END
    WHERE organization_id = p_organization_id AND replaced_at IS NULL;
    RETURN FOUND;
END $$;
