-- Puts up to 1,000 rows of `attention` right whose time came too early. How many there were.
CREATE FUNCTION correct_1(p_until bigint) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  made integer;
BEGIN
  WITH early AS (
    SELECT o.id, o.low, coalesce(o.attention, 9223372036854775807) AS want
    FROM attention a JOIN op o ON o.id = a.op_id
    WHERE a.at <= p_until AND o.low = a.at AND coalesce(o.attention, 9223372036854775807) <> a.at
    ORDER BY a.at, a.op_id LIMIT 1000 FOR UPDATE OF o SKIP LOCKED
  ), put AS (
    UPDATE op o SET low = e.want FROM early e WHERE o.id = e.id
  ), gone AS (
    DELETE FROM attention a USING early e WHERE a.at = e.low AND a.op_id = e.id
  ) INSERT INTO attention (at, op_id) SELECT e.want, e.id FROM early e;
  GET DIAGNOSTICS made = ROW_COUNT;
  RETURN made;
END $$;

-- What is due, earliest first. With `p_hold` the rows are this replica's to look after for so many milliseconds, and
-- those that another live replica looks after are left out.
CREATE FUNCTION due_1(p_epoch bigint, p_now bigint, p_limit bigint, p_hold bigint)
RETURNS TABLE (o_id uuid, o_version bigint, o_record text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  clock bigint := ledger_clock();
  held uuid[];
BEGIN
  FOR round IN 1..100 LOOP
    EXIT WHEN correct_1(p_now) < 1000;
  END LOOP;
  IF p_hold > 0 THEN
    WITH mine AS (
      SELECT a.at, a.op_id FROM attention a
      WHERE a.at <= p_now AND (a.holder IS NULL OR a.holder = p_epoch OR a.held_until < clock
        OR NOT EXISTS (SELECT 1 FROM replica r WHERE r.epoch = a.holder AND r.ended_at IS NULL))
      ORDER BY a.at, a.op_id LIMIT p_limit FOR UPDATE OF a SKIP LOCKED
    ), kept AS (
      UPDATE attention a SET holder = p_epoch, held_until = clock + p_hold FROM mine m WHERE a.at = m.at AND a.op_id = m.op_id
      RETURNING a.op_id
    ) SELECT array_agg(op_id) INTO held FROM kept;
    RETURN QUERY SELECT o.id, o.version, o.record FROM unnest(held) AS h (id) JOIN op o ON o.id = h.id
      WHERE o.attention <= p_now ORDER BY o.attention, o.id;
  ELSE
    RETURN QUERY SELECT o.id, o.version, o.record FROM attention a JOIN op o ON o.id = a.op_id
      WHERE a.at <= p_now AND o.low = a.at AND o.attention <= p_now ORDER BY a.at, a.op_id LIMIT p_limit;
  END IF;
END $$;

-- The earliest attention time of all.
CREATE FUNCTION next_attention_1() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  best bigint;
  farthest bigint;
  n bigint;
BEGIN
  FOR round IN 1..20 LOOP
    SELECT min(h.want), max(h.at), count(*) INTO best, farthest, n FROM (
      SELECT a.at, coalesce(o.attention, 9223372036854775807) AS want FROM attention a JOIN op o ON o.id = a.op_id
      ORDER BY a.at, a.op_id LIMIT 100) h;
    -- Nothing beyond these is earlier than the last of them.
    EXIT WHEN n < 100 OR best <= farthest;
    PERFORM correct_1(farthest);
  END LOOP;
  RETURN nullif(least(best, CASE WHEN n = 100 THEN farthest END), 9223372036854775807);
END $$;

-- Ends a boot for good, and makes what it left behind due at `p_now`: what it ran, and results whose callers it held.
-- Whether it was still going on.
CREATE FUNCTION end_replica_1(p_epoch bigint, p_now bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE replica SET ended_at = ledger_clock() WHERE epoch = p_epoch AND ended_at IS NULL;
  IF NOT FOUND THEN RETURN false; END IF;
  WITH left_behind AS (
    SELECT o.id, o.low FROM attention a JOIN op o ON o.id = a.op_id
    WHERE o.low = a.at AND o.attention > p_now
      AND ((o.code / 8 = 2 AND o.owner_epoch = p_epoch) OR (o.code = 34 AND o.caller_epoch = p_epoch))
    ORDER BY o.id FOR UPDATE OF o
  ), put AS (
    UPDATE op o SET attention = p_now, low = least(l.low, p_now) FROM left_behind l WHERE o.id = l.id
  ), gone AS (
    DELETE FROM attention a USING left_behind l WHERE l.low > p_now AND a.at = l.low AND a.op_id = l.id
  ) INSERT INTO attention (at, op_id) SELECT p_now, l.id FROM left_behind l WHERE l.low > p_now;
  RETURN true;
END $$;

-- Ends the boots whose leases have lapsed. A lease that ends later than any renewal could make it is from a clock that
-- was set since. Which they were.
CREATE FUNCTION reap_1(p_epoch bigint, p_now bigint) RETURNS SETOF bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  r record;
BEGIN
  -- Nobody is ended by a clock that was set a moment ago.
  IF NOT EXISTS (SELECT 1 FROM meta WHERE ledger_clock() + shift BETWEEN p_now - 1000 AND p_now + 1000) THEN RETURN; END IF;
  FOR r IN SELECT epoch FROM replica WHERE ended_at IS NULL AND epoch <> p_epoch
    AND (lease_until < ledger_clock() OR lease_until > ledger_clock() + 2 * lease_ms) ORDER BY epoch FOR UPDATE SKIP LOCKED
  LOOP
    IF end_replica_1(r.epoch, p_now) THEN RETURN NEXT r.epoch; END IF;
  END LOOP;
  DELETE FROM replica WHERE ended_at < ledger_clock() - 604800000;
END $$;

-- Replaces records, as they were read, by tombstones; removes up to `p_step` tombstones of `p_old` and before.
CREATE FUNCTION prune_1(p_epoch bigint, p_lane smallint, p_id uuid[], p_version bigint[], p_grave text[], p_now bigint, p_old bigint, p_step bigint,
  OUT records bigint, OUT graves bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  going uuid[];
BEGIN
  -- One replica at a time; another finds nothing to do.
  IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || '.prune', 0)) THEN
    records := 0; graves := 0; RETURN;
  END IF;
  -- Slots before records, as everywhere.
  PERFORM 1 FROM unnest(p_id) AS p (id) JOIN op o ON o.id = p.id JOIN slot s ON s.slot_hash = o.slot_hash AND s.op_id = o.id
    ORDER BY s.slot_hash FOR UPDATE OF s;
  WITH gone AS (
    DELETE FROM op o USING unnest(p_id, p_version) AS p (id, version)
    WHERE o.id = p.id AND o.version = p.version AND o.expires_at < p_now
    RETURNING o.id, o.key_hash, o.slot_hash, o.low, o.code
  ), slots AS (
    DELETE FROM slot s USING gone g WHERE s.slot_hash = g.slot_hash AND s.op_id = g.id
  ), wants AS (
    DELETE FROM attention a USING gone g WHERE a.at = g.low AND a.op_id = g.id
  ), payloads AS (
    DELETE FROM op_blob b USING gone g WHERE b.op_id = g.id
  ), counted AS (
    INSERT INTO tally (epoch, lane, code, n) SELECT p_epoch, p_lane, g.code, -count(*) FROM gone g GROUP BY g.code ORDER BY g.code
      ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + excluded.n
  ), buried AS (
    INSERT INTO tombstone (id, key_hash, at, record)
      SELECT g.id, g.key_hash, p_now, p.grave FROM gone g JOIN unnest(p_id, p_grave) AS p (id, grave) ON p.id = g.id
  ) SELECT count(*) INTO records FROM gone;
  WITH old AS (
    DELETE FROM tombstone t USING (SELECT id FROM tombstone WHERE at <= p_old ORDER BY at LIMIT p_step) o WHERE t.id = o.id
    RETURNING t.id, t.key_hash
  ), keys AS (
    DELETE FROM op_key k USING old WHERE k.key_hash = old.key_hash AND k.op_id = old.id
  ) SELECT count(*) INTO graves FROM old;
END $$;

-- Opens a session and gives the ids of those that ended for it; nothing if there is one with this id.
CREATE FUNCTION open_session_1(p_id text, p_principal text, p_revision text, p_client text, p_log_level text, p_opened bigint,
  p_used bigint, p_uris text[], p_most bigint) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  beyond bigint;
  ended text[] := '{}';
BEGIN
  -- Those of one principal one after the other, or two would make room twice.
  PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || '.session.' || p_principal, 0));
  INSERT INTO session (id, principal, revision, client, log_level, opened_at, used_at)
    VALUES (p_id, p_principal, p_revision, p_client, p_log_level, p_opened, p_used) ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN RETURN NULL; END IF;
  INSERT INTO session_uri (session_id, uri) SELECT p_id, u FROM unnest(p_uris) AS u;
  SELECT count(*) - p_most INTO beyond FROM session WHERE principal = p_principal;
  IF beyond > 0 THEN
    ended := ARRAY(SELECT id FROM session WHERE principal = p_principal AND id <> p_id
      ORDER BY used_at <> opened_at, used_at, id LIMIT beyond);
    DELETE FROM session_uri WHERE session_id = ANY (ended);
    DELETE FROM session WHERE id = ANY (ended);
  END IF;
  RETURN ended;
