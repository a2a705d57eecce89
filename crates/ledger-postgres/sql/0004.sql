-- Handles of tools, and what the replicas share.

CREATE TABLE handle (
  id_hash bytea PRIMARY KEY,
  principal text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  created_at bigint NOT NULL,
  used_at bigint NOT NULL,
  idle bigint NOT NULL,
  absolute bigint NOT NULL,
  expires_at bigint NOT NULL,
  value bytea NOT NULL
);
CREATE INDEX handle_principal ON handle (principal, id_hash);
CREATE INDEX handle_expires ON handle (expires_at);

CREATE TABLE shelf (
  name text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  until bigint,
  data bytea NOT NULL
);
CREATE INDEX shelf_until ON shelf (until, name) WHERE until IS NOT NULL;

-- An update of one record together with changes of handles: all of it, or nothing. Answers as `write_1`, and 6: a handle is
-- not as the change of it expects; 7: the principal has as many as it may have. None: this boot is over.
--
-- What is done to a handle: 0 it is made, 1 its value is replaced, 2 it is destroyed.
CREATE FUNCTION write_handles_1(
  p_epoch bigint, u_id uuid, u_version bigint, u_stamp bigint, u_code smallint, u_owner bigint, u_caller bigint,
  u_attention bigint, u_low bigint, u_expires bigint, u_record text, b_kind integer[], b_data bytea[],
  h_what smallint[], h_id bytea[], h_principal text[], h_kind text[], h_expected bigint[], h_value bytea[], h_at bigint[],
  h_idle bigint[], h_absolute bigint[], p_most bigint, OUT answer smallint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  have bigint;
  said bigint;
  there boolean;
  h record;
BEGIN
  PERFORM 1 FROM replica WHERE epoch = p_epoch AND ended_at IS NULL;
  IF NOT FOUND THEN RETURN; END IF;
  -- Those of one principal one after the other, or two would take the last place.
  FOR h IN SELECT DISTINCT p AS principal FROM unnest(h_what, h_principal) AS c (what, p) WHERE what = 0 ORDER BY p LOOP
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || '.handle.' || h.principal, 0));
  END LOOP;
  SELECT version, stamp INTO have, said FROM op WHERE id = u_id FOR UPDATE;
  IF NOT FOUND THEN answer := 5; RETURN; END IF;
  IF have = u_version THEN answer := CASE WHEN said = u_stamp THEN 4 ELSE 3 END; RETURN; END IF;
  IF have <> u_version - 1 THEN answer := 5; RETURN; END IF;
  PERFORM 1 FROM handle WHERE id_hash = ANY (h_id) ORDER BY id_hash FOR UPDATE;
  FOR h IN SELECT * FROM unnest(h_what, h_id, h_principal, h_expected, h_at) WITH ORDINALITY
    AS c (what, id, principal, expected, at, n) ORDER BY n
  LOOP
    SELECT version INTO have FROM handle WHERE id_hash = h.id AND principal = h.principal AND expires_at > h.at;
    there := FOUND;
    IF h.what = 0 THEN
      IF (SELECT count(*) FROM handle WHERE principal = h.principal AND expires_at > h.at) >= p_most THEN answer := 7; RETURN; END IF;
      IF EXISTS (SELECT 1 FROM handle WHERE id_hash = h.id) THEN answer := 6; RETURN; END IF;
    ELSIF NOT there OR have <> h.expected THEN
      answer := 6; RETURN;
    END IF;
  END LOOP;
  SELECT w.answers[1] INTO answer FROM write_1(p_epoch, 8::smallint, false, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
    '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', ARRAY[u_id], ARRAY[u_version], ARRAY[u_stamp], ARRAY[u_code], ARRAY[u_owner],
    ARRAY[u_caller], ARRAY[u_attention], ARRAY[u_low], ARRAY[u_expires], ARRAY[u_record], array_fill(1, ARRAY[cardinality(b_kind)]),
    array_fill(u_id, ARRAY[cardinality(b_kind)]), b_kind, b_data) w;
  IF answer IS DISTINCT FROM 0::smallint THEN RETURN; END IF;
  FOR h IN SELECT * FROM unnest(h_what, h_id, h_principal, h_kind, h_value, h_at, h_idle, h_absolute)
    AS c (what, id, principal, kind, value, at, idle, absolute)
  LOOP
    IF h.what = 0 THEN
      INSERT INTO handle (id_hash, principal, kind, version, created_at, used_at, idle, absolute, expires_at, value)
        VALUES (h.id, h.principal, h.kind, 1, h.at, h.at, h.idle, h.absolute, h.at + least(h.idle, h.absolute), h.value);
    ELSIF h.what = 1 THEN
      UPDATE handle SET version = version + 1, value = h.value, used_at = greatest(used_at, h.at),
        expires_at = least(greatest(used_at, h.at) + idle, created_at + absolute) WHERE id_hash = h.id;
    ELSE
      DELETE FROM handle WHERE id_hash = h.id;
    END IF;
  END LOOP;
END $$;

-- Puts something on the shelf, if what is there has the version that is expected. Whether it did.
CREATE FUNCTION shelve_1(p_name text, p_expected bigint, p_data bytea, p_until bigint, p_now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  s record;
BEGIN
  SELECT version, until INTO s FROM shelf WHERE name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    IF p_expected <> 0 THEN RETURN false; END IF;
    INSERT INTO shelf (name, version, until, data) VALUES (p_name, 1, p_until, p_data) ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
  END IF;
  IF (CASE WHEN s.until <= p_now THEN 0 ELSE s.version END) <> p_expected THEN RETURN false; END IF;
  UPDATE shelf SET version = version + 1, until = p_until, data = p_data WHERE name = p_name;
  RETURN true;
END $$;
