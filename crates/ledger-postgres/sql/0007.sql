-- Claims and their returns, many in one statement, so that they share its commit.
--
-- Each of them (`p_holder`, `p_turn`; `p_back`: a return) has the parts from `p_first` to `p_last`, each of a bucket of
-- `p_name`. A claim is granted as a whole or not at all: then `full_at` is the place, from 1 on, of the first part that does not
-- fit, `held` what others have of it, and `free` when enough of that is over. They are made in their order, and a holder is
-- among them once, so what it has was there before. Where something is granted the disk is waited for: whoever writes a record
-- next relies on it, over a restart of the server too.
--
-- A claim may come once more when nobody waits for it any longer. It takes nothing from what is held: of an earlier turn it
-- changes nothing, and it makes nothing end sooner.
CREATE FUNCTION claims_1(p_now bigint, p_name text[], p_holder uuid[], p_turn bigint[], p_back boolean[], p_first integer[],
  p_last integer[], p_of integer[], p_bucket integer[], p_amount bigint[], p_cap bigint[], p_until bigint[])
RETURNS TABLE (full_at integer, held bigint, free bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c record;
  b integer;
  own bigint;
  gone bigint;
  went bigint;
  over bigint;
  granted boolean := false;
  parts integer := cardinality(p_of);
  -- Of each bucket: its sum, the part of that which is over and not removed yet, whether the sum changed.
  v_used bigint[] := array_fill(0::bigint, ARRAY[cardinality(p_name)]);
  v_rest bigint[] := v_used;
  v_touched boolean[] := array_fill(false, ARRAY[cardinality(p_name)]);
  -- Of each part: what its holder has, and what becomes of that.
  v_mine bigint[] := array_fill(NULL::bigint, ARRAY[parts]);
  v_until bigint[] := v_mine;
  v_turn bigint[] := v_mine;
  v_made boolean[] := array_fill(false, ARRAY[parts]);
  v_gone boolean[] := v_made;
  -- The answers.
  a_full integer[] := array_fill(NULL::integer, ARRAY[cardinality(p_holder)]);
  a_held bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_holder)]);
  a_free bigint[] := a_held;
