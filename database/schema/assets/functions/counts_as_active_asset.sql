-- Whether an asset occupies a slot of the plan's active-asset limit: neither archived, failed nor purging.
-- Plain SQL with its names bound at creation, so that the planner can inline it.
CREATE OR REPLACE FUNCTION assets.counts_as_active_asset(p_status varchar, p_archived_at timestamptz)
RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN p_archived_at IS NULL AND p_status IN ('pending', 'processing', 'ready');
