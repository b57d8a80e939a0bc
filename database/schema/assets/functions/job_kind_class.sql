-- Which line is served first: uploads (somebody waits) before purges before backfills.
-- Plain SQL with its names bound at creation, so that the planner can inline it.
CREATE OR REPLACE FUNCTION assets.job_kind_class(p_job_kind varchar) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN CASE p_job_kind WHEN 'process_upload' THEN 0 WHEN 'purge_asset' THEN 1 ELSE 2 END;
