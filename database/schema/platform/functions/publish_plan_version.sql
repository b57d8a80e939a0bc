-- Operators: publishes the next version of a plan: everything of the active version (capabilities, limits and active
-- offerings with their visibility and target) plus p_capabilities, with p_limit_codes[i] set to p_limit_values[i]
-- (NULL: unlimited). The new number is the highest of the plan, drafts included, plus one; the active version retires.
-- Organizations stay on the version they have. Returns the number of the active version; when that already has all
-- that was asked for, it publishes nothing: idempotent. Refuses an unknown plan (23514, plan_unknown), arrays of
-- different length (23514, plan_limits_shape) and unknown codes (23503).
CREATE OR REPLACE FUNCTION platform.publish_plan_version(
    p_plan_code varchar, p_capabilities varchar[] DEFAULT '{}',
    p_limit_codes varchar[] DEFAULT '{}', p_limit_values bigint[] DEFAULT '{}')
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_plan_id uuid;
    v_current_id uuid;
    v_current_number integer;
    v_new_id uuid;
    v_new_number integer;
BEGIN
    IF cardinality(p_limit_codes) <> cardinality(p_limit_values) THEN
        RAISE EXCEPTION 'as many limit values as limit codes'
            USING ERRCODE = '23514', CONSTRAINT = 'plan_limits_shape';
    END IF;
    SELECT id INTO v_plan_id FROM platform.plans WHERE code = p_plan_code FOR UPDATE;
    IF v_plan_id IS NULL THEN
        RAISE EXCEPTION 'no plan %', p_plan_code USING ERRCODE = '23514', CONSTRAINT = 'plan_unknown';
    END IF;
    SELECT id, version_number INTO v_current_id, v_current_number FROM platform.plan_versions
    WHERE plan_id = v_plan_id AND status = 'active';
    IF v_current_id IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM unnest(p_capabilities) AS asked (code)
            WHERE NOT EXISTS (SELECT FROM platform.plan_version_capabilities c
                WHERE c.plan_version_id = v_current_id AND c.capability_code = asked.code))
        AND NOT EXISTS (
            SELECT FROM unnest(p_limit_codes, p_limit_values) AS asked (code, amount)
            WHERE NOT EXISTS (SELECT FROM platform.plan_version_limits l
                WHERE l.plan_version_id = v_current_id AND l.limit_code = asked.code
                    AND l.limit_value IS NOT DISTINCT FROM asked.amount))
    THEN
        RETURN v_current_number;
    END IF;

    SELECT coalesce(max(version_number), 0) + 1 INTO v_new_number FROM platform.plan_versions
    WHERE plan_id = v_plan_id;
    INSERT INTO platform.plan_versions (plan_id, version_number) VALUES (v_plan_id, v_new_number)
    RETURNING id INTO v_new_id;
    INSERT INTO platform.plan_version_capabilities (plan_version_id, capability_code)
    SELECT v_new_id, c.capability_code FROM platform.plan_version_capabilities c
    WHERE c.plan_version_id = v_current_id
    UNION
    SELECT v_new_id, asked.code FROM unnest(p_capabilities) AS asked (code);
    INSERT INTO platform.plan_version_limits (plan_version_id, limit_code, limit_value)
    SELECT v_new_id, asked.code, asked.amount FROM unnest(p_limit_codes, p_limit_values) AS asked (code, amount);
    INSERT INTO platform.plan_version_limits (plan_version_id, limit_code, limit_value)
    SELECT v_new_id, l.limit_code, l.limit_value FROM platform.plan_version_limits l
    WHERE l.plan_version_id = v_current_id AND l.limit_code <> ALL (p_limit_codes);
    INSERT INTO platform.offerings (plan_version_id, market_code, currency_code, interval_code, amount_minor,
        trial_days, visibility, target_organization_id)
    SELECT v_new_id, o.market_code, o.currency_code, o.interval_code, o.amount_minor, o.trial_days, o.visibility,
        o.target_organization_id
    FROM platform.offerings o WHERE o.plan_version_id = v_current_id AND o.status = 'active';
    UPDATE platform.plan_versions SET status = 'retired', retired_at = now() WHERE id = v_current_id;
    UPDATE platform.plan_versions SET status = 'active', published_at = now() WHERE id = v_new_id;
    RETURN v_new_number;
END $$;
