-- The facts of a processed asset: updates the original, inserts the renditions, and one available primary object for
-- each. Refuses (23514, assets_outcome_shape) anything but exactly the original under its existing id and every
-- rendition of the profile under a new one, each complete and on an active provider. Internal: the caller holds the
-- locks; no grant.
CREATE OR REPLACE FUNCTION assets.store_variants(
    p_organization_id uuid, p_asset_id uuid, p_profile smallint, p_original_id uuid, p_variant_codes varchar[],
    p_media_types varchar[], p_byte_sizes bigint[], p_checksums bytea[], p_widths integer[], p_heights integer[],
    p_variant_ids uuid[], p_storage_object_ids uuid[], p_provider_codes varchar[], p_object_keys varchar[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_needed text[] := ARRAY['original'] || assets.profile_rendition_codes(p_profile);
    v_count integer := cardinality(v_needed);
    v_fits boolean;
BEGIN
    -- An unknown profile has no renditions: only the original would be needed, and nothing fits.
    v_fits := v_count > 1 AND (SELECT bool_and(length_ IS NOT DISTINCT FROM v_count) FROM unnest(ARRAY[
        cardinality(p_variant_codes), cardinality(p_media_types), cardinality(p_byte_sizes),
        cardinality(p_checksums), cardinality(p_widths), cardinality(p_heights), cardinality(p_variant_ids),
        cardinality(p_storage_object_ids), cardinality(p_provider_codes), cardinality(p_object_keys)]) AS l (length_));
    IF v_fits THEN
        v_fits := (
            SELECT array_agg(o.code ORDER BY o.code) = (SELECT array_agg(n.code ORDER BY n.code)
                    FROM unnest(v_needed) AS n (code))
                AND bool_and((o.media_type IS NOT NULL AND o.byte_size > 0 AND length(o.checksum) = 32
                    AND o.width > 0 AND o.height > 0 AND o.object_id IS NOT NULL AND o.object_key IS NOT NULL
                    AND p.id IS NOT NULL) IS TRUE)
                AND bool_and(CASE WHEN o.code = 'original' THEN o.variant_id IS NOT DISTINCT FROM p_original_id
                    ELSE o.variant_id IS NOT NULL AND v.id IS NULL END)
                AND count(DISTINCT o.variant_id) = v_count AND count(DISTINCT o.object_id) = v_count
            FROM unnest(p_variant_codes::text[], p_media_types, p_byte_sizes, p_checksums, p_widths, p_heights,
                p_variant_ids, p_storage_object_ids, p_provider_codes, p_object_keys)
                AS o (code, media_type, byte_size, checksum, width, height, variant_id, object_id, provider_code,
                    object_key)
            LEFT JOIN assets.storage_providers p ON p.code = o.provider_code AND p.status = 'active'
            LEFT JOIN assets.asset_variants v ON v.id = o.variant_id);
    END IF;
    IF v_fits IS NOT TRUE THEN
        RAISE EXCEPTION 'the outcome does not name the original and every rendition, complete'
            USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_shape';
    END IF;

    UPDATE assets.asset_variants v
    SET status = 'ready', ready_at = now(), media_type = o.media_type, byte_size = o.byte_size,
        checksum_sha256 = o.checksum, width = o.width, height = o.height
    FROM unnest(p_variant_codes, p_media_types, p_byte_sizes, p_checksums, p_widths, p_heights)
        AS o (code, media_type, byte_size, checksum, width, height)
    WHERE v.id = p_original_id AND o.code = 'original';
    INSERT INTO assets.asset_variants (id, organization_id, asset_id, variant_code, status, media_type, byte_size,
        checksum_sha256, width, height, ready_at)
    SELECT o.variant_id, p_organization_id, p_asset_id, o.code, 'ready', o.media_type, o.byte_size, o.checksum,
        o.width, o.height, now()
    FROM unnest(p_variant_ids, p_variant_codes, p_media_types, p_byte_sizes, p_checksums, p_widths, p_heights)
        AS o (variant_id, code, media_type, byte_size, checksum, width, height)
    WHERE o.code <> 'original';
    INSERT INTO assets.storage_objects (id, organization_id, variant_id, provider_id, object_key, status, is_primary,
        available_at, verified_at)
    SELECT o.object_id, p_organization_id, o.variant_id, p.id, o.object_key, 'available', true, now(), now()
    FROM unnest(p_storage_object_ids, p_variant_ids, p_provider_codes, p_object_keys)
        AS o (object_id, variant_id, provider_code, object_key)
    JOIN assets.storage_providers p ON p.code = o.provider_code;
END $$;
