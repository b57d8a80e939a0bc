-- Whether a session may still be used: not revoked, used within 12 hours, created within 30 days (DESIGN lifetimes).
-- Plain SQL with its names bound at creation, so that the planner can inline it into a query from session to row.
CREATE OR REPLACE FUNCTION identity.session_lives(
    p_created_at timestamptz, p_last_seen_at timestamptz, p_revoked_at timestamptz)
RETURNS boolean LANGUAGE sql STABLE
RETURN p_revoked_at IS NULL
    AND p_last_seen_at > now() - interval '12 hours'
    AND p_created_at > now() - interval '30 days';
