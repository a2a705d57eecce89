-- A batch of writes that costs the server less than `write_2` does, with the same locks in the same order and the same answers:
-- what is looked at more than once is in arrays of its own, without the records, and states are counted from their numbers.
CREATE TYPE write_3_creation AS (
  id uuid, key uuid, slot uuid, principal text, tool text, prune_after bigint, expires_at bigint, attention bigint, low bigint,
  version bigint, owner bigint, caller bigint, code smallint, record text
);
CREATE TYPE write_3_claim AS (slot uuid, id uuid, before uuid, forced boolean, low bigint);

-- Claims and creations are both in the order of their slots, keys and updates in their own; `p_codes` has the states of the
-- creations and then of the updates. A payload names its write by its place among both. For the rest see `write_2`.
CREATE FUNCTION write_3(
  p_epoch bigint, p_lane smallint, p_lazy boolean, p_careful boolean, p_codes smallint[], p_created write_3_creation[],
  p_claims write_3_claim[], p_keys write_2_key[], p_updated write_2_update[], p_payloads write_2_payload[],
  OUT answers smallint[], OUT batch bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  creations integer := cardinality(p_claims);
  updates integer := cardinality(p_updated);
  -- Whether everything asked for is made; what isn't, of the creations; what is, of the updates.
  all_made boolean := true;
  out_of uuid[] := '{}';
  won uuid[];
  before smallint[] := '{}';
  lost uuid[];
  moved boolean;
  made bigint;
  w record;
BEGIN
  PERFORM 1 FROM replica WHERE epoch = p_epoch AND ended_at IS NULL;
  IF NOT FOUND THEN RETURN; END IF;
  IF p_lazy THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
  answers := array_fill(0::smallint, ARRAY[creations + updates]);

  IF creations > 0 THEN
    IF NOT p_careful THEN
      INSERT INTO op (id, key_hash, slot_hash, principal, tool, prune_after, expires_at, attention, low, version, stamp,
        owner_epoch, caller_epoch, code, code_before, record)
      SELECT id, key, slot, principal, tool, prune_after, expires_at, attention, low, version, 0, owner, caller, code, 0, record
      FROM unnest(p_created);
      INSERT INTO op_key (key_hash, op_id) SELECT key, id FROM unnest(p_keys);
    ELSE
      WITH inserted AS (
        INSERT INTO op (id, key_hash, slot_hash, principal, tool, prune_after, expires_at, attention, low, version, stamp,
          owner_epoch, caller_epoch, code, code_before, record)
        SELECT id, key, slot, principal, tool, prune_after, expires_at, attention, low, version, 0, owner, caller, code, 0, record
        FROM unnest(p_created)
        ON CONFLICT (id) DO NOTHING RETURNING id
      ) SELECT ARRAY(SELECT id FROM unnest(p_claims) EXCEPT ALL SELECT id FROM inserted) INTO out_of;
      IF cardinality(out_of) > 0 THEN
        all_made := false;
        FOR w IN SELECT c.ordinality AS n FROM unnest(p_claims) WITH ORDINALITY AS c WHERE c.id = ANY (out_of) LOOP
          answers[w.n] := 4;
        END LOOP;
      END IF;
      INSERT INTO op_key (key_hash, op_id) SELECT key, id FROM unnest(p_keys) WHERE NOT id = ANY (out_of)
        ON CONFLICT (key_hash) DO NOTHING;
      lost := ARRAY(SELECT k.id FROM unnest(p_keys) k WHERE NOT k.id = ANY (out_of)
        AND NOT EXISTS (SELECT 1 FROM op_key h WHERE h.key_hash = k.key AND h.op_id = k.id));
      IF cardinality(lost) > 0 THEN
        all_made := false;
        out_of := out_of || lost;
        FOR w IN SELECT c.ordinality AS n FROM unnest(p_claims) WITH ORDINALITY AS c WHERE c.id = ANY (lost) LOOP
          answers[w.n] := 1;
        END LOOP;
        DELETE FROM op USING unnest(lost) AS l (id) WHERE op.id = l.id;
      END IF;
    END IF;

    INSERT INTO slot (slot_hash, op_id, before, forced)
      SELECT c.slot, c.id, c.before, c.forced FROM unnest(p_claims) c
      WHERE (all_made OR NOT c.id = ANY (out_of))
        AND (c.forced OR c.before IS NULL OR EXISTS (SELECT 1 FROM slot s WHERE s.slot_hash = c.slot))
      ON CONFLICT (slot_hash) DO UPDATE SET op_id = excluded.op_id, before = excluded.before, forced = excluded.forced
        WHERE excluded.forced OR slot.op_id = excluded.before;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made < creations - cardinality(out_of) THEN
      lost := ARRAY(SELECT c.id FROM unnest(p_claims) c WHERE NOT c.id = ANY (out_of)
        AND NOT EXISTS (SELECT 1 FROM slot s WHERE s.slot_hash = c.slot AND s.op_id = c.id));
      all_made := false;
      out_of := out_of || lost;
      FOR w IN SELECT c.ordinality AS n FROM unnest(p_claims) WITH ORDINALITY AS c WHERE c.id = ANY (lost) LOOP
        answers[w.n] := 2;
      END LOOP;
      DELETE FROM op USING unnest(lost) AS l (id) WHERE op.id = l.id;
      DELETE FROM op_key USING unnest(p_keys) k WHERE op_key.key_hash = k.key AND op_key.op_id = k.id AND k.id = ANY (lost);
    END IF;

    INSERT INTO attention (at, op_id)
      SELECT c.low, c.id FROM unnest(p_claims) c WHERE c.low IS NOT NULL AND (all_made OR NOT c.id = ANY (out_of));
  END IF;

  IF updates > 0 THEN
    WITH changed AS (
      UPDATE op o SET version = u.version, stamp = u.stamp, code = u.code, code_before = o.code, owner_epoch = u.owner,
        caller_epoch = u.caller, attention = u.attention, expires_at = u.expires_at, record = u.record, low_before = o.low,
        low = CASE WHEN u.low IS NULL THEN NULL WHEN o.low IS NULL OR u.low < o.low THEN u.low ELSE o.low END
      FROM unnest(p_updated) u
      WHERE o.id = u.id AND o.version = u.version - 1
      RETURNING o.id, o.code_before, o.low_before IS DISTINCT FROM o.low AS moved
    ) SELECT array_agg(id), array_agg(code_before), count(*), bool_or(changed.moved) INTO won, before, made, moved FROM changed;
    IF moved THEN
      DELETE FROM attention a USING unnest(won) AS v (id) JOIN op o ON o.id = v.id
        WHERE o.low_before IS DISTINCT FROM o.low AND a.at = o.low_before AND a.op_id = o.id;
      INSERT INTO attention (at, op_id) SELECT o.low, o.id FROM unnest(won) AS v (id) JOIN op o ON o.id = v.id
        WHERE o.low_before IS DISTINCT FROM o.low AND o.low IS NOT NULL;
    END IF;
    IF made < updates THEN
      all_made := false;
      won := coalesce(won, '{}');
      FOR w IN SELECT u.n, CASE WHEN o.version = u.version AND o.stamp = u.stamp THEN 4 WHEN o.version = u.version THEN 3 ELSE 5 END AS answer
        FROM unnest(p_updated) WITH ORDINALITY AS u (id, version, stamp, code, owner, caller, attention, low, expires_at, record, n)
          LEFT JOIN op o ON o.id = u.id
        WHERE NOT u.id = ANY (won)
      LOOP
        answers[creations + w.n] := w.answer;
      END LOOP;
    END IF;
  END IF;

  IF cardinality(p_payloads) > 0 THEN
    IF p_careful THEN
      INSERT INTO op_blob (op_id, kind, data) SELECT id, kind, data FROM unnest(p_payloads) WHERE answers[n] = 0
        ON CONFLICT (op_id, kind) DO NOTHING;
    ELSE
      INSERT INTO op_blob (op_id, kind, data) SELECT id, kind, data FROM unnest(p_payloads) WHERE all_made OR answers[n] = 0;
    END IF;
  END IF;

  -- Number 0 is also what makes an empty batch wait for the disk, and everything before it.
  WITH counted AS (
    INSERT INTO tally (epoch, lane, code, n)
      SELECT p_epoch, p_lane, d.code, sum(d.by) FROM (
        SELECT 0::smallint AS code, 1 AS by
        UNION ALL SELECT c.code, 1 FROM unnest(p_codes) WITH ORDINALITY AS c (code, n) WHERE all_made OR answers[c.n] = 0
        UNION ALL SELECT unnest(before), -1) d
      GROUP BY d.code HAVING sum(d.by) <> 0 ORDER BY d.code
    ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + excluded.n RETURNING code, n
  ) SELECT n INTO batch FROM counted WHERE code = 0;
END $$;
