-- Where bytes can live. `configuration_ref` names the group of settings that reaches the provider.
CREATE TABLE assets.storage_providers (
    id                 uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    code               varchar(80) NOT NULL,
    name               varchar(120) NOT NULL,
    adapter_code       varchar(40) NOT NULL,
    configuration_ref  varchar(80) NOT NULL,
    status             varchar(20) NOT NULL DEFAULT 'active',
    created_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT storage_providers_code_chk CHECK (code ~ '^[a-z0-9]+(-[a-z0-9]+)*$'),
    CONSTRAINT storage_providers_adapter_chk CHECK (adapter_code IN ('s3', 'cloudflare_r2')),
    CONSTRAINT storage_providers_status_chk CHECK (status IN ('active', 'retired'))
);
CREATE UNIQUE INDEX storage_providers_code_uq ON assets.storage_providers (lower(code));

CREATE TABLE assets.assets (
    id                        uuid PRIMARY KEY,
    organization_id           uuid NOT NULL REFERENCES organization.organizations (id),
    status                    varchar(20) NOT NULL DEFAULT 'pending',
    access_class              varchar(20) NOT NULL,
    media_kind                varchar(20) NOT NULL DEFAULT 'image',
    source_kind               varchar(20) NOT NULL DEFAULT 'upload',
    display_name              varchar(255),
    original_filename         varchar(255),
    delivery_token            varchar(26) NOT NULL,
    rendition_profile         smallint NOT NULL DEFAULT 1,
    created_by_membership_id  uuid,
    created_at                timestamptz NOT NULL DEFAULT now(),
    ready_at                  timestamptz,
    failed_at                 timestamptz,
    failure_code              varchar(80),
    archived_at               timestamptz,
    CONSTRAINT assets_id_organization_uq UNIQUE (id, organization_id),
    CONSTRAINT assets_status_chk CHECK (status IN ('pending', 'processing', 'ready', 'failed', 'purging')),
    CONSTRAINT assets_status_state_chk CHECK (
        (status IN ('pending', 'processing') AND ready_at IS NULL AND failed_at IS NULL AND failure_code IS NULL)
        OR (status = 'ready' AND ready_at IS NOT NULL AND ready_at >= created_at
            AND failed_at IS NULL AND failure_code IS NULL)
        OR (status = 'failed' AND failed_at IS NOT NULL AND failed_at >= created_at
            AND ready_at IS NULL AND failure_code IS NOT NULL)
        OR (status = 'purging')
    ),
    CONSTRAINT assets_failure_code_chk
        CHECK (failure_code IS NULL OR failure_code ~ '^[a-z][a-z0-9_.]{0,79}$'),
    CONSTRAINT assets_access_class_chk CHECK (access_class IN ('public', 'private', 'sensitive')),
    CONSTRAINT assets_media_kind_chk CHECK (media_kind IN ('image')),
    CONSTRAINT assets_source_kind_chk CHECK (source_kind IN ('upload', 'ai_generated')),
    CONSTRAINT assets_delivery_token_chk CHECK (delivery_token ~ '^[a-z2-7]{26}$'),
    CONSTRAINT assets_delivery_token_uq UNIQUE (delivery_token),
    CONSTRAINT assets_rendition_profile_chk CHECK (rendition_profile > 0),
    CONSTRAINT assets_display_name_chk
        CHECK (length(display_name) BETWEEN 1 AND 255 AND display_name !~ '[[:cntrl:]]'),
    CONSTRAINT assets_original_filename_chk
        CHECK (length(original_filename) BETWEEN 1 AND 255 AND original_filename !~ '[[:cntrl:]]'),
    CONSTRAINT assets_archived_chk CHECK (archived_at >= created_at),
    CONSTRAINT assets_created_by_membership_fk FOREIGN KEY (created_by_membership_id, organization_id)
        REFERENCES identity.memberships (id, organization_id)
);
-- Library pages, newest first: the living and the archived apart, each in keyset order.
CREATE INDEX assets_organization_active_idx
    ON assets.assets (organization_id, created_at DESC, id DESC) WHERE archived_at IS NULL;
CREATE INDEX assets_organization_archived_idx
    ON assets.assets (organization_id, created_at DESC, id DESC) WHERE archived_at IS NOT NULL;
-- What may be purged one day, oldest first (assets.enqueue_purge_candidates).
CREATE INDEX assets_archived_age_idx ON assets.assets (archived_at, id)
    WHERE status = 'ready' AND archived_at IS NOT NULL;
CREATE INDEX assets_failed_age_idx ON assets.assets (failed_at, id) WHERE status = 'failed';

