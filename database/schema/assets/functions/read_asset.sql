-- One asset for one session, in one statement from session to row: authenticates, resolves the membership, checks
-- assets.media.view organization-wide and reads the asset with its master. (§9.2)
-- Always one row. outcome: found | not_found (also for another organization's) | unauthenticated | context_rejected |
-- forbidden. width, height and byte_size (pixels, bytes) are the master's: NULL until it is ready. Opens no tenant
-- context; writes only the session's last use, at most once a minute.
CREATE OR REPLACE FUNCTION assets.read_asset(p_token_hash bytea, p_organization_id uuid, p_asset_id uuid)
RETURNS TABLE (outcome varchar, id uuid, status varchar, access_class varchar, media_kind varchar,
    source_kind varchar, display_name varchar, original_filename varchar, width integer, height integer,
    byte_size bigint, created_at timestamptz, ready_at timestamptz, archived_at timestamptz, failure_code varchar,
    delivery_token varchar, rendition_profile smallint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_session_id uuid;
    v_stale boolean;
    v_membership_id uuid;
    v_may_view boolean;
    v_outcome varchar;
BEGIN
    SELECT s.id, s.last_seen_at < now() - interval '1 minute', m.id,
        EXISTS (
            SELECT FROM identity.membership_roles mr
            JOIN identity.role_permissions rp ON rp.role_id = mr.role_id
            WHERE mr.membership_id = m.id AND mr.business_unit_id IS NULL
                AND rp.permission_code = 'assets.media.view')
    INTO v_session_id, v_stale, v_membership_id, v_may_view
    FROM identity.sessions s
    JOIN identity.users u ON u.id = s.user_id AND u.status = 'active'
    LEFT JOIN (identity.memberships m
        JOIN organization.organizations o ON o.id = m.organization_id AND o.status = 'active')
        ON m.user_id = u.id AND m.organization_id = p_organization_id AND m.status = 'active'
    WHERE s.token_hash = p_token_hash
        AND identity.session_lives(s.created_at, s.last_seen_at, s.revoked_at);

    IF v_stale THEN
        PERFORM identity.touch_session(v_session_id);
    END IF;
    v_outcome := CASE
        WHEN v_session_id IS NULL THEN 'unauthenticated'
        WHEN v_membership_id IS NULL THEN 'context_rejected'
        WHEN NOT v_may_view THEN 'forbidden'
    END;
    IF v_outcome IS NULL THEN
        RETURN QUERY
        SELECT 'found'::varchar, a.id, a.status, a.access_class, a.media_kind, a.source_kind, a.display_name,
            a.original_filename, v.width, v.height, v.byte_size, a.created_at, a.ready_at, a.archived_at,
            a.failure_code, a.delivery_token, a.rendition_profile
        FROM assets.assets a
        LEFT JOIN assets.asset_variants v
            ON v.asset_id = a.id AND v.variant_code = 'original' AND v.status = 'ready'
        WHERE a.id = p_asset_id AND a.organization_id = p_organization_id;
        IF FOUND THEN
            RETURN;
        END IF;
        v_outcome := 'not_found';
    END IF;
    RETURN QUERY SELECT v_outcome, NULL::uuid, NULL::varchar, NULL::varchar, NULL::varchar, NULL::varchar,
        NULL::varchar, NULL::varchar, NULL::integer, NULL::integer, NULL::bigint, NULL::timestamptz,
        NULL::timestamptz, NULL::timestamptz, NULL::varchar, NULL::varchar, NULL::smallint;
END $$;
