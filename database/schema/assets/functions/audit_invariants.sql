-- What must hold between rows at every commit, checked in one statement: a row for each place where it does not, none
-- when all is well. With p_settled also what must hold once nothing is left to do: no job is open and due. Objects are
-- compared with the stores elsewhere (assets.list_storage_objects, assets.judge_storage_keys). Changes nothing.
-- For operators: no grant.
CREATE OR REPLACE FUNCTION assets.audit_invariants(p_settled boolean DEFAULT false)
RETURNS TABLE (invariant varchar, organization_id uuid, subject_id uuid, detail varchar)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'usage_equals_rows'::varchar, u.organization_id, u.organization_id,
        format('counters (%s, %s, %s), rows (%s, %s, %s)', u.active_asset_count, u.stored_bytes, u.reserved_bytes,
            c.active_assets, c.stored_bytes, c.reserved_bytes)::varchar
    FROM assets.organization_usage u CROSS JOIN LATERAL assets.count_usage(u.organization_id) AS c
    WHERE (u.active_asset_count, u.stored_bytes, u.reserved_bytes)
        IS DISTINCT FROM (c.active_assets, c.stored_bytes, c.reserved_bytes)
    UNION ALL
    SELECT 'ready_asset_complete', a.organization_id, a.id,
        format('needs %s, has %s', needed.codes, stored.codes)
    FROM assets.assets a
    CROSS JOIN LATERAL (
        SELECT array_agg(n.code ORDER BY n.code) AS codes
        FROM unnest(ARRAY['original'] || assets.profile_rendition_codes(a.rendition_profile)) AS n (code)) AS needed
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(v.variant_code::text ORDER BY v.variant_code), '{}') AS codes
        FROM assets.asset_variants v
        JOIN assets.storage_objects o ON o.variant_id = v.id AND o.status = 'available'
        WHERE v.asset_id = a.id AND v.status = 'ready') AS stored
    WHERE a.status = 'ready' AND needed.codes IS DISTINCT FROM stored.codes
    UNION ALL
    SELECT 'objects_only_of_stored_assets', o.organization_id, o.id, format('asset %s is %s', a.id, a.status)
    FROM assets.storage_objects o
    JOIN assets.asset_variants v ON v.id = o.variant_id
    JOIN assets.assets a ON a.id = v.asset_id
    WHERE a.status NOT IN ('ready', 'purging') OR split_part(o.object_key, '/', 2) <> a.delivery_token
    UNION ALL
    SELECT 'unsettled_asset_has_work', a.organization_id, a.id, format('%s, upload %s', a.status, u.state)
    FROM assets.assets a LEFT JOIN assets.uploads u ON u.asset_id = a.id
    WHERE a.status = 'pending' AND u.state IS DISTINCT FROM 'issued'
        OR a.status = 'processing' AND (u.state IS DISTINCT FROM 'received' OR NOT EXISTS (
            SELECT FROM assets.processing_jobs j WHERE j.asset_id = a.id AND j.job_kind = 'process_upload'
                AND j.state IN ('pending', 'leased')))
        OR a.status IN ('ready', 'failed', 'purging') AND u.state IN ('issued', 'received')
        OR a.status = 'purging' AND NOT EXISTS (
            SELECT FROM assets.processing_jobs j WHERE j.asset_id = a.id AND j.job_kind = 'purge_asset'
                AND j.state IN ('pending', 'leased', 'dead_lettered'))
    UNION ALL
    SELECT 'dead_letter_has_reason', j.organization_id, j.id, j.job_kind
    FROM assets.processing_jobs j
    WHERE j.state = 'dead_lettered' AND (j.last_error_code IS NULL OR j.error_class IS NULL)
    UNION ALL
    SELECT 'purging_asset_unclaimed', c.organization_id, c.asset_id, format('%s %s', c.consumer, c.reference)
    FROM assets.asset_claims c JOIN assets.assets a ON a.id = c.asset_id WHERE a.status = 'purging'
    UNION ALL
    SELECT 'one_audit_record_per_change', a.organization_id, a.id,
        format('requested %s, archived %s, restored %s', told.requested, told.archived, told.restored)
    FROM assets.assets a
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE r.action_code = 'assets.asset.upload_requested') AS requested,
            count(*) FILTER (WHERE r.action_code = 'assets.asset.archived') AS archived,
            count(*) FILTER (WHERE r.action_code = 'assets.asset.restored') AS restored
        FROM audit.records r
        WHERE r.resource_id = a.id AND r.resource_kind = 'assets.asset' AND r.outcome = 'succeeded') AS told
    WHERE a.source_kind = 'upload' AND told.requested <> 1
        OR a.status <> 'purging'
            AND told.archived - told.restored <> (a.archived_at IS NOT NULL)::integer
    UNION ALL
    SELECT 'one_receipt_per_purge', coalesce(p.organization_id, told.organization_id),
        coalesce(p.asset_id, told.resource_id),
        format('%s receipt, %s audit records, asset %s', (p.asset_id IS NOT NULL)::integer, coalesce(told.records, 0),
            CASE WHEN a.id IS NULL THEN 'gone' ELSE 'still there' END)
    FROM assets.purge_receipts p
    FULL JOIN (
        SELECT r.resource_id, r.organization_id, count(*) AS records FROM audit.records r
        WHERE r.action_code = 'assets.asset.purged' GROUP BY 1, 2) AS told ON told.resource_id = p.asset_id
    LEFT JOIN assets.assets a ON a.id = coalesce(p.asset_id, told.resource_id)
    WHERE p.asset_id IS NULL OR told.records IS DISTINCT FROM 1 OR a.id IS NOT NULL
    UNION ALL
    SELECT 'no_job_is_overdue', j.organization_id, j.id, format('%s %s', j.job_kind, j.state)
    FROM assets.processing_jobs j
    WHERE p_settled AND (j.state = 'leased' OR j.state = 'pending' AND j.available_at <= now())
$$;