-- A master ('original') or a rendition of an asset, with the facts of its bytes once they are stored.
CREATE TABLE assets.asset_variants (
    id               uuid PRIMARY KEY,
    organization_id  uuid NOT NULL,
    asset_id         uuid NOT NULL,
    variant_code     varchar(40) NOT NULL,
    status           varchar(20) NOT NULL DEFAULT 'pending',
    media_type       varchar(255),
    byte_size        bigint,
    checksum_sha256  bytea,
    width            integer,
    height           integer,
    created_at       timestamptz NOT NULL DEFAULT now(),
    ready_at         timestamptz,
    failed_at        timestamptz,
    failure_code     varchar(80),
    CONSTRAINT asset_variants_asset_organization_fk FOREIGN KEY (asset_id, organization_id)
        REFERENCES assets.assets (id, organization_id),
    CONSTRAINT asset_variants_id_organization_uq UNIQUE (id, organization_id),
    CONSTRAINT asset_variants_code_uq UNIQUE (asset_id, variant_code),
    CONSTRAINT asset_variants_code_chk CHECK (variant_code ~ '^(original|p[1-9][0-9]*-[a-z]+)$'),
    CONSTRAINT asset_variants_status_chk CHECK (status IN ('pending', 'processing', 'ready', 'failed')),
    CONSTRAINT asset_variants_state_chk CHECK (
        (status IN ('pending', 'processing') AND ready_at IS NULL AND failed_at IS NULL)
        OR (status = 'ready' AND ready_at IS NOT NULL AND failed_at IS NULL AND media_type IS NOT NULL
            AND byte_size IS NOT NULL AND checksum_sha256 IS NOT NULL AND width IS NOT NULL AND height IS NOT NULL)
        OR (status = 'failed' AND failed_at IS NOT NULL AND ready_at IS NULL)
    ),
    CONSTRAINT asset_variants_failure_code_chk CHECK ((status = 'failed') = (failure_code IS NOT NULL)),
    CONSTRAINT asset_variants_byte_size_chk CHECK (byte_size > 0),
    CONSTRAINT asset_variants_checksum_chk CHECK (length(checksum_sha256) = 32),
    CONSTRAINT asset_variants_size_chk CHECK (width > 0 AND height > 0)
);

-- Where the bytes of a variant lie. A key is never reused.
CREATE TABLE assets.storage_objects (
    id               uuid PRIMARY KEY,
    organization_id  uuid NOT NULL,
    variant_id       uuid NOT NULL,
    provider_id      uuid NOT NULL REFERENCES assets.storage_providers (id),
    object_key       varchar(1024) COLLATE "C" NOT NULL,  -- ordered as object storage lists
    status           varchar(20) NOT NULL DEFAULT 'available',
    is_primary       boolean NOT NULL DEFAULT true,
    available_at     timestamptz,
    verified_at      timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT storage_objects_variant_organization_fk FOREIGN KEY (variant_id, organization_id)
        REFERENCES assets.asset_variants (id, organization_id),
    CONSTRAINT storage_objects_key_uq UNIQUE (provider_id, object_key),
    CONSTRAINT storage_objects_key_chk CHECK (object_key ~ '^[a-z0-9][a-z0-9._/-]*$'),
    CONSTRAINT storage_objects_status_chk CHECK (status IN ('available', 'missing')),
    CONSTRAINT storage_objects_available_chk CHECK (status <> 'available' OR available_at IS NOT NULL)
);
CREATE UNIQUE INDEX storage_objects_one_primary_uq ON assets.storage_objects (variant_id) WHERE is_primary;
CREATE INDEX storage_objects_variant_idx ON assets.storage_objects (variant_id);

-- A consumer's recorded use of an asset: `reference` is the consumer's own name for its record. While a row is here,
-- the asset is not purged: the foreign key stops it. A repeat raises `revision`; a claim is settled when its consumer
-- has confirmed that the record of that revision holds the asset, and until then `unsettled_since` says since when it
-- has not.
CREATE TABLE assets.asset_claims (
    organization_id  uuid NOT NULL,
    consumer         varchar(80) NOT NULL,
    reference        varchar(200) NOT NULL,
    asset_id         uuid NOT NULL,
    revision         bigint NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    unsettled_since  timestamptz DEFAULT now(),
    CONSTRAINT asset_claims_pk PRIMARY KEY (organization_id, consumer, reference, asset_id),
    CONSTRAINT asset_claims_asset_organization_fk FOREIGN KEY (asset_id, organization_id)
        REFERENCES assets.assets (id, organization_id),
    CONSTRAINT asset_claims_consumer_chk CHECK (consumer ~ '^[a-z][a-z0-9_-]*$'),
    CONSTRAINT asset_claims_reference_chk CHECK (reference ~ '^[!-~]+$'),
    CONSTRAINT asset_claims_revision_chk CHECK (revision > 0),
    CONSTRAINT asset_claims_unsettled_chk CHECK (unsettled_since >= created_at)
);
CREATE INDEX asset_claims_asset_idx ON assets.asset_claims (asset_id);
CREATE INDEX asset_claims_unsettled_idx ON assets.asset_claims (consumer, unsettled_since)
    WHERE unsettled_since IS NOT NULL;

