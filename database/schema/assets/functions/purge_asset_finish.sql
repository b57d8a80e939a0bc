-- Ends the purge of an asset whose objects and CDN copies are gone: deletes its storage objects, variants, upload,
-- every job (this one too) and the asset, takes its bytes from the organization's usage, and writes the receipt and the
-- audit record, in one transaction. (§16) Returns purged, or referenced_after_purge: a consumer's foreign key appeared
-- meanwhile; the asset stays `purging` and the job is dead-lettered with assets_asset_referenced_after_purge for an
-- operator to look at. The lease makes it happen once: a repeat finds it gone.
-- Refuses with 23514: assets_processing_isolation, assets_job_lease_lost, assets_outcome_job_kind,
-- assets_outcome_state (assets.purge_asset_begin did not answer deletable).
CREATE OR REPLACE FUNCTION assets.purge_asset_finish(p_job_id uuid, p_lease_token uuid) RETURNS varchar
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_job assets.processing_jobs;
    v_asset assets.assets;
    v_staging_key varchar;
    v_stored bigint;
    v_keys varchar[];
    v_providers varchar[];
    v_removed jsonb;
BEGIN
    PERFORM assets.assert_read_committed('assets_processing_isolation');
    SELECT * INTO v_job FROM assets.processing_jobs WHERE id = p_job_id;
    IF v_job.job_kind <> 'purge_asset' THEN
        RAISE EXCEPTION 'this job purges nothing' USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_job_kind';
    END IF;
    PERFORM FROM assets.organization_usage WHERE organization_id = v_job.organization_id FOR UPDATE;
    SELECT * INTO v_asset FROM assets.assets WHERE id = v_job.asset_id FOR UPDATE;
    SELECT staging_object_key INTO v_staging_key FROM assets.uploads WHERE asset_id = v_job.asset_id FOR UPDATE;
    PERFORM FROM assets.processing_jobs
    WHERE id = p_job_id AND state = 'leased' AND lease_token = p_lease_token
        AND lease_expires_at > clock_timestamp()  -- waiting for the locks may have used the lease up
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease is lost' USING ERRCODE = '23514', CONSTRAINT = 'assets_job_lease_lost';
    END IF;
    IF v_asset.status <> 'purging' THEN
        RAISE EXCEPTION 'the purge has not begun' USING ERRCODE = '23514', CONSTRAINT = 'assets_outcome_state';
    END IF;

    SELECT coalesce(array_agg(o.object_key::varchar ORDER BY o.object_key, o.id), '{}'),
        coalesce(array_agg(p.code ORDER BY o.object_key, o.id), '{}'),
        coalesce(sum(v.byte_size) FILTER (WHERE v.status = 'ready' AND o.is_primary AND o.status = 'available'), 0)
    INTO v_keys, v_providers, v_stored
    FROM assets.asset_variants v
    JOIN assets.storage_objects o ON o.variant_id = v.id
    JOIN assets.storage_providers p ON p.id = o.provider_id
    WHERE v.asset_id = v_asset.id;
    BEGIN
        v_removed := assets.delete_asset_rows(v_asset.id);
    EXCEPTION WHEN foreign_key_violation THEN
        UPDATE assets.processing_jobs
        SET state = 'dead_lettered', lease_owner = NULL, lease_token = NULL, lease_expires_at = NULL,
            error_class = 'permanent', last_error_code = 'assets_asset_referenced_after_purge', updated_at = now()
        WHERE id = p_job_id;
        RETURN 'referenced_after_purge';
    END;

    UPDATE assets.organization_usage SET stored_bytes = stored_bytes - v_stored, updated_at = now()
    WHERE organization_id = v_asset.organization_id AND stored_bytes >= v_stored;
    IF NOT FOUND THEN  -- the counter had drifted: counted anew, it is right
        PERFORM assets.recount_usage(v_asset.organization_id);
    END IF;
    INSERT INTO assets.purge_receipts (asset_id, organization_id, delivery_token, access_class, rendition_profile,
        provider_codes, object_keys, staging_key, stored_bytes, removed_rows)
    VALUES (v_asset.id, v_asset.organization_id, v_asset.delivery_token, v_asset.access_class,
        v_asset.rendition_profile, v_providers, v_keys, v_staging_key, v_stored, v_removed);
    PERFORM audit.append_operation(v_asset.organization_id, 'processing', 'assets.asset.purged', 'assets.asset',
        v_asset.id, jsonb_build_object('archivedAt', v_asset.archived_at, 'failureCode', v_asset.failure_code,
            'storedBytes', v_stored), NULL);
    RETURN 'purged';
END $$;
