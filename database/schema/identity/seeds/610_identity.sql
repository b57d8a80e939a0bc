-- The permissions and the system roles that hold them. A role held for one business unit gives nothing
-- organization-wide, so the same `manager` role serves both kinds of manager.
INSERT INTO identity.permissions (code, name, description) VALUES
    ('assets.media.manage', 'Manage images and files',
        'Request uploads, complete them, rename, archive and restore; checked organization-wide'),
    ('assets.media.view', 'View images and files', 'Read the media library; checked organization-wide'),
    ('catalog.items.manage', 'Manage catalog items', 'Create and change catalog items and their images'),
    ('catalog.items.view', 'View catalog items', 'Read the catalog and what is for sale')
ON CONFLICT (code) DO UPDATE SET name = EXCLUDED.name, description = EXCLUDED.description
    WHERE (permissions.name, permissions.description) IS DISTINCT FROM (EXCLUDED.name, EXCLUDED.description);

INSERT INTO identity.roles (organization_id, code, name) VALUES
    (NULL, 'organization_owner', 'Owner'),
    (NULL, 'manager', 'Manager'),
    (NULL, 'cashier', 'Cashier'),
    (NULL, 'waiter', 'Waiter')
ON CONFLICT ON CONSTRAINT roles_code_uq DO NOTHING;

INSERT INTO identity.role_permissions (role_id, permission_code)
SELECT r.id, granted.permission_code
FROM (VALUES
    ('organization_owner', 'assets.media.manage'), ('organization_owner', 'assets.media.view'),
    ('organization_owner', 'catalog.items.manage'), ('organization_owner', 'catalog.items.view'),
    ('manager', 'assets.media.manage'), ('manager', 'assets.media.view'),
    ('manager', 'catalog.items.manage'), ('manager', 'catalog.items.view'),
    ('cashier', 'catalog.items.view'),
    ('waiter', 'catalog.items.view')
) AS granted (role_code, permission_code)
JOIN identity.roles r ON r.code = granted.role_code AND r.organization_id IS NULL
ON CONFLICT DO NOTHING;

-- 244 random bits; made once and never shown.
INSERT INTO identity.tenant_context_secret (secret)
VALUES (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())))
ON CONFLICT DO NOTHING;
