-- Operators: gives an organization a version of a plan (p_version_number NULL: the active one), open-ended. Returns
-- the subscription; when the organization has that version and it has not lapsed, the one it has: idempotent.
-- Refuses an unknown plan or a version that was never published (23514, plan_unknown).
CREATE OR REPLACE FUNCTION platform.move_subscription(
    p_organization_id uuid, p_plan_code varchar, p_version_number integer DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_version_id uuid;
    v_subscription_id uuid;
BEGIN
    SELECT v.id INTO v_version_id
    FROM platform.plan_versions v JOIN platform.plans p ON p.id = v.plan_id
    WHERE p.code = p_plan_code
        AND CASE WHEN p_version_number IS NULL THEN v.status = 'active'
            ELSE v.version_number = p_version_number AND v.status <> 'draft' END;
    IF v_version_id IS NULL THEN
        RAISE EXCEPTION 'no published version of plan %', p_plan_code
            USING ERRCODE = '23514', CONSTRAINT = 'plan_unknown';
    END IF;
    PERFORM FROM organization.organizations WHERE id = p_organization_id FOR NO KEY UPDATE;
    SELECT id INTO v_subscription_id FROM platform.subscriptions
    WHERE organization_id = p_organization_id AND replaced_at IS NULL AND plan_version_id = v_version_id
        AND (ends_at IS NULL OR ends_at > now());
    IF v_subscription_id IS NULL THEN
        UPDATE platform.subscriptions SET replaced_at = now()
        WHERE organization_id = p_organization_id AND replaced_at IS NULL;
        INSERT INTO platform.subscriptions (organization_id, plan_version_id)
        VALUES (p_organization_id, v_version_id) RETURNING id INTO v_subscription_id;
    END IF;
    RETURN v_subscription_id;
END $$;
