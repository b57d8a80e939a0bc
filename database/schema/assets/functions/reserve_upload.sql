-- Reserves one upload: asset, original variant, upload row, a slot of the asset limit and the declared bytes, with
-- its audit record. The organization and the creator come from the tenant context alone. (§5.2)
-- Idempotent by (organization, p_idempotency_key): `existing` returns the upload of that key and the asset as they are
-- now, and the caller compares request_hash; `in_progress` means another transaction holds the key; else `created`.
-- Refuses with 23514: assets_admission_isolation, assets_access_class_unavailable (not in p_allowed_access_classes),
-- assets_asset_limit, assets_storage_limit, assets_open_uploads_limit (20 open), and the tables' own constraints;
-- with 42501 tenant_context_missing.
CREATE OR REPLACE FUNCTION assets.reserve_upload(
    p_asset_id uuid, p_original_variant_id uuid, p_upload_id uuid,
    p_delivery_token varchar, p_staging_token varchar, p_media_type varchar, p_byte_size bigint,
    p_access_class varchar, p_display_name varchar, p_original_filename varchar,
    p_idempotency_key uuid, p_request_hash text, p_expires_at timestamptz, p_allowed_access_classes varchar[])
RETURNS TABLE (outcome varchar, asset_id uuid, upload_id uuid, upload_state varchar, request_hash text,
    staging_object_key varchar, expires_at timestamptz, status varchar, access_class varchar, media_kind varchar,
    source_kind varchar, display_name varchar, created_at timestamptz, upload_media_type varchar,
    upload_byte_size bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_context record;
    v_usage assets.organization_usage;
    v_limit bigint;
    v_outcome varchar := 'existing';
    v_provider_id uuid;
BEGIN
    PERFORM identity.assert_tenant_context();
    PERFORM assets.assert_read_committed('assets_admission_isolation');
    v_context := identity.tenant_context();

    IF NOT pg_try_advisory_xact_lock(
        hashtextextended('assets.uploads:' || v_context.organization_id || ':' || p_idempotency_key, 0))
    THEN
        RETURN QUERY SELECT 'in_progress'::varchar, NULL::uuid, NULL::uuid, NULL::varchar, NULL::text, NULL::varchar,
            NULL::timestamptz, NULL::varchar, NULL::varchar, NULL::varchar, NULL::varchar, NULL::varchar,
            NULL::timestamptz, NULL::varchar, NULL::bigint;
        RETURN;
    END IF;

    SELECT * INTO STRICT v_usage FROM assets.organization_usage u
    WHERE u.organization_id = v_context.organization_id FOR UPDATE;

    IF NOT EXISTS (SELECT FROM assets.uploads u
        WHERE u.organization_id = v_context.organization_id AND u.creation_idempotency_key = p_idempotency_key)
    THEN
        -- Closed when nothing is known: no list, or a hole in it, allows nothing.
        IF (p_access_class = ANY (p_allowed_access_classes)) IS NOT TRUE THEN
            RAISE EXCEPTION 'this access class is not available'
                USING ERRCODE = '23514', CONSTRAINT = 'assets_access_class_unavailable';
        END IF;
        v_limit := platform.effective_limit(v_context.organization_id, 'assets.active_assets');
        IF v_usage.active_asset_count + 1 > v_limit THEN
            RAISE EXCEPTION 'the plan allows % assets', v_limit
                USING ERRCODE = '23514', CONSTRAINT = 'assets_asset_limit';
        END IF;
        v_limit := platform.effective_limit(v_context.organization_id, 'assets.stored_megabytes');
        IF v_usage.stored_bytes + v_usage.reserved_bytes + p_byte_size > v_limit * 1048576 THEN
            RAISE EXCEPTION 'the plan allows % MiB', v_limit
                USING ERRCODE = '23514', CONSTRAINT = 'assets_storage_limit';
        END IF;
        IF (SELECT count(*) FROM assets.uploads u WHERE u.organization_id = v_context.organization_id
            AND u.state IN ('issued', 'received')) >= 20
        THEN
            RAISE EXCEPTION 'an organization may have 20 open uploads'
                USING ERRCODE = '23514', CONSTRAINT = 'assets_open_uploads_limit';
        END IF;
        SELECT p.id INTO STRICT v_provider_id FROM assets.storage_providers p WHERE p.code = 's3-private';

        INSERT INTO assets.assets (id, organization_id, access_class, display_name, original_filename,
            delivery_token, created_by_membership_id)
        VALUES (p_asset_id, v_context.organization_id, p_access_class, p_display_name, p_original_filename,
            p_delivery_token, v_context.membership_id);
        INSERT INTO assets.asset_variants (id, organization_id, asset_id, variant_code)
        VALUES (p_original_variant_id, v_context.organization_id, p_asset_id, 'original');
        INSERT INTO assets.uploads (id, organization_id, asset_id, staging_provider_id, staging_object_key,
            declared_media_type, declared_byte_size, expires_at, creation_idempotency_key, creation_request_hash)
        VALUES (p_upload_id, v_context.organization_id, p_asset_id, v_provider_id, 'in/' || p_staging_token,
            p_media_type, p_byte_size, p_expires_at, p_idempotency_key, p_request_hash);
        UPDATE assets.organization_usage u
        SET active_asset_count = u.active_asset_count + 1, reserved_bytes = u.reserved_bytes + p_byte_size,
            updated_at = now()
        WHERE u.organization_id = v_context.organization_id;
        PERFORM audit.append('assets.asset.upload_requested', 'assets.asset', p_asset_id, NULL,
            jsonb_build_object('mediaType', p_media_type, 'byteSize', p_byte_size, 'accessClass', p_access_class));
        v_outcome := 'created';
    END IF;

    RETURN QUERY
    SELECT v_outcome, a.id, u.id, u.state, u.creation_request_hash, u.staging_object_key, u.expires_at, a.status,
        a.access_class, a.media_kind, a.source_kind, a.display_name, a.created_at, u.declared_media_type,
        u.declared_byte_size
    FROM assets.uploads u JOIN assets.assets a ON a.id = u.asset_id
    WHERE u.organization_id = v_context.organization_id AND u.creation_idempotency_key = p_idempotency_key;
END $$;
