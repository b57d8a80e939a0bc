-- Operators: every plan version, newest first within its plan, with what it grants and how many organizations have
-- it. `limits` is a JSON object of limit code to value, null meaning unlimited.
CREATE OR REPLACE FUNCTION platform.list_plans()
RETURNS TABLE (plan_code varchar, plan_name varchar, version_number integer, status varchar,
    capabilities varchar[], limits jsonb, subscriptions bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.code, p.name, v.version_number, v.status,
        ARRAY(SELECT c.capability_code FROM platform.plan_version_capabilities c
            WHERE c.plan_version_id = v.id ORDER BY c.capability_code),
        coalesce((SELECT jsonb_object_agg(l.limit_code, l.limit_value) FROM platform.plan_version_limits l
            WHERE l.plan_version_id = v.id), '{}'),
        (SELECT count(*) FROM platform.subscriptions s
            WHERE s.plan_version_id = v.id AND s.replaced_at IS NULL)
    FROM platform.plans p JOIN platform.plan_versions v ON v.plan_id = p.id
    ORDER BY p.code, v.version_number DESC
$$;
