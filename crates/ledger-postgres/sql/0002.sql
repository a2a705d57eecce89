-- Which schema a boot's program knows; programs that don't say so know the first.
ALTER TABLE replica ADD COLUMN knows integer NOT NULL DEFAULT 1;

-- Whether a program that knows the forms up to `p_form` acts on this record. Few have a form.
CREATE FUNCTION acts_on_1(p_record text, p_form bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS
$$ SELECT p_record NOT LIKE '%"form":%' OR coalesce(substring(p_record FROM '"form": ?([0-9]+)')::numeric, 0) <= p_form $$;

-- As due_1, without what this program doesn't act on: that is left to those that do, and takes no place. At rest: without
-- what is running.
CREATE FUNCTION due_2(p_epoch bigint, p_now bigint, p_limit bigint, p_hold bigint, p_form bigint, p_at_rest boolean)
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
      SELECT a.at, a.op_id FROM attention a JOIN op o ON o.id = a.op_id
      WHERE a.at <= p_now AND o.low = a.at AND NOT (p_at_rest AND o.code / 8 = 2) AND acts_on_1(o.record, p_form)
        AND (a.holder IS NULL OR a.holder = p_epoch OR a.held_until < clock
          OR NOT EXISTS (SELECT 1 FROM replica r WHERE r.epoch = a.holder AND r.ended_at IS NULL))
      ORDER BY a.at, a.op_id LIMIT p_limit FOR UPDATE OF a SKIP LOCKED
    ), kept AS (
      UPDATE attention a SET holder = p_epoch, held_until = clock + p_hold FROM mine m WHERE a.at = m.at AND a.op_id = m.op_id
      RETURNING a.op_id
    ) SELECT array_agg(op_id) INTO held FROM kept;
    RETURN QUERY SELECT o.id, o.version, o.record FROM unnest(held) AS h (id) JOIN op o ON o.id = h.id
      WHERE o.attention <= p_now AND NOT (p_at_rest AND o.code / 8 = 2) ORDER BY o.attention, o.id;
  ELSE
    RETURN QUERY SELECT o.id, o.version, o.record FROM attention a JOIN op o ON o.id = a.op_id
      WHERE a.at <= p_now AND o.low = a.at AND o.attention <= p_now AND NOT (p_at_rest AND o.code / 8 = 2)
        AND acts_on_1(o.record, p_form) ORDER BY a.at, a.op_id LIMIT p_limit;
  END IF;
END $$;

-- What retention deletes is room again only after a vacuum. The server's own pace is made for machines of long ago: at some
-- thousands of operations a second it would never be done.
ALTER TABLE op SET (autovacuum_vacuum_cost_limit = 2000);
ALTER TABLE op_blob SET (autovacuum_vacuum_cost_limit = 2000);
ALTER TABLE op_key SET (autovacuum_vacuum_cost_limit = 2000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE slot SET (autovacuum_vacuum_cost_limit = 2000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE tombstone SET (autovacuum_vacuum_cost_limit = 2000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE attention SET (autovacuum_vacuum_cost_limit = 2000);