-- What a purge removed: every object, every row, counted. It stays for good, so that an id, a delivery token and with
-- it a path is never used again (assets.refuse_purged_asset), and holds nothing that describes the picture or its
-- owner's words for it.
CREATE TABLE assets.purge_receipts (
    asset_id           uuid PRIMARY KEY,
    organization_id    uuid NOT NULL REFERENCES organization.organizations (id),
    delivery_token     varchar(26) NOT NULL,
    access_class       varchar(20) NOT NULL,
    rendition_profile  smallint NOT NULL,
    provider_codes     varchar(80)[] NOT NULL,
    object_keys        varchar(1024)[] NOT NULL,
    staging_key        varchar(1024),
    stored_bytes       bigint NOT NULL,
    removed_rows       jsonb NOT NULL,
    purged_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT purge_receipts_delivery_token_uq UNIQUE (delivery_token),
    CONSTRAINT purge_receipts_objects_chk CHECK (cardinality(provider_codes) = cardinality(object_keys)),
    CONSTRAINT purge_receipts_stored_bytes_chk CHECK (stored_bytes >= 0)
);

-- One admission of bytes: what was declared, where the browser may put it, and what came of it.
CREATE TABLE assets.uploads (
    id                        uuid PRIMARY KEY,
    organization_id           uuid NOT NULL,
    asset_id                  uuid NOT NULL,
    staging_provider_id       uuid NOT NULL REFERENCES assets.storage_providers (id),
    staging_object_key        varchar(1024) NOT NULL,
    declared_media_type       varchar(255) NOT NULL,
    declared_byte_size        bigint NOT NULL,
    state                     varchar(20) NOT NULL DEFAULT 'issued',
    expires_at                timestamptz NOT NULL,
    received_at               timestamptz,
    settled_at                timestamptz,
    rejection_code            varchar(80),
    creation_idempotency_key  uuid NOT NULL,
    creation_request_hash     text NOT NULL,
    created_at                timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uploads_asset_organization_fk FOREIGN KEY (asset_id, organization_id)
        REFERENCES assets.assets (id, organization_id),
    CONSTRAINT uploads_asset_uq UNIQUE (asset_id),
    CONSTRAINT uploads_id_organization_uq UNIQUE (id, organization_id),
    CONSTRAINT uploads_staging_key_uq UNIQUE (staging_provider_id, staging_object_key),
    CONSTRAINT uploads_idempotency_uq UNIQUE (organization_id, creation_idempotency_key),
    CONSTRAINT uploads_staging_key_chk CHECK (staging_object_key ~ '^in/[a-z2-7]{26}$'),
    CONSTRAINT uploads_media_type_chk
        CHECK (declared_media_type IN ('image/jpeg', 'image/png', 'image/webp', 'image/avif')),
    CONSTRAINT uploads_byte_size_chk CHECK (declared_byte_size BETWEEN 1 AND 10485760),
    CONSTRAINT uploads_request_hash_chk CHECK (creation_request_hash ~ '^[0-9a-f]{64}$'),
    CONSTRAINT uploads_state_chk CHECK (state IN ('issued', 'received', 'verified', 'rejected', 'expired')),
    CONSTRAINT uploads_state_shape_chk CHECK (
        (state = 'issued' AND received_at IS NULL AND settled_at IS NULL AND rejection_code IS NULL)
        OR (state = 'received' AND received_at IS NOT NULL AND settled_at IS NULL AND rejection_code IS NULL)
        OR (state = 'verified' AND received_at IS NOT NULL AND settled_at IS NOT NULL AND rejection_code IS NULL)
        OR (state = 'rejected' AND settled_at IS NOT NULL AND rejection_code IS NOT NULL)
        OR (state = 'expired' AND received_at IS NULL AND settled_at IS NOT NULL AND rejection_code IS NULL)
    ),
    CONSTRAINT uploads_expiry_chk CHECK (expires_at > created_at)
);
CREATE INDEX uploads_open_expiry_idx ON assets.uploads (expires_at) WHERE state IN ('issued', 'received');
CREATE INDEX uploads_organization_open_idx ON assets.uploads (organization_id)
    WHERE state IN ('issued', 'received');
