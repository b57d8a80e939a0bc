-- The variant codes of the renditions of a profile, beside 'original'; NULL for an unknown profile.
CREATE OR REPLACE FUNCTION assets.profile_rendition_codes(p_profile smallint) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE p_profile WHEN 1 THEN ARRAY['p1-thumbnail', 'p1-tile', 'p1-card', 'p1-detail'] END
$$;