BEGIN
  FOR c IN SELECT DISTINCT bucket_lock_1(n) AS lock FROM unnest(p_name) AS n ORDER BY lock LOOP
    PERFORM pg_advisory_xact_lock(c.lock);
  END LOOP;
  FOR c IN SELECT u.n::integer AS n, a.used FROM unnest(p_name) WITH ORDINALITY AS u (name, n) JOIN allowance a ON a.bucket = u.name LOOP
    v_used[c.n] := c.used;
  END LOOP;
  FOR c IN SELECT u.n::integer AS n, u.name FROM unnest(p_name) WITH ORDINALITY AS u (name, n)
    WHERE EXISTS (SELECT 1 FROM claim x WHERE x.bucket = u.name AND x.until <= p_now)
  LOOP
    WITH ended AS (
      DELETE FROM claim x USING (SELECT holder FROM claim WHERE bucket = c.name AND until <= p_now ORDER BY until, holder LIMIT 256) o
      WHERE x.bucket = c.name AND x.holder = o.holder RETURNING x.amount
    ) SELECT coalesce(sum(amount), 0)::bigint, count(*) INTO gone, went FROM ended;
    v_used[c.n] := v_used[c.n] - gone;
    v_touched[c.n] := true;
    IF went >= 256 THEN
      -- More is over than goes at once: it counts no more all the same.
      v_rest[c.n] := (SELECT coalesce(sum(amount), 0) FROM claim WHERE bucket = c.name AND until <= p_now);
    END IF;
  END LOOP;
  FOR c IN SELECT u.n::integer AS n, x.amount, x.until, x.turn FROM unnest(p_of, p_bucket) WITH ORDINALITY AS u (which, bucket, n)
    JOIN claim x ON x.bucket = p_name[u.bucket] AND x.holder = p_holder[u.which]
  LOOP
    v_mine[c.n] := c.amount;
    v_until[c.n] := c.until;
    v_turn[c.n] := c.turn;
  END LOOP;
  FOR i IN 1 .. cardinality(p_holder) LOOP
    IF NOT p_back[i] THEN
      FOR k IN p_first[i] .. p_last[i] LOOP
        b := p_bucket[k];
        own := CASE WHEN v_until[k] > p_now THEN v_mine[k] ELSE 0 END;
        over := v_used[b] - v_rest[b] - own;
        -- Neither is below zero, so this stays within its type where their sum would not.
        IF p_amount[k] > p_cap[k] - over THEN
          a_full[i] := k - p_first[i] + 1;
          a_held[i] := over;
          EXIT;
        END IF;
      END LOOP;
      CONTINUE WHEN a_full[i] IS NOT NULL;
      granted := true;
    END IF;
    FOR k IN p_first[i] .. p_last[i] LOOP
      CONTINUE WHEN v_turn[k] > p_turn[i] AND (p_back[i] OR v_until[k] > p_now);
      CONTINUE WHEN p_back[i] AND v_turn[k] IS NULL;
      b := p_bucket[k];
      v_touched[b] := true;
      IF v_mine[k] IS NOT NULL THEN
        v_used[b] := v_used[b] - v_mine[k];
        IF v_until[k] <= p_now THEN
          v_rest[b] := v_rest[b] - v_mine[k];
          v_until[k] := NULL;
        END IF;
      END IF;
      IF p_back[i] THEN
        v_gone[k] := true;
      ELSE
        v_used[b] := v_used[b] + p_amount[k];
        v_mine[k] := p_amount[k];
        v_until[k] := greatest(v_until[k], p_until[k]);
        v_turn[k] := greatest(v_turn[k], p_turn[i]);
        v_made[k] := true;
      END IF;
    END LOOP;
  END LOOP;
  INSERT INTO claim AS x (bucket, holder, amount, until, turn)
    SELECT p_name[p_bucket[k]], p_holder[p_of[k]], v_mine[k], v_until[k], v_turn[k] FROM generate_series(1, parts) AS k WHERE v_made[k]
    ON CONFLICT (bucket, holder) DO UPDATE SET amount = excluded.amount, until = excluded.until, turn = excluded.turn;
  DELETE FROM claim x USING (SELECT p_name[p_bucket[k]] AS bucket, p_holder[p_of[k]] AS holder FROM generate_series(1, parts) AS k
    WHERE v_gone[k]) g WHERE x.bucket = g.bucket AND x.holder = g.holder;
  INSERT INTO allowance AS a (bucket, used)
    SELECT p_name[n], v_used[n] FROM generate_series(1, cardinality(p_name)) AS n WHERE v_touched[n]
    ON CONFLICT (bucket) DO UPDATE SET used = excluded.used;
  FOR i IN 1 .. cardinality(p_holder) LOOP
    CONTINUE WHEN a_full[i] IS NULL;
    b := p_first[i] + a_full[i] - 1;
    CONTINUE WHEN p_amount[b] > p_cap[b];
    -- As all is in the end: whoever stood in the way may have given back since, or others have claimed.
    own := CASE WHEN v_until[b] > p_now THEN v_mine[b] ELSE 0 END;
    over := v_used[p_bucket[b]] - v_rest[p_bucket[b]] - own - (p_cap[b] - p_amount[b]);
    IF over <= 0 THEN a_free[i] := p_now; CONTINUE; END IF;
    FOR c IN SELECT x.until, x.amount FROM claim x WHERE x.bucket = p_name[p_bucket[b]] AND x.until > p_now AND x.holder <> p_holder[i]
      ORDER BY x.until, x.holder LIMIT 1000
    LOOP
      over := over - c.amount;
      IF over <= 0 THEN a_free[i] := c.until; EXIT; END IF;
    END LOOP;
    -- Behind very many small ones: when all of it is over.
    IF a_free[i] IS NULL THEN
      SELECT max(x.until) INTO own FROM claim x WHERE x.bucket = p_name[p_bucket[b]];
      a_free[i] := own;
    END IF;
  END LOOP;
  IF NOT granted THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  FOR i IN 1 .. cardinality(p_holder) LOOP
    full_at := a_full[i];
    held := a_held[i];
    free := a_free[i];
    RETURN NEXT;
  END LOOP;
END $$;
