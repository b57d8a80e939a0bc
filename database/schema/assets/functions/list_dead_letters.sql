-- Dead-lettered jobs of a kind (NULL: of every kind), newest first, at most p_limit (1 to 501) after the place
-- (p_before, p_before_id) of the last one seen (NULL: from the newest). requeue_refusal: NULL when a requeue would be
-- tried now, else why not (assets.requeue_refusal); the plan's limits are looked at only then. Changes nothing.
-- Refuses with 23514 assets_page_size.
CREATE OR REPLACE FUNCTION assets.list_dead_letters(
    p_job_kind varchar, p_before timestamptz, p_before_id uuid, p_limit integer)
RETURNS TABLE (job_id uuid, organization_id uuid, asset_id uuid, job_kind varchar, error_code varchar,
    attempt_count integer, processing_error_count integer, created_at timestamptz, dead_lettered_at timestamptz,
    requeue_refusal varchar)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 501 THEN
        RAISE EXCEPTION 'a page has 1 to 501 rows' USING ERRCODE = '23514', CONSTRAINT = 'assets_page_size';
    END IF;
    RETURN QUERY
    SELECT j.id, j.organization_id, j.asset_id, j.job_kind, coalesce(j.last_error_code, ''), j.attempt_count,
        j.processing_error_count, j.created_at, j.updated_at, assets.requeue_refusal(j.id)
    FROM assets.processing_jobs j
    WHERE j.state = 'dead_lettered' AND (p_job_kind IS NULL OR j.job_kind = p_job_kind)
        AND (p_before IS NULL OR (j.updated_at, j.id) < (p_before, p_before_id))
    ORDER BY j.updated_at DESC, j.id DESC LIMIT p_limit;
END $$;
