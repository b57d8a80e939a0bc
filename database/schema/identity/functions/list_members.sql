-- Operators: the members of an organization, one row per role held (none: one row without a role).
CREATE OR REPLACE FUNCTION identity.list_members(p_organization_id uuid)
RETURNS TABLE (membership_id uuid, user_id uuid, email varchar, display_name varchar, status varchar,
    role_code varchar, business_unit_id uuid, business_unit_name varchar)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT m.id, u.id, u.email, a.display_name, m.status, r.code, b.id, b.name
    FROM identity.memberships m
    JOIN identity.users u ON u.id = m.user_id
    JOIN identity.actors a ON a.id = u.actor_id
    LEFT JOIN identity.membership_roles mr ON mr.membership_id = m.id
    LEFT JOIN identity.roles r ON r.id = mr.role_id
    LEFT JOIN organization.business_units b ON b.id = mr.business_unit_id
    WHERE m.organization_id = p_organization_id
    ORDER BY u.email, r.code, b.name
$$;
