CREATE TABLE audit.resource_kinds (
    code          varchar(80) PRIMARY KEY,
    owner_module  varchar(40) NOT NULL,
    sensitivity   varchar(20) NOT NULL,
    description   varchar(500) NOT NULL,
    CONSTRAINT resource_kinds_code_chk CHECK (code ~ '^[a-z_]+(\.[a-z_]+)+$'),
    CONSTRAINT resource_kinds_sensitivity_chk CHECK (sensitivity IN ('internal', 'personal', 'sensitive'))
);

CREATE TABLE audit.action_types (
    code                             varchar(80) PRIMARY KEY,
    owner_module                     varchar(40) NOT NULL,
    category                         varchar(40) NOT NULL,
    scope                            varchar(20) NOT NULL,
    risk                             varchar(20) NOT NULL,
    actor_requirement                varchar(20) NOT NULL,
    requires_reason                  boolean NOT NULL,
    requires_target                  boolean NOT NULL,
    requires_authorization_decision  boolean NOT NULL,
    allows_before_after              boolean NOT NULL,
    retention_class                  varchar(80) NOT NULL,
    CONSTRAINT action_types_code_chk CHECK (code ~ '^[a-z_]+(\.[a-z_]+)+$'),
    CONSTRAINT action_types_category_chk CHECK (category IN ('configuration', 'access')),
    CONSTRAINT action_types_scope_chk CHECK (scope IN ('tenant', 'platform')),
    CONSTRAINT action_types_risk_chk CHECK (risk IN ('low', 'medium', 'high')),
    CONSTRAINT action_types_actor_chk CHECK (actor_requirement IN ('required', 'optional'))
);

-- What was done or refused, by whom, to what. Append-only, for the owner too. A refusal outside any membership has
-- no organization: an outsider must not be able to write into a tenant's records.
CREATE TABLE audit.records (
    id                      uuid PRIMARY KEY DEFAULT uuidv7(),
    recorded_at             timestamptz NOT NULL DEFAULT now(),
    organization_id         uuid REFERENCES organization.organizations (id),
    actor_id                uuid REFERENCES identity.actors (id),
    service                 varchar(80) NOT NULL,
    action_code             varchar(80) NOT NULL REFERENCES audit.action_types (code),
    resource_kind           varchar(80) NOT NULL REFERENCES audit.resource_kinds (code),
    resource_id             uuid,
    outcome                 varchar(20) NOT NULL,
    authorization_decision  varchar(40),
    permission_code         varchar(80),
    before_attributes       jsonb,
    after_attributes        jsonb,
    request_id              varchar(128),
    CONSTRAINT records_outcome_chk CHECK (outcome IN ('succeeded', 'denied')),
    CONSTRAINT records_decision_chk
        CHECK (authorization_decision IN ('authorized', 'forbidden', 'not_entitled', 'context_rejected')),
    CONSTRAINT records_outcome_decision_chk
        CHECK (outcome = 'succeeded' OR authorization_decision <> 'authorized'),
    CONSTRAINT records_request_id_chk CHECK (request_id !~ '[[:cntrl:]]')
);
CREATE INDEX records_organization_idx ON audit.records (organization_id, recorded_at DESC, id DESC);
CREATE INDEX records_resource_idx ON audit.records (resource_id, recorded_at DESC) WHERE resource_id IS NOT NULL;

CREATE TRIGGER records_append_only BEFORE UPDATE OR DELETE ON audit.records
    FOR EACH ROW EXECUTE FUNCTION audit.refuse_change();
CREATE TRIGGER records_never_truncated BEFORE TRUNCATE ON audit.records
    FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();
