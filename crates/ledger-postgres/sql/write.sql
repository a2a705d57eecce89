-- A batch of writes, in one transaction that the statement itself is. No two writes of a batch share an operation, a
-- key or a slot; each array is in the order of its ids. Locks are taken in one order everywhere (records that are new,
-- keys, slots, records that change), so two batches don't wait for each other in a circle.
--
-- Answers, in the order creations, updates: 0 done; 1 key taken; 2 slot taken; 3 stale, another write has this very
-- version; 4 done before, by this very write; 5 stale, the record is further on or gone. No answers: this boot is over.
CREATE FUNCTION write_1(
  p_epoch bigint, p_lane smallint, p_lazy boolean,
  c_id uuid[], c_slot uuid[], c_before uuid[], c_forced boolean[], c_key uuid[], c_principal text[], c_tool text[],
  c_prune bigint[], c_expires bigint[], c_attention bigint[], c_low bigint[], c_version bigint[], c_owner bigint[],
  c_caller bigint[], c_code smallint[], c_record text[],
  k_key uuid[], k_id uuid[],
  u_id uuid[], u_version bigint[], u_stamp bigint[], u_code smallint[], u_owner bigint[], u_caller bigint[],
  u_attention bigint[], u_low bigint[], u_expires bigint[], u_record text[],
  b_n integer[], b_id uuid[], b_kind integer[], b_data bytea[],
  OUT answers smallint[], OUT batch bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  creations integer := cardinality(c_id);
  updates integer := cardinality(u_id);
  live uuid[];
  lost uuid[];
  won bigint[];
  all_live boolean := true;
  made bigint;
  w record;
BEGIN
  PERFORM 1 FROM replica WHERE epoch = p_epoch AND ended_at IS NULL;
  IF NOT FOUND THEN RETURN; END IF;
  IF p_lazy THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
  answers := array_fill(0::smallint, ARRAY[creations + updates]);

  IF creations > 0 THEN
    WITH inserted AS (
      INSERT INTO op (id, key_hash, slot_hash, principal, tool, prune_after, expires_at, attention, low, version, stamp,
        owner_epoch, caller_epoch, code, code_before, record)
      SELECT c.id, c.key, c.slot, c.principal, c.tool, c.prune, c.expires, c.attention, c.low, c.version, 0, c.owner, c.caller, c.code,
        0, c.record
      FROM unnest(c_id, c_key, c_slot, c_principal, c_tool, c_prune, c_expires, c_attention, c_low, c_version, c_owner, c_caller,
        c_code, c_record) AS c (id, key, slot, principal, tool, prune, expires, attention, low, version, owner, caller, code, record)
      ON CONFLICT (id) DO NOTHING RETURNING id
    ) SELECT array_agg(id), count(*) INTO live, made FROM inserted;
    IF made < creations THEN
      all_live := false;
      live := coalesce(live, '{}');
      FOR w IN SELECT n FROM unnest(c_id) WITH ORDINALITY AS c (id, n) WHERE NOT id = ANY (live) LOOP
        answers[w.n] := 4;
      END LOOP;
    END IF;

    IF cardinality(k_key) > 0 THEN
      INSERT INTO op_key (key_hash, op_id)
        SELECT k.key, k.id FROM unnest(k_key, k_id) AS k (key, id) WHERE all_live OR k.id = ANY (live) ORDER BY k.key
        ON CONFLICT (key_hash) DO NOTHING;
      GET DIAGNOSTICS made = ROW_COUNT;
      IF made < cardinality(k_key) THEN
        SELECT array_agg(k.id) INTO lost FROM unnest(k_key, k_id) AS k (key, id) WHERE k.id = ANY (live)
          AND NOT EXISTS (SELECT 1 FROM op_key h WHERE h.key_hash = k.key AND h.op_id = k.id);
        IF lost IS NOT NULL THEN
          all_live := false;
          FOR w IN SELECT n FROM unnest(c_id) WITH ORDINALITY AS c (id, n) WHERE id = ANY (lost) LOOP
            answers[w.n] := 1;
          END LOOP;
          DELETE FROM op USING unnest(lost) AS l (id) WHERE op.id = l.id;
          live := ARRAY(SELECT id FROM unnest(live) AS l (id) WHERE NOT id = ANY (lost));
        END IF;
      END IF;
    END IF;

    INSERT INTO slot (slot_hash, op_id, before, forced)
      SELECT c.slot, c.id, c.before, c.forced FROM unnest(c_slot, c_id, c_before, c_forced) AS c (slot, id, before, forced)
      WHERE (all_live OR c.id = ANY (live))
        AND (c.forced OR c.before IS NULL OR EXISTS (SELECT 1 FROM slot s WHERE s.slot_hash = c.slot))
      ORDER BY c.slot
      ON CONFLICT (slot_hash) DO UPDATE SET op_id = excluded.op_id, before = excluded.before, forced = excluded.forced
        WHERE excluded.forced OR slot.op_id = excluded.before;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made < cardinality(live) THEN
      SELECT array_agg(c.id) INTO lost FROM unnest(c_slot, c_id) AS c (slot, id) WHERE c.id = ANY (live)
        AND NOT EXISTS (SELECT 1 FROM slot s WHERE s.slot_hash = c.slot AND s.op_id = c.id);
      IF lost IS NOT NULL THEN
        all_live := false;
        FOR w IN SELECT n FROM unnest(c_id) WITH ORDINALITY AS c (id, n) WHERE id = ANY (lost) LOOP
          answers[w.n] := 2;
        END LOOP;
        DELETE FROM op USING unnest(lost) AS l (id) WHERE op.id = l.id;
        DELETE FROM op_key USING unnest(k_key, k_id) AS k (key, id)
          WHERE op_key.key_hash = k.key AND op_key.op_id = k.id AND k.id = ANY (lost);
        live := ARRAY(SELECT id FROM unnest(live) AS l (id) WHERE NOT id = ANY (lost));
      END IF;
    END IF;

    INSERT INTO attention (at, op_id)
      SELECT c.low, c.id FROM unnest(c_low, c_id) AS c (low, id) WHERE c.low IS NOT NULL AND (all_live OR c.id = ANY (live));
    INSERT INTO tally (epoch, lane, code, n)
      SELECT p_epoch, p_lane, c.code, count(*) FROM unnest(c_id, c_code) AS c (id, code) WHERE all_live OR c.id = ANY (live)
      GROUP BY c.code ORDER BY c.code
      ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + excluded.n;
  END IF;

  IF updates > 0 THEN
    WITH changed AS (
      UPDATE op o SET version = u.version, stamp = u.stamp, code = u.code, code_before = o.code, owner_epoch = u.owner,
        caller_epoch = u.caller, attention = u.attention, expires_at = u.expires, record = u.record, low_before = o.low,
        low = CASE WHEN u.low IS NULL THEN NULL WHEN o.low IS NULL OR u.low < o.low THEN u.low ELSE o.low END
      FROM unnest(u_id, u_version, u_stamp, u_code, u_owner, u_caller, u_attention, u_low, u_expires, u_record) WITH ORDINALITY
        AS u (id, version, stamp, code, owner, caller, attention, low, expires, record, n)
      WHERE o.id = u.id AND o.version = u.version - 1
      RETURNING u.n, o.id, o.code, o.code_before, o.low, o.low_before
    ), gone AS (
      DELETE FROM attention a USING changed c
      WHERE c.low_before IS DISTINCT FROM c.low AND a.at = c.low_before AND a.op_id = c.id
    ), came AS (
      INSERT INTO attention (at, op_id) SELECT c.low, c.id FROM changed c WHERE c.low_before IS DISTINCT FROM c.low AND c.low IS NOT NULL
    ), counted AS (
      INSERT INTO tally (epoch, lane, code, n)
        SELECT p_epoch, p_lane, d.code, sum(d.by) FROM
          (SELECT code, 1 AS by FROM changed UNION ALL SELECT code_before, -1 FROM changed) d
        GROUP BY d.code HAVING sum(d.by) <> 0 ORDER BY d.code
        ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + excluded.n
    ) SELECT array_agg(n), count(*) INTO won, made FROM changed;
    IF made < updates THEN
      won := coalesce(won, '{}');
      FOR w IN SELECT u.n, CASE WHEN o.version = u.version AND o.stamp = u.stamp THEN 4 WHEN o.version = u.version THEN 3 ELSE 5 END AS answer
        FROM unnest(u_id, u_version, u_stamp) WITH ORDINALITY AS u (id, version, stamp, n) LEFT JOIN op o ON o.id = u.id
        WHERE NOT u.n = ANY (won)
      LOOP
        answers[creations + w.n] := w.answer;
      END LOOP;
    END IF;
  END IF;

  IF cardinality(b_n) > 0 THEN
    INSERT INTO op_blob (op_id, kind, data)
      SELECT b.id, b.kind, b.data FROM unnest(b_n, b_id, b_kind, b_data) AS b (n, id, kind, data) WHERE answers[b.n] = 0
      ON CONFLICT (op_id, kind) DO NOTHING;
  END IF;

  -- Also what makes an empty batch wait for the disk, and everything before it.
  INSERT INTO tally (epoch, lane, code, n) VALUES (p_epoch, p_lane, 0, 1)
    ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + 1 RETURNING n INTO batch;
END $$;
