-- Operators: ends a membership and takes its roles; its sessions keep working in other organizations. Returns whether
-- it was active. Idempotent.
CREATE OR REPLACE FUNCTION identity.end_membership(p_membership_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_ended boolean;
BEGIN
    UPDATE identity.memberships SET status = 'ended' WHERE id = p_membership_id AND status = 'active';
    v_ended := FOUND;
    DELETE FROM identity.membership_roles WHERE membership_id = p_membership_id;
    RETURN v_ended;
END $$;
