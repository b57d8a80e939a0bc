-- The lock of a sweep, for a further transaction of one that assets.begin_sweep let begin: true when it is the caller's
-- until its transaction ends. Never waits. The expiry sweep and the reconciliation share one key, so they never run
-- together (§11), and a requeue waits for it; every other sweep has its own. Refuses an unknown sweep (23514,
-- assets_sweep_unknown).
CREATE OR REPLACE FUNCTION assets.continue_sweep(p_sweep varchar) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM assets.sweeps WHERE sweep_code = p_sweep) THEN
        RAISE EXCEPTION 'no sweep %', p_sweep USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_unknown';
    END IF;
    RETURN pg_try_advisory_xact_lock(hashtextextended(
        CASE WHEN p_sweep IN ('expire_uploads', 'reconcile_usage') THEN 'assets.expire_uploads'
            ELSE 'assets.sweep.' || p_sweep END, 0));
END $$;
