-- A batch of writes that costs the server less than `write_1` does, with the same locks in the same order and the same
-- answers. It takes for granted what is so nearly always: that no record that is created and no payload is there
-- already. Where one is, the statement fails (unique violation), nothing of it stands, and `write_1` has to be asked.
--
-- Arrays: creations in the order of their ids; the same by their slots (`s_`) and keys (`k_`); updates in the order of
-- their ids. An array is unnested in a select list: in FROM each would be copied into a store of its own first.
--
-- Answers: in the order of creations and updates, as those of `write_1`; none if this boot is over.
CREATE FUNCTION write_2(
  p_epoch bigint, p_lane smallint, p_lazy boolean,
  c_id uuid[], c_key uuid[], c_slot uuid[], c_principal text[], c_tool text[], c_prune bigint[], c_expires bigint[],
  c_attention bigint[], c_low bigint[], c_version bigint[], c_owner bigint[], c_caller bigint[], c_code smallint[], c_record text[],
  k_key uuid[], k_id uuid[], s_slot uuid[], s_id uuid[], s_before uuid[], s_forced boolean[],
  u_id uuid[], u_version bigint[], u_stamp bigint[], u_code smallint[], u_owner bigint[], u_caller bigint[],
  u_attention bigint[], u_low bigint[], u_expires bigint[], u_record text[],
  b_n integer[], b_id uuid[], b_kind integer[], b_data bytea[],
  OUT answers smallint[], OUT batch bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  creations integer := cardinality(c_id);
  updates integer := cardinality(u_id);
  all_done boolean := true;
  lost uuid[];
  out_of uuid[] := '{}';
  won uuid[];
  before smallint[] := '{}';
  moved boolean;
  made bigint;
  w record;
BEGIN
  PERFORM 1 FROM replica WHERE epoch = p_epoch AND ended_at IS NULL;
  IF NOT FOUND THEN RETURN; END IF;
  IF p_lazy THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
  answers := array_fill(0::smallint, ARRAY[creations + updates]);

  IF creations > 0 THEN
    INSERT INTO op (id, key_hash, slot_hash, principal, tool, prune_after, expires_at, attention, low, version, stamp,
      owner_epoch, caller_epoch, code, code_before, record)
    SELECT unnest(c_id), unnest(c_key), unnest(c_slot), unnest(c_principal), unnest(c_tool), unnest(c_prune),
      unnest(c_expires), unnest(c_attention), unnest(c_low), unnest(c_version), 0, unnest(c_owner), unnest(c_caller),
      unnest(c_code), 0, unnest(c_record);

    IF cardinality(k_key) > 0 THEN
      INSERT INTO op_key (key_hash, op_id) SELECT unnest(k_key), unnest(k_id) ON CONFLICT (key_hash) DO NOTHING;
      GET DIAGNOSTICS made = ROW_COUNT;
      IF made < cardinality(k_key) THEN
        lost := ARRAY(SELECT k.id FROM (SELECT unnest(k_key) AS key, unnest(k_id) AS id) k
          WHERE NOT EXISTS (SELECT 1 FROM op_key h WHERE h.key_hash = k.key AND h.op_id = k.id));
        all_done := false;
        out_of := lost;
        FOR w IN SELECT n FROM unnest(c_id) WITH ORDINALITY AS c (id, n) WHERE id = ANY (lost) LOOP
          answers[w.n] := 1;
        END LOOP;
        DELETE FROM op USING unnest(lost) AS l (id) WHERE op.id = l.id;
      END IF;
    END IF;

    INSERT INTO slot (slot_hash, op_id, before, forced)
      SELECT c.slot, c.id, c.before, c.forced
      FROM (SELECT unnest(s_slot) AS slot, unnest(s_id) AS id, unnest(s_before) AS before, unnest(s_forced) AS forced) c
      WHERE (all_done OR NOT c.id = ANY (out_of))
        AND (c.forced OR c.before IS NULL OR EXISTS (SELECT 1 FROM slot s WHERE s.slot_hash = c.slot))
      ON CONFLICT (slot_hash) DO UPDATE SET op_id = excluded.op_id, before = excluded.before, forced = excluded.forced
        WHERE excluded.forced OR slot.op_id = excluded.before;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made < creations - cardinality(out_of) THEN
      lost := ARRAY(SELECT c.id FROM (SELECT unnest(c_slot) AS slot, unnest(c_id) AS id) c
        WHERE NOT c.id = ANY (out_of) AND NOT EXISTS (SELECT 1 FROM slot s WHERE s.slot_hash = c.slot AND s.op_id = c.id));
      all_done := false;
      out_of := out_of || lost;
      FOR w IN SELECT n FROM unnest(c_id) WITH ORDINALITY AS c (id, n) WHERE id = ANY (lost) LOOP
        answers[w.n] := 2;
      END LOOP;
      DELETE FROM op USING unnest(lost) AS l (id) WHERE op.id = l.id;
      DELETE FROM op_key USING unnest(k_key, k_id) AS k (key, id)
        WHERE op_key.key_hash = k.key AND op_key.op_id = k.id AND k.id = ANY (lost);
    END IF;

    INSERT INTO attention (at, op_id)
      SELECT c.low, c.id FROM (SELECT unnest(c_low) AS low, unnest(c_id) AS id) c
      WHERE c.low IS NOT NULL AND (all_done OR NOT c.id = ANY (out_of));
  END IF;

  IF updates > 0 THEN
    WITH changed AS (
      UPDATE op o SET version = u.version, stamp = u.stamp, code = u.code, code_before = o.code, owner_epoch = u.owner,
        caller_epoch = u.caller, attention = u.attention, expires_at = u.expires, record = u.record, low_before = o.low,
        low = CASE WHEN u.low IS NULL THEN NULL WHEN o.low IS NULL OR u.low < o.low THEN u.low ELSE o.low END
      FROM (SELECT unnest(u_id) AS id, unnest(u_version) AS version, unnest(u_stamp) AS stamp, unnest(u_code) AS code,
        unnest(u_owner) AS owner, unnest(u_caller) AS caller, unnest(u_attention) AS attention, unnest(u_low) AS low,
        unnest(u_expires) AS expires, unnest(u_record) AS record) u
      WHERE o.id = u.id AND o.version = u.version - 1
      RETURNING o.id, o.code_before, o.low_before IS DISTINCT FROM o.low AS moved
    ) SELECT array_agg(id), array_agg(code_before), count(*), bool_or(changed.moved) INTO won, before, made, moved FROM changed;
    IF moved THEN
      DELETE FROM attention a USING (SELECT unnest(won) AS id) w JOIN op o ON o.id = w.id
        WHERE o.low_before IS DISTINCT FROM o.low AND a.at = o.low_before AND a.op_id = o.id;
      INSERT INTO attention (at, op_id) SELECT o.low, o.id FROM (SELECT unnest(won) AS id) w JOIN op o ON o.id = w.id
        WHERE o.low_before IS DISTINCT FROM o.low AND o.low IS NOT NULL;
    END IF;
    IF made < updates THEN
      all_done := false;
      won := coalesce(won, '{}');
      FOR w IN SELECT u.n, CASE WHEN o.version = u.version AND o.stamp = u.stamp THEN 4 WHEN o.version = u.version THEN 3 ELSE 5 END AS answer
        FROM unnest(u_id, u_version, u_stamp) WITH ORDINALITY AS u (id, version, stamp, n) LEFT JOIN op o ON o.id = u.id
        WHERE NOT u.id = ANY (won)
      LOOP
        answers[creations + w.n] := w.answer;
      END LOOP;
    END IF;
  END IF;

  IF cardinality(b_n) > 0 THEN
    INSERT INTO op_blob (op_id, kind, data)
      SELECT b.id, b.kind, b.data
      FROM (SELECT unnest(b_n) AS n, unnest(b_id) AS id, unnest(b_kind) AS kind, unnest(b_data) AS data) b
      WHERE all_done OR answers[b.n] = 0;
  END IF;

  -- Number 0 is also what makes an empty batch wait for the disk, and everything before it.
  WITH counted AS (
    INSERT INTO tally (epoch, lane, code, n)
      SELECT p_epoch, p_lane, d.code, sum(d.by) FROM (
        SELECT 0::smallint AS code, 1 AS by
        UNION ALL SELECT c.code, 1 FROM (SELECT unnest(c_id) AS id, unnest(c_code) AS code) c WHERE all_done OR NOT c.id = ANY (out_of)
        UNION ALL SELECT u.code, 1 FROM (SELECT unnest(u_id) AS id, unnest(u_code) AS code) u WHERE all_done OR u.id = ANY (won)
        UNION ALL SELECT unnest(before), -1) d
      GROUP BY d.code HAVING sum(d.by) <> 0 ORDER BY d.code
    ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + excluded.n RETURNING code, n
  ) SELECT n INTO batch FROM counted WHERE code = 0;
END $$;
