-- Whether a membership holds a permission organization-wide: a role held for one business unit does not count.
-- Internal: no grant.
CREATE OR REPLACE FUNCTION identity.holds_permission(p_membership_id uuid, p_permission varchar) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (
        SELECT FROM identity.membership_roles mr
        JOIN identity.role_permissions rp ON rp.role_id = mr.role_id
        WHERE mr.membership_id = p_membership_id
            AND mr.business_unit_id IS NULL
            AND rp.permission_code = p_permission
    )
$$;
