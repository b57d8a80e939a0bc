-- Uploads and masters always lie in the private S3 bucket. Where public renditions lie is the deployment's choice,
-- made at installation (`ninaku.public_provider`): Cloudflare R2, or the S3 bucket itself.
INSERT INTO assets.storage_providers (code, name, adapter_code, configuration_ref)
SELECT wanted.code, wanted.name, wanted.adapter_code, wanted.configuration_ref
FROM (VALUES
    ('s3-private', 'Amazon S3 assets bucket', 's3', 'ASSETS_S3'),
    ('r2-public', 'Cloudflare R2 public renditions', 'cloudflare_r2', 'ASSETS_R2'),
    ('s3-public', 'Amazon S3 public renditions', 's3', 'ASSETS_S3')
) AS wanted (code, name, adapter_code, configuration_ref)
WHERE wanted.code IN ('s3-private', coalesce(nullif(current_setting('ninaku.public_provider', true), ''), 'r2-public'))
ON CONFLICT (lower(code)) DO NOTHING;

-- Every organization has its usage row; the trigger makes it for new ones.
INSERT INTO assets.organization_usage (organization_id) SELECT id FROM organization.organizations
ON CONFLICT DO NOTHING;

INSERT INTO assets.sweeps (sweep_code, period, day_offset, next_due_at) VALUES
    ('expire_uploads', interval '5 minutes', NULL, now()),
    ('reconcile_usage', interval '1 day', interval '3 hours',
        date_bin(interval '1 day', now(), timestamptz '2000-01-01 00:00:00+00') + interval '27 hours'),
    ('enqueue_purges', interval '1 day', interval '4 hours', now()),
    ('prune_finished_jobs', interval '1 day', interval '5 hours', now()),
    ('prune_settled_uploads', interval '1 day', interval '5 hours 30 minutes', now())
ON CONFLICT (sweep_code) DO NOTHING;
