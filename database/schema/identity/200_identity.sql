-- Whoever acts: a human, a service of ours, an agent working for somebody, or the system itself.
CREATE TABLE identity.actors (
    id            uuid PRIMARY KEY DEFAULT uuidv7(),
    kind          varchar(20) NOT NULL,
    display_name  varchar(255) NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT actors_kind_chk CHECK (kind IN ('human', 'service', 'agent', 'system')),
    CONSTRAINT actors_display_name_chk
        CHECK (length(display_name) BETWEEN 1 AND 255 AND display_name !~ '[[:cntrl:]]')
);

CREATE TABLE identity.users (
    id          uuid PRIMARY KEY DEFAULT uuidv7(),
    actor_id    uuid NOT NULL REFERENCES identity.actors (id),
    email       varchar(320) NOT NULL,
    status      varchar(20) NOT NULL DEFAULT 'active',
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT users_actor_uq UNIQUE (actor_id),
    CONSTRAINT users_email_chk CHECK (email ~ '^[^[:space:][:cntrl:]@]+@[^[:space:][:cntrl:]@]+$'),
    CONSTRAINT users_status_chk CHECK (status IN ('active', 'disabled'))
);
CREATE UNIQUE INDEX users_email_uq ON identity.users (lower(email));

-- A session is known by the hash of its token alone: a copy of this table opens nothing.
-- It ends 12 hours after its last use and 30 days after its creation, or when revoked.
CREATE TABLE identity.sessions (
    id            uuid PRIMARY KEY DEFAULT uuidv7(),
    user_id       uuid NOT NULL REFERENCES identity.users (id),
    token_hash    bytea NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at    timestamptz,
    CONSTRAINT sessions_token_hash_uq UNIQUE (token_hash),
    CONSTRAINT sessions_token_hash_chk CHECK (length(token_hash) = 32),
    CONSTRAINT sessions_seen_chk CHECK (last_seen_at >= created_at)
);
CREATE INDEX sessions_user_idx ON identity.sessions (user_id, created_at DESC);

-- A user in an organization.
CREATE TABLE identity.memberships (
    id               uuid PRIMARY KEY DEFAULT uuidv7(),
    organization_id  uuid NOT NULL REFERENCES organization.organizations (id),
    user_id          uuid NOT NULL REFERENCES identity.users (id),
    status           varchar(20) NOT NULL DEFAULT 'active',
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT memberships_id_organization_uq UNIQUE (id, organization_id),
    CONSTRAINT memberships_user_organization_uq UNIQUE (user_id, organization_id),
    CONSTRAINT memberships_status_chk CHECK (status IN ('active', 'ended'))
);

CREATE TABLE identity.permissions (
    code         varchar(80) PRIMARY KEY,
    name         varchar(120) NOT NULL,
    description  varchar(500) NOT NULL,
    CONSTRAINT permissions_code_chk CHECK (code ~ '^[a-z_]+(\.[a-z_]+)+$')
);

-- A role without an organization is a system role, the same for all.
CREATE TABLE identity.roles (
    id               uuid PRIMARY KEY DEFAULT uuidv7(),
    organization_id  uuid REFERENCES organization.organizations (id),
    code             varchar(80) NOT NULL,
    name             varchar(120) NOT NULL,
    CONSTRAINT roles_code_uq UNIQUE NULLS NOT DISTINCT (organization_id, code),
    CONSTRAINT roles_code_chk CHECK (code ~ '^[a-z][a-z_]*$')
);

CREATE TABLE identity.role_permissions (
    role_id          uuid NOT NULL REFERENCES identity.roles (id),
    permission_code  varchar(80) NOT NULL REFERENCES identity.permissions (code),
    PRIMARY KEY (role_id, permission_code)
);

-- A role held organization-wide (no business unit) or for one business unit.
CREATE TABLE identity.membership_roles (
    id                uuid PRIMARY KEY DEFAULT uuidv7(),
    organization_id   uuid NOT NULL,
    membership_id     uuid NOT NULL,
    role_id           uuid NOT NULL REFERENCES identity.roles (id),
    business_unit_id  uuid,
    created_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT membership_roles_membership_fk FOREIGN KEY (membership_id, organization_id)
        REFERENCES identity.memberships (id, organization_id),
    CONSTRAINT membership_roles_business_unit_fk FOREIGN KEY (business_unit_id, organization_id)
        REFERENCES organization.business_units (id, organization_id),
    CONSTRAINT membership_roles_once_uq UNIQUE NULLS NOT DISTINCT (membership_id, role_id, business_unit_id)
);

-- The secret that seals a tenant context. No role but the owner of this table can read it; it never leaves the
-- database, and a new one (an UPDATE by the operator) only ends the transactions that are open at that moment.
CREATE TABLE identity.tenant_context_secret (
    only_row  boolean PRIMARY KEY DEFAULT true,
    secret    bytea NOT NULL,
    CONSTRAINT tenant_context_secret_only_row_chk CHECK (only_row),
    CONSTRAINT tenant_context_secret_length_chk CHECK (length(secret) = 32)
);
