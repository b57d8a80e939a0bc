-- A request id as it may be kept: at most 128 printable ASCII characters, or NULL. Internal: no grant.
CREATE OR REPLACE FUNCTION audit.clean_request_id(p_request_id varchar) RETURNS varchar
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT nullif(left(regexp_replace(p_request_id, '[^!-~]', '', 'g'), 128), '') $$;
