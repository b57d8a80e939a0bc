-- Whether the caller may run a sweep now: it is due, and no other usage sweep runs anywhere. Then the lock is the
-- caller's until its transaction ends, and the next due time is set; a rollback undoes both. Never waits.
-- Sweeps: expire_uploads (every 5 minutes), reconcile_usage (daily at 03:00 UTC). Refuses an unknown one (23514,
-- assets_sweep_unknown).
CREATE OR REPLACE FUNCTION assets.begin_sweep(p_sweep varchar) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_sweep assets.sweeps;
BEGIN
    SELECT * INTO v_sweep FROM assets.sweeps WHERE sweep_code = p_sweep;
    IF v_sweep.sweep_code IS NULL THEN
        RAISE EXCEPTION 'no sweep %', p_sweep USING ERRCODE = '23514', CONSTRAINT = 'assets_sweep_unknown';
    END IF;
    IF v_sweep.next_due_at > now() OR NOT assets.continue_sweep(p_sweep) THEN
        RETURN false;
    END IF;
    UPDATE assets.sweeps
    SET begun_at = now(),
        next_due_at = CASE WHEN day_offset IS NULL THEN now() + period
            ELSE date_bin(interval '1 day', now() - day_offset, timestamptz '2000-01-01 00:00:00+00')
                + day_offset + interval '1 day' END
    WHERE sweep_code = p_sweep AND next_due_at <= now();
    RETURN FOUND;
END $$;
