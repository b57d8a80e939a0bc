-- Tenants. Every tenant row elsewhere names its organization.
CREATE TABLE organization.organizations (
    id          uuid PRIMARY KEY DEFAULT uuidv7(),
    name        varchar(255) NOT NULL,
    status      varchar(20) NOT NULL DEFAULT 'active',
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT organizations_name_chk CHECK (length(name) BETWEEN 1 AND 255 AND name !~ '[[:cntrl:]]'),
    CONSTRAINT organizations_status_chk CHECK (status IN ('active', 'suspended'))
);

-- Outlets of an organization: a role may be held for one of them only.
CREATE TABLE organization.business_units (
    id               uuid PRIMARY KEY DEFAULT uuidv7(),
    organization_id  uuid NOT NULL REFERENCES organization.organizations (id),
    name             varchar(255) NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT business_units_id_organization_uq UNIQUE (id, organization_id),
    CONSTRAINT business_units_name_uq UNIQUE (organization_id, name),
    CONSTRAINT business_units_name_chk CHECK (length(name) BETWEEN 1 AND 255 AND name !~ '[[:cntrl:]]')
);
