-- Operators: makes the user of an e-mail address a member with a role, organization-wide or for one business unit.
-- Creates user and actor when the address is new; revives an ended membership; repeating it changes nothing.
-- Refuses an unknown role (23514, role_unknown), an unknown organization (23503) and a foreign business unit (23503).
CREATE OR REPLACE FUNCTION identity.add_member(
    p_organization_id uuid, p_email varchar, p_display_name varchar, p_role_code varchar,
    p_business_unit_id uuid DEFAULT NULL)
RETURNS TABLE (membership_id uuid, user_id uuid, actor_id uuid, created boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_role_id uuid;
    v_user_id uuid;
    v_actor_id uuid;
    v_membership_id uuid;
    v_created boolean := false;
BEGIN
    SELECT r.id INTO v_role_id FROM identity.roles r
    WHERE r.code = p_role_code AND (r.organization_id IS NULL OR r.organization_id = p_organization_id)
    ORDER BY r.organization_id NULLS LAST LIMIT 1;
    IF v_role_id IS NULL THEN
        RAISE EXCEPTION 'no role % for this organization', p_role_code
            USING ERRCODE = '23514', CONSTRAINT = 'role_unknown';
    END IF;
    -- Two calls for one new address: the second waits here and then finds the first one's user.
    PERFORM pg_advisory_xact_lock(hashtextextended('identity.users:' || lower(p_email), 0));
    SELECT u.id, u.actor_id INTO v_user_id, v_actor_id FROM identity.users u WHERE lower(u.email) = lower(p_email);
    IF v_user_id IS NULL THEN
        INSERT INTO identity.actors (kind, display_name) VALUES ('human', p_display_name) RETURNING id INTO v_actor_id;
        INSERT INTO identity.users (actor_id, email) VALUES (v_actor_id, p_email) RETURNING id INTO v_user_id;
    END IF;
    SELECT m.id INTO v_membership_id FROM identity.memberships m
    WHERE m.user_id = v_user_id AND m.organization_id = p_organization_id;
    IF v_membership_id IS NULL THEN
        INSERT INTO identity.memberships (organization_id, user_id) VALUES (p_organization_id, v_user_id)
        RETURNING id INTO v_membership_id;
        v_created := true;
    ELSE
        UPDATE identity.memberships SET status = 'active' WHERE id = v_membership_id AND status <> 'active';
    END IF;
    INSERT INTO identity.membership_roles (organization_id, membership_id, role_id, business_unit_id)
    VALUES (p_organization_id, v_membership_id, v_role_id, p_business_unit_id)
    ON CONFLICT ON CONSTRAINT membership_roles_once_uq DO NOTHING;
    RETURN QUERY SELECT v_membership_id, v_user_id, v_actor_id, v_created;
END $$;
