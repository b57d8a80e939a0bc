INSERT INTO audit.resource_kinds (code, owner_module, sensitivity, description) VALUES
    ('assets.asset', 'assets', 'internal', 'A file of the tenant Organization: an image and its renditions')
ON CONFLICT (code) DO NOTHING;

-- The changes that are recorded, and the two things that are recorded only when they are refused. The last three
-- changes are made by operators and workers, for no member of the organization.
INSERT INTO audit.action_types (code, owner_module, category, scope, risk, actor_requirement, requires_reason,
    requires_target, requires_authorization_decision, allows_before_after, retention_class) VALUES
    ('assets.asset.upload_requested', 'assets', 'configuration', 'tenant', 'medium', 'required', false, true, true, true,
        'administration.platform'),
    ('assets.asset.renamed', 'assets', 'configuration', 'tenant', 'medium', 'required', false, true, true, true,
        'administration.platform'),
    ('assets.asset.archived', 'assets', 'configuration', 'tenant', 'medium', 'required', false, true, true, true,
        'administration.platform'),
    ('assets.asset.restored', 'assets', 'configuration', 'tenant', 'medium', 'required', false, true, true, true,
        'administration.platform'),
    ('assets.asset.erasure_requested', 'assets', 'configuration', 'platform', 'high', 'optional', false, true, false, true,
        'administration.platform'),
    ('assets.asset.requeued', 'assets', 'configuration', 'platform', 'medium', 'optional', false, true, false, true,
        'administration.platform'),
    ('assets.asset.purged', 'assets', 'configuration', 'platform', 'high', 'optional', false, true, false, true,
        'administration.platform'),
    ('assets.asset.upload_completed', 'assets', 'access', 'tenant', 'low', 'required', false, false, true, false,
        'administration.platform'),
    ('assets.asset.viewed', 'assets', 'access', 'tenant', 'low', 'required', false, false, true, false,
        'administration.platform')
ON CONFLICT (code) DO NOTHING;
