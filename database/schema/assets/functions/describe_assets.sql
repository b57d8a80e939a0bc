-- What a service needs to show assets of the organization it acts for, many at once, in one statement. The service
-- was authenticated by its token; the membership inside it must be active here and now.
-- outcome: found, one row per asset of that organization (unknown and foreign ids give no row), in the order asked
-- for; or a single context_rejected row of NULLs. width and height (pixels) are the master's. Needs no tenant context.
CREATE OR REPLACE FUNCTION assets.describe_assets(
    p_service varchar, p_organization_id uuid, p_membership_id uuid, p_asset_ids uuid[])
RETURNS TABLE (outcome varchar, asset_id uuid, status varchar, access_class varchar, media_kind varchar,
    source_kind varchar, delivery_token varchar, rendition_profile smallint, width integer, height integer,
    archived_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF p_service IS NULL OR NOT EXISTS (
        SELECT FROM identity.memberships m
        JOIN organization.organizations o ON o.id = m.organization_id AND o.status = 'active'
        JOIN identity.users u ON u.id = m.user_id AND u.status = 'active'
        WHERE m.id = p_membership_id AND m.organization_id = p_organization_id AND m.status = 'active')
    THEN
        RETURN QUERY SELECT 'context_rejected'::varchar, NULL::uuid, NULL::varchar, NULL::varchar, NULL::varchar,
            NULL::varchar, NULL::varchar, NULL::smallint, NULL::integer, NULL::integer, NULL::timestamptz;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'found'::varchar, a.id, a.status, a.access_class, a.media_kind, a.source_kind, a.delivery_token,
        a.rendition_profile, v.width, v.height, a.archived_at
    FROM (SELECT listed.id, min(listed.place) AS place
        FROM unnest(p_asset_ids) WITH ORDINALITY AS listed (id, place) GROUP BY listed.id) AS asked
    JOIN assets.assets a ON a.id = asked.id AND a.organization_id = p_organization_id
    LEFT JOIN assets.asset_variants v
        ON v.asset_id = a.id AND v.variant_code = 'original' AND v.status = 'ready'
    ORDER BY asked.place;
END $$;
