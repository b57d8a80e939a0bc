-- What a plan can switch on.
CREATE TABLE platform.capabilities (
    code  varchar(80) PRIMARY KEY,
    name  varchar(120) NOT NULL,
    CONSTRAINT capabilities_code_chk CHECK (code ~ '^[a-z_]+(\.[a-z_]+)+$')
);

-- What a plan can bound. `reset_period` says when a counted use starts over.
CREATE TABLE platform.limit_definitions (
    code          varchar(80) PRIMARY KEY,
    name          varchar(120) NOT NULL,
    unit_code     varchar(40) NOT NULL,
    reset_period  varchar(20) NOT NULL,
    value_kind    varchar(20) NOT NULL DEFAULT 'integer',
    CONSTRAINT limit_definitions_code_chk CHECK (code ~ '^[a-z_]+(\.[a-z_]+)+$'),
    CONSTRAINT limit_definitions_reset_period_chk CHECK (reset_period IN ('none', 'month')),
    CONSTRAINT limit_definitions_value_kind_chk CHECK (value_kind IN ('integer'))
);

CREATE TABLE platform.plans (
    id    uuid PRIMARY KEY DEFAULT uuidv7(),
    code  varchar(80) NOT NULL,
    name  varchar(120) NOT NULL,
    CONSTRAINT plans_code_uq UNIQUE (code),
    CONSTRAINT plans_code_chk CHECK (code ~ '^[a-z][a-z0-9_]*$')
);

-- A published version never changes: what an organization bought stays what it bought.
CREATE TABLE platform.plan_versions (
    id              uuid PRIMARY KEY DEFAULT uuidv7(),
    plan_id         uuid NOT NULL REFERENCES platform.plans (id),
    version_number  integer NOT NULL,
    status          varchar(20) NOT NULL DEFAULT 'draft',
    published_at    timestamptz,
    retired_at      timestamptz,
    CONSTRAINT plan_versions_number_uq UNIQUE (plan_id, version_number),
    CONSTRAINT plan_versions_number_chk CHECK (version_number > 0),
    CONSTRAINT plan_versions_status_chk CHECK (status IN ('draft', 'active', 'retired')),
    CONSTRAINT plan_versions_status_shape_chk CHECK (
        (status = 'draft' AND published_at IS NULL AND retired_at IS NULL)
        OR (status = 'active' AND published_at IS NOT NULL AND retired_at IS NULL)
        OR (status = 'retired' AND published_at IS NOT NULL AND retired_at IS NOT NULL)
    )
);
CREATE UNIQUE INDEX plan_versions_one_active_uq ON platform.plan_versions (plan_id) WHERE status = 'active';

CREATE TABLE platform.plan_version_capabilities (
    plan_version_id  uuid NOT NULL REFERENCES platform.plan_versions (id),
    capability_code  varchar(80) NOT NULL REFERENCES platform.capabilities (code),
    PRIMARY KEY (plan_version_id, capability_code)
);

-- No row, or a row without a value, is no ceiling.
CREATE TABLE platform.plan_version_limits (
    plan_version_id  uuid NOT NULL REFERENCES platform.plan_versions (id),
    limit_code       varchar(80) NOT NULL REFERENCES platform.limit_definitions (code),
    limit_value      bigint,
    PRIMARY KEY (plan_version_id, limit_code),
    CONSTRAINT plan_version_limits_value_chk CHECK (limit_value >= 0)
);

-- At what price a version is sold, and to whom: to everybody, or to one organization.
CREATE TABLE platform.offerings (
    id                      uuid PRIMARY KEY DEFAULT uuidv7(),
    plan_version_id         uuid NOT NULL REFERENCES platform.plan_versions (id),
    market_code             varchar(10) NOT NULL,
    currency_code           char(3) NOT NULL,
    interval_code           varchar(20) NOT NULL,
    amount_minor            bigint NOT NULL,
    trial_days              integer NOT NULL DEFAULT 0,
    visibility              varchar(20) NOT NULL DEFAULT 'public',
    target_organization_id  uuid REFERENCES organization.organizations (id),
    status                  varchar(20) NOT NULL DEFAULT 'active',
    CONSTRAINT offerings_once_uq UNIQUE NULLS NOT DISTINCT
        (plan_version_id, market_code, currency_code, interval_code, target_organization_id),
    CONSTRAINT offerings_interval_chk CHECK (interval_code IN ('month', 'year')),
    CONSTRAINT offerings_amount_chk CHECK (amount_minor >= 0),
    CONSTRAINT offerings_trial_chk CHECK (trial_days >= 0),
    CONSTRAINT offerings_status_chk CHECK (status IN ('active', 'retired')),
    CONSTRAINT offerings_visibility_chk CHECK (visibility IN ('public', 'private')),
    CONSTRAINT offerings_target_chk CHECK (target_organization_id IS NULL OR visibility = 'private')
);

-- The plan version an organization has. A subscription lapses when `ends_at` passes: capabilities go, what exists
-- stays readable, and the limits of the version keep counting. A subscription that was moved is `replaced`.
CREATE TABLE platform.subscriptions (
    id               uuid PRIMARY KEY DEFAULT uuidv7(),
    organization_id  uuid NOT NULL REFERENCES organization.organizations (id),
    plan_version_id  uuid NOT NULL REFERENCES platform.plan_versions (id),
    started_at       timestamptz NOT NULL DEFAULT now(),
    ends_at          timestamptz,
    replaced_at      timestamptz,
    CONSTRAINT subscriptions_end_chk CHECK (ends_at IS NULL OR ends_at >= started_at)
);
CREATE UNIQUE INDEX subscriptions_one_current_uq ON platform.subscriptions (organization_id)
    WHERE replaced_at IS NULL;
