-- Refuses (23514 with the given constraint name) a transaction that is not READ COMMITTED: after waiting for a lock,
-- the functions here must see what the other transaction committed. Internal: no grant.
CREATE OR REPLACE FUNCTION assets.assert_read_committed(p_constraint varchar) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'needs a READ COMMITTED transaction' USING ERRCODE = '23514', CONSTRAINT = p_constraint;
    END IF;
END $$;