CREATE INDEX uploads_settled_idx ON assets.uploads (settled_at, id) WHERE settled_at IS NOT NULL;

-- One piece of work on an asset. `attempt_count` counts every retry; `processing_error_count` counts processing
-- errors alone and decides the dead letter. `queue_rank` is the place in the line of its kind (see
-- assets.next_queue_rank): NULL while a job waits out a delay, 0 for a job that goes before all others of its kind.
-- A settled job is not updated any more: `updated_at` of a dead letter is when it was given up.
CREATE TABLE assets.processing_jobs (
    id                      uuid PRIMARY KEY,
    organization_id         uuid NOT NULL,
    asset_id                uuid NOT NULL,
    job_kind                varchar(40) NOT NULL,
    state                   varchar(20) NOT NULL DEFAULT 'pending',
    available_at            timestamptz NOT NULL DEFAULT now(),
    queue_rank              bigint,
    lease_owner             varchar(200),
    lease_token             uuid,
    lease_expires_at        timestamptz,
    attempt_count           integer NOT NULL DEFAULT 0,
    processing_error_count  integer NOT NULL DEFAULT 0,
    error_class             varchar(20),
    last_error_code         varchar(80),
    trace_context           varchar(55),
    completed_at            timestamptz,
    created_at              timestamptz NOT NULL DEFAULT now(),
    updated_at              timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT processing_jobs_asset_organization_fk FOREIGN KEY (asset_id, organization_id)
        REFERENCES assets.assets (id, organization_id),
    CONSTRAINT processing_jobs_kind_chk CHECK (job_kind IN ('process_upload', 'render_profile', 'purge_asset')),
    CONSTRAINT processing_jobs_state_chk CHECK (state IN ('pending', 'leased', 'completed', 'dead_lettered')),
    CONSTRAINT processing_jobs_attempts_chk CHECK (attempt_count >= 0),
    CONSTRAINT processing_jobs_processing_errors_chk CHECK (processing_error_count >= 0),
    CONSTRAINT processing_jobs_error_class_chk
        CHECK (error_class IS NULL OR error_class IN ('storage', 'processing', 'permanent')),
    CONSTRAINT processing_jobs_trace_context_chk
        CHECK (trace_context ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'),
    CONSTRAINT processing_jobs_lease_shape_chk CHECK (
        (state = 'pending' AND lease_owner IS NULL AND lease_token IS NULL AND lease_expires_at IS NULL
            AND completed_at IS NULL)
        OR (state = 'leased' AND lease_owner IS NOT NULL AND lease_token IS NOT NULL
            AND lease_expires_at IS NOT NULL AND completed_at IS NULL)
        OR (state = 'completed' AND lease_owner IS NULL AND lease_token IS NULL AND lease_expires_at IS NULL
            AND completed_at IS NOT NULL)
        OR (state = 'dead_lettered' AND lease_owner IS NULL AND lease_token IS NULL AND lease_expires_at IS NULL
            AND completed_at IS NULL)
    )
);
-- The line itself, read from its head; finished, leased and delayed jobs are not in it.
CREATE INDEX processing_jobs_line_idx ON assets.processing_jobs (job_kind, queue_rank, available_at, id)
    WHERE state = 'pending' AND queue_rank IS NOT NULL;
CREATE INDEX processing_jobs_delayed_idx ON assets.processing_jobs (job_kind, available_at, id)
    WHERE state = 'pending' AND queue_rank IS NULL;
CREATE INDEX processing_jobs_lease_idx ON assets.processing_jobs (job_kind, lease_expires_at, id)
    WHERE state = 'leased';
-- The last place that a kind, and an organization in it, ever took: two probes for every job that lines up.
CREATE INDEX processing_jobs_kind_rank_idx ON assets.processing_jobs (job_kind, queue_rank)
    WHERE queue_rank IS NOT NULL;
CREATE INDEX processing_jobs_organization_rank_idx
    ON assets.processing_jobs (organization_id, job_kind, queue_rank) WHERE queue_rank IS NOT NULL;
CREATE UNIQUE INDEX processing_jobs_one_open_uq ON assets.processing_jobs (asset_id, job_kind)
    WHERE state IN ('pending', 'leased');
CREATE INDEX processing_jobs_asset_idx ON assets.processing_jobs (asset_id, job_kind);
CREATE INDEX processing_jobs_dead_letters_idx ON assets.processing_jobs (updated_at, id)
    WHERE state = 'dead_lettered';
CREATE INDEX processing_jobs_finished_idx ON assets.processing_jobs (completed_at, id) WHERE state = 'completed';
-- Every claim leaves a dead entry at the head of the line: clean early.
ALTER TABLE assets.processing_jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Counts the claims of all workers; assets.claim_processing_job lets an aged job pass at every fourth.
CREATE SEQUENCE assets.processing_claims_seq CACHE 1;

-- What an organization uses and has reserved. The row exists from the organization's first moment, is locked by
-- everything that counts, and is recomputed by assets.reconcile_usage_batch.
CREATE TABLE assets.organization_usage (
    organization_id     uuid PRIMARY KEY REFERENCES organization.organizations (id),
    active_asset_count  integer NOT NULL DEFAULT 0,
    stored_bytes        bigint NOT NULL DEFAULT 0,
    reserved_bytes      bigint NOT NULL DEFAULT 0,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT organization_usage_active_chk CHECK (active_asset_count >= 0),
    CONSTRAINT organization_usage_stored_chk CHECK (stored_bytes >= 0),
    CONSTRAINT organization_usage_reserved_chk CHECK (reserved_bytes >= 0)
);

-- When each sweep of the fleet is due next: whoever comes first moves the row on (assets.begin_sweep).
CREATE TABLE assets.sweeps (
    sweep_code   varchar(40) PRIMARY KEY,
    period       interval NOT NULL,
    day_offset   interval,
    next_due_at  timestamptz NOT NULL,
    begun_at     timestamptz,
    CONSTRAINT sweeps_period_chk CHECK (period > interval '0'),
    CONSTRAINT sweeps_day_offset_chk
        CHECK (day_offset IS NULL OR (day_offset >= interval '0' AND day_offset < interval '24 hours'))
);

-- Rules that a CHECK cannot say.
CREATE TRIGGER assets_refuse_purged BEFORE INSERT ON assets.assets
    FOR EACH ROW EXECUTE FUNCTION assets.refuse_purged_asset();
CREATE TRIGGER assets_guard_status BEFORE UPDATE OF status, archived_at ON assets.assets
    FOR EACH ROW EXECUTE FUNCTION assets.guard_asset_status();
CREATE TRIGGER assets_protect_access_class BEFORE UPDATE OF access_class ON assets.assets
    FOR EACH ROW EXECUTE FUNCTION assets.protect_access_class();
CREATE CONSTRAINT TRIGGER assets_ready_requires_renditions
    AFTER INSERT OR UPDATE ON assets.assets DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION assets.assert_ready_asset_renditions();
CREATE CONSTRAINT TRIGGER asset_variants_ready_requires_renditions
    AFTER INSERT OR UPDATE OR DELETE ON assets.asset_variants DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION assets.assert_ready_asset_renditions();
CREATE TRIGGER processing_jobs_line_up BEFORE INSERT ON assets.processing_jobs
    FOR EACH ROW EXECUTE FUNCTION assets.line_up_job();
CREATE TRIGGER processing_jobs_announce AFTER INSERT ON assets.processing_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION assets.announce_jobs();
CREATE TRIGGER organizations_create_usage AFTER INSERT ON organization.organizations
    FOR EACH ROW EXECUTE FUNCTION assets.create_organization_usage();

-- A tenant sees its own rows. Nothing but the owner's functions writes.
ALTER TABLE assets.assets ENABLE ROW LEVEL SECURITY;
CREATE POLICY assets_tenant_read ON assets.assets FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.asset_variants ENABLE ROW LEVEL SECURITY;
CREATE POLICY asset_variants_tenant_read ON assets.asset_variants FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.storage_objects ENABLE ROW LEVEL SECURITY;
CREATE POLICY storage_objects_tenant_read ON assets.storage_objects FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.uploads ENABLE ROW LEVEL SECURITY;
CREATE POLICY uploads_tenant_read ON assets.uploads FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.processing_jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY processing_jobs_tenant_read ON assets.processing_jobs FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.organization_usage ENABLE ROW LEVEL SECURITY;
CREATE POLICY organization_usage_tenant_read ON assets.organization_usage FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.asset_claims ENABLE ROW LEVEL SECURITY;
CREATE POLICY asset_claims_tenant_read ON assets.asset_claims FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
ALTER TABLE assets.purge_receipts ENABLE ROW LEVEL SECURITY;
CREATE POLICY purge_receipts_tenant_read ON assets.purge_receipts FOR SELECT USING (
    (SELECT identity.has_active_tenant_context())
    AND organization_id = (SELECT identity.current_organization_id())
);
