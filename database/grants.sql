-- Every grant there is, applied from nothing each time: what is not written here, nobody may do. The owner
-- (ninaku_migrator) needs none. The roles are made by `ninaku db create`.
REVOKE ALL ON ALL TABLES IN SCHEMA organization, identity, platform, audit, assets
    FROM PUBLIC, ninaku_runtime, ninaku_worker, ninaku_catalog, ninaku_service_caller, ninaku_queue_reader;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA organization, identity, platform, audit, assets
    FROM PUBLIC, ninaku_runtime, ninaku_worker, ninaku_catalog, ninaku_service_caller, ninaku_queue_reader;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA organization, identity, platform, audit, assets
    FROM PUBLIC, ninaku_runtime, ninaku_worker, ninaku_catalog, ninaku_service_caller, ninaku_queue_reader;
REVOKE ALL ON SCHEMA organization, identity, platform, audit, assets
    FROM PUBLIC, ninaku_runtime, ninaku_worker, ninaku_catalog, ninaku_service_caller, ninaku_queue_reader;

-- Services on behalf of a user.
GRANT USAGE ON SCHEMA identity, audit, assets TO ninaku_runtime;
GRANT SELECT ON assets.assets, assets.asset_variants, assets.storage_providers, assets.uploads,
    assets.organization_usage TO ninaku_runtime;
GRANT EXECUTE ON FUNCTION
    identity.open_tenant_context(bytea, uuid, varchar, varchar, varchar, varchar),
    identity.assert_tenant_context(),
    identity.has_active_tenant_context(),
    identity.current_organization_id(),
    identity.current_membership_id(),
    identity.current_actor_id(),
    audit.record_denial(bytea, uuid, varchar, varchar, varchar, uuid, varchar, varchar, varchar),
    assets.profile_rendition_codes(smallint),
    assets.reserve_upload(uuid, uuid, uuid, varchar, varchar, varchar, bigint, varchar, varchar, varchar, uuid, text,
        timestamptz, varchar[]),
    assets.complete_upload(uuid, varchar),
    assets.archive_asset(uuid),
    assets.restore_asset(uuid),
    assets.rename_asset(uuid, varchar),
    assets.read_asset(bytea, uuid, uuid),
    assets.asset_in_context(uuid)
TO ninaku_runtime;

-- Services called by other services.
GRANT USAGE ON SCHEMA assets TO ninaku_service_caller;
GRANT EXECUTE ON FUNCTION assets.describe_assets(varchar, uuid, uuid, uuid[]) TO ninaku_service_caller;

-- The processing worker: functions only, by job and lease; no table, no tenant context.
GRANT USAGE ON SCHEMA assets TO ninaku_worker;
GRANT EXECUTE ON FUNCTION
    assets.claim_processing_job(varchar, uuid, integer, varchar[]),
    assets.record_processing_outcome(uuid, uuid, varchar, varchar, timestamptz, varchar[], varchar[], bigint[],
        bytea[], integer[], integer[], uuid[], uuid[], varchar[], varchar[]),
    assets.release_processing_job(uuid, uuid),
    assets.expire_uploads(integer, uuid[]),
    assets.reconcile_usage_batch(uuid, integer),
    assets.begin_sweep(varchar),
    assets.continue_sweep(varchar),
    assets.purge_asset_begin(uuid, uuid),
    assets.purge_asset_finish(uuid, uuid),
    assets.lease_standing(uuid, uuid, uuid),
    assets.enqueue_purge_candidates(integer),
    assets.prune_finished_jobs(integer),
    assets.prune_settled_uploads(integer),
    assets.next_job_at(varchar[])
TO ninaku_worker;

-- The processing service: shows the queue and changes nothing.
GRANT USAGE ON SCHEMA assets TO ninaku_queue_reader;
GRANT EXECUTE ON FUNCTION
    assets.queue_state(),
    assets.list_dead_letters(varchar, timestamptz, uuid, integer)
TO ninaku_queue_reader;
