-- Begins the purge of an asset under the lease of its `purge_asset` job. (§16) outcome:
--   deletable   the asset is `purging` from now on, its rows untouched; the caller deletes the objects, purges the CDN
--               and calls assets.purge_asset_finish. A repeat (a retry, a reclaimed job) answers the same again;
--   referenced  something still uses the asset: the job is completed, nothing else changes;
--   abandoned   the asset is neither archived nor failed any more: the job is completed, nothing else changes.
-- object_keys and provider_codes are the objects that have rows, place by place; an attempt that died may have left
-- others under the same token. staging_object_key is NULL once the upload was pruned. public_rendition_names are the
-- names of the profile for a public asset, else none.
-- Refuses with 23514: assets_processing_isolation, assets_job_lease_lost, assets_outcome_job_kind.
CREATE OR REPLACE FUNCTION assets.purge_asset_begin(p_job_id uuid, p_lease_token uuid)
RETURNS TABLE (outcome varchar, object_keys varchar[], provider_codes varchar[], staging_provider_code varchar,
    staging_object_key varchar, public_rendition_names varchar[], delivery_token varchar, rendition_profile smallint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_job assets.processing_jobs;
    v_asset assets.assets;
    v_outcome varchar;
    v_names varchar[];
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    SELECT j.* INTO v_job FROM assets.processing_jobs j WHERE j.id = p_job_id;
    IF v_job.job_kind <> 'purge_asset' THEN
        RAISE EXCEPTION 'this job purges nothing' USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_job_kind';
    END IF;
    SELECT a.* INTO v_asset FROM assets.assets a WHERE a.id = v_job.asset_id FOR UPDATE;
    PERFORM FROM assets.processing_jobs j
    WHERE j.id = p_job_id AND j.state = 'leased' AND j.lease_token = p_lease_token
        AND j.lease_expires_at > clock_timestamp()  -- waiting for the asset may have used the lease up
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease is lost' USING ERRCODE = '23514', CONSTRAINT = 'assets_job_lease_lost';
    END IF;

    v_outcome := CASE
        WHEN v_asset.status = 'purging' THEN 'deletable'
        WHEN v_asset.status <> 'failed' AND NOT (v_asset.status = 'ready' AND v_asset.archived_at IS NOT NULL)
            THEN 'abandoned'
        WHEN assets.asset_is_referenced(v_asset.id) THEN 'referenced'
        ELSE 'deletable'
    END;
    IF v_outcome <> 'deletable' THEN
        UPDATE assets.processing_jobs j
        SET state = 'completed', completed_at = now(), lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,
            last_error_code = CASE v_outcome WHEN 'referenced' THEN 'assets.asset_referenced'
                ELSE 'assets.job_abandoned' END,
            updated_at = now()
        WHERE j.id = p_job_id;
        RETURN QUERY SELECT v_outcome, NULL::varchar[], NULL::varchar[], NULL::varchar, NULL::varchar,
            NULL::varchar[], v_asset.delivery_token, v_asset.rendition_profile;
        RETURN;
    END IF;
    UPDATE assets.assets a SET status = 'purging' WHERE a.id = v_asset.id AND a.status <> 'purging';

    IF v_asset.access_class = 'public' THEN
        SELECT array_agg(regexp_replace(listed.code, '^p[0-9]+-', '') ORDER BY listed.place)::varchar[] INTO v_names
        FROM unnest(assets.profile_rendition_codes(v_asset.rendition_profile)) WITH ORDINALITY AS listed (code, place);
    END IF;
    RETURN QUERY
    SELECT v_outcome, stored.object_keys, stored.provider_codes, p.code, u.staging_object_key,
        coalesce(v_names, '{}'::varchar[]), v_asset.delivery_token, v_asset.rendition_profile
    FROM (
        SELECT coalesce(array_agg(o.object_key::varchar ORDER BY o.object_key, o.id), '{}') AS object_keys,
            coalesce(array_agg(op.code ORDER BY o.object_key, o.id), '{}') AS provider_codes
        FROM assets.asset_variants v
        JOIN assets.storage_objects o ON o.variant_id = v.id
        JOIN assets.storage_providers op ON op.id = o.provider_id
        WHERE v.asset_id = v_asset.id) AS stored
    LEFT JOIN assets.uploads u ON u.asset_id = v_asset.id
    LEFT JOIN assets.storage_providers p ON p.id = u.staging_provider_id;
END $$;