END $$;

-- Changes a session: 0 used, 1 log level, 2 subscribe, 3 unsubscribe. Whether it is there.
CREATE FUNCTION change_session_1(p_id text, p_kind smallint, p_text text, p_now bigint, p_most bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM session WHERE id = p_id FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF p_kind = 0 THEN
    UPDATE session SET used_at = p_now WHERE id = p_id;
  ELSIF p_kind = 1 THEN
    UPDATE session SET log_level = p_text WHERE id = p_id AND log_level IS DISTINCT FROM p_text;
  ELSIF p_kind = 2 THEN
    IF (SELECT count(*) FROM session_uri WHERE session_id = p_id) < p_most THEN
      INSERT INTO session_uri (session_id, uri) VALUES (p_id, p_text) ON CONFLICT DO NOTHING;
    END IF;
  ELSE
    DELETE FROM session_uri WHERE session_id = p_id AND uri = p_text;
  END IF;
  RETURN true;
END $$;

-- Ends sessions. Which of them were there.
CREATE FUNCTION end_sessions_1(p_ids text[]) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  made bigint;
BEGIN
  DELETE FROM session WHERE id = ANY (p_ids);
  GET DIAGNOSTICS made = ROW_COUNT;
  DELETE FROM session_uri WHERE session_id = ANY (p_ids);
  RETURN made;
END $$;

-- Ends up to `p_limit` sessions that were last used before `p_since`, those unused longest first.
CREATE FUNCTION prune_sessions_1(p_since bigint, p_limit bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN end_sessions_1(ARRAY(
    SELECT id FROM session WHERE used_at < p_since ORDER BY used_at, id LIMIT p_limit FOR UPDATE SKIP LOCKED));
END $$;
