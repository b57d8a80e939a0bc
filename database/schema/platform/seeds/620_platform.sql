INSERT INTO platform.capabilities (code, name) VALUES
    ('catalog.items', 'Catalog'),
    ('assets.media', 'Images and files'),
    ('assets.ai_generation', 'AI images')
ON CONFLICT (code) DO UPDATE SET name = EXCLUDED.name WHERE capabilities.name <> EXCLUDED.name;

INSERT INTO platform.limit_definitions (code, name, unit_code, reset_period, value_kind) VALUES
    ('assets.active_assets', 'Active assets', 'assets', 'none', 'integer'),
    ('assets.stored_megabytes', 'Stored megabytes', 'megabytes', 'none', 'integer'),
    ('assets.ai_generations', 'AI images', 'images', 'month', 'integer')
ON CONFLICT (code) DO NOTHING;

-- Pionero. Version 1 is made here; every later one is published from the active version, once: a block returns when
-- any version of the plan already has what it brings, so that running the seeds again publishes nothing.
DO $$
DECLARE
    v_plan_id uuid;
    v_version_id uuid;
BEGIN
    INSERT INTO platform.plans (code, name) VALUES ('pionero', 'Pionero')
    ON CONFLICT ON CONSTRAINT plans_code_uq DO NOTHING;
    SELECT id INTO v_plan_id FROM platform.plans WHERE code = 'pionero';

    IF NOT EXISTS (SELECT FROM platform.plan_versions WHERE plan_id = v_plan_id) THEN
        INSERT INTO platform.plan_versions (plan_id, version_number, status, published_at)
        VALUES (v_plan_id, 1, 'active', now()) RETURNING id INTO v_version_id;
        INSERT INTO platform.plan_version_capabilities VALUES (v_version_id, 'catalog.items');
        INSERT INTO platform.offerings (plan_version_id, market_code, currency_code, interval_code, amount_minor,
            trial_days)
        VALUES (v_version_id, 'CO', 'COP', 'month', 4990000, 30), (v_version_id, 'CO', 'COP', 'year', 49900000, 30);
    END IF;

    IF NOT EXISTS (SELECT FROM platform.plan_version_capabilities c JOIN platform.plan_versions v
        ON v.id = c.plan_version_id WHERE v.plan_id = v_plan_id AND c.capability_code = 'assets.media')
    THEN
        PERFORM platform.publish_plan_version('pionero', ARRAY['assets.media'],
            ARRAY['assets.active_assets', 'assets.stored_megabytes'], ARRAY[5000, 10240]);
    END IF;

    IF NOT EXISTS (SELECT FROM platform.plan_version_capabilities c JOIN platform.plan_versions v
        ON v.id = c.plan_version_id WHERE v.plan_id = v_plan_id AND c.capability_code = 'assets.ai_generation')
    THEN
        PERFORM platform.publish_plan_version('pionero', ARRAY['assets.ai_generation'],
            ARRAY['assets.ai_generations'], ARRAY[20]);
    END IF;
END $$;
