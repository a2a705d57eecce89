-- Claims on allowances. Beside the claims each bucket has their sum, so that what a claim costs does not grow with how many
-- there are.

CREATE TABLE allowance (
  bucket text COLLATE "C" PRIMARY KEY,
  used bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE claim (
  bucket text COLLATE "C" NOT NULL,
  holder uuid NOT NULL,
  amount bigint NOT NULL,
  until bigint NOT NULL,
  turn bigint NOT NULL,
  PRIMARY KEY (bucket, holder)
);
CREATE INDEX claim_over ON claim (bucket, until, holder) INCLUDE (amount);
CREATE INDEX claim_until ON claim (until, bucket);

-- The lock of a bucket. Whoever takes several takes them in the order of these numbers, so that nobody waits in a ring.
CREATE FUNCTION bucket_lock_1(p_bucket text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT hashtextextended(current_schema() || '.bucket.' || p_bucket, 0) $$;

-- Takes up to 256 claims that are over off a bucket whose lock is held. How many there were.
CREATE FUNCTION bucket_clear_1(p_bucket text, p_now bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  gone bigint;
  went bigint;
BEGIN
  WITH over AS (
    DELETE FROM claim c USING (SELECT holder FROM claim WHERE bucket = p_bucket AND until <= p_now ORDER BY until, holder LIMIT 256) o
    WHERE c.bucket = p_bucket AND c.holder = o.holder RETURNING c.amount
  ) SELECT coalesce(sum(amount), 0)::bigint, count(*) INTO gone, went FROM over;
  IF went > 0 THEN
    UPDATE allowance SET used = used - gone WHERE bucket = p_bucket;
  END IF;
  RETURN went;
END $$;

-- Claims all of this for one holder, or nothing: then `full` is the place, from 1 on, of the first that does not fit, `held` what
-- others have of it, and `free` when enough of that is over. Nothing waits for the disk here: what is written afterwards does,
-- and everything before it with it.
CREATE FUNCTION claim_1(p_now bigint, p_holder uuid, p_turn bigint, p_bucket text[], p_amount bigint[], p_cap bigint[],
  p_until bigint[], OUT full_at integer, OUT held bigint, OUT free bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c record;
  h record;
  mine bigint;
  rest bigint;
  over bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR c IN SELECT DISTINCT bucket_lock_1(b) AS lock FROM unnest(p_bucket) AS b ORDER BY lock LOOP
    PERFORM pg_advisory_xact_lock(c.lock);
  END LOOP;
  FOR c IN SELECT * FROM unnest(p_bucket, p_amount, p_cap) WITH ORDINALITY AS u (bucket, amount, cap, n) ORDER BY n LOOP
    rest := 0;
    IF bucket_clear_1(c.bucket, p_now) >= 256 THEN
      -- More is over than goes at once: it counts no more all the same.
      SELECT coalesce(sum(amount), 0) INTO rest FROM claim WHERE bucket = c.bucket AND until <= p_now;
    END IF;
    SELECT amount INTO mine FROM claim WHERE bucket = c.bucket AND holder = p_holder AND until > p_now;
    SELECT coalesce((SELECT used FROM allowance WHERE bucket = c.bucket), 0) - rest - coalesce(mine, 0) INTO held;
    -- Neither is below zero, so this stays within its type where their sum would not.
    CONTINUE WHEN c.amount <= c.cap - held;
    full_at := c.n;
    IF c.amount <= c.cap THEN
      over := held - (c.cap - c.amount);
      FOR h IN SELECT until, amount FROM claim WHERE bucket = c.bucket AND until > p_now AND holder <> p_holder ORDER BY until, holder
        LIMIT 1000
      LOOP
        over := over - h.amount;
        IF over <= 0 THEN free := h.until; EXIT; END IF;
      END LOOP;
      -- Behind very many small ones: when all of it is over.
      IF free IS NULL THEN SELECT max(until) INTO free FROM claim WHERE bucket = c.bucket; END IF;
    END IF;
    RETURN;
  END LOOP;
  held := NULL;
  FOR c IN SELECT * FROM unnest(p_bucket, p_amount, p_until) AS u (bucket, amount, until) LOOP
    SELECT amount INTO mine FROM claim WHERE bucket = c.bucket AND holder = p_holder;
    INSERT INTO claim AS o (bucket, holder, amount, until, turn) VALUES (c.bucket, p_holder, c.amount, c.until, p_turn)
      ON CONFLICT (bucket, holder) DO UPDATE SET amount = excluded.amount, until = excluded.until, turn = greatest(o.turn, excluded.turn);
    INSERT INTO allowance AS a (bucket, used) VALUES (c.bucket, c.amount)
      ON CONFLICT (bucket) DO UPDATE SET used = a.used + c.amount - coalesce(mine, 0);
  END LOOP;
END $$;

-- Gives back what a holder has of these buckets, unless it claimed in a later turn. How many claims went.
CREATE FUNCTION release_claims_1(p_holder uuid, p_turn bigint, p_bucket text[]) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c record;
  gone bigint;
  went bigint := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR c IN SELECT DISTINCT bucket_lock_1(b) AS lock FROM unnest(p_bucket) AS b ORDER BY lock LOOP
    PERFORM pg_advisory_xact_lock(c.lock);
  END LOOP;
  FOR c IN SELECT DISTINCT b AS bucket FROM unnest(p_bucket) AS b LOOP
    DELETE FROM claim WHERE bucket = c.bucket AND holder = p_holder AND turn <= p_turn RETURNING amount INTO gone;
    IF FOUND THEN
      UPDATE allowance SET used = used - gone WHERE bucket = c.bucket;
      went := went + 1;
    END IF;
  END LOOP;
  RETURN went;
END $$;

-- Removes up to `p_limit` claims that are over, and the sums of buckets of which nothing is held. A bucket that somebody is at is
-- left to them. How many went.
CREATE FUNCTION prune_claims_1(p_now bigint, p_limit bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  c record;
  gone bigint;
  n bigint;
  went bigint := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR c IN SELECT bucket, count(*) AS n FROM (SELECT bucket FROM claim WHERE until <= p_now ORDER BY until, bucket LIMIT p_limit) o
    GROUP BY bucket ORDER BY bucket
  LOOP
    CONTINUE WHEN NOT pg_try_advisory_xact_lock(bucket_lock_1(c.bucket));
    WITH over AS (
      DELETE FROM claim d USING (SELECT holder FROM claim WHERE bucket = c.bucket AND until <= p_now ORDER BY until, holder LIMIT c.n) o
      WHERE d.bucket = c.bucket AND d.holder = o.holder RETURNING d.amount
    ) SELECT coalesce(sum(amount), 0)::bigint, count(*) INTO gone, n FROM over;
    UPDATE allowance SET used = used - gone WHERE bucket = c.bucket;
    DELETE FROM allowance a WHERE a.bucket = c.bucket AND NOT EXISTS (SELECT 1 FROM claim d WHERE d.bucket = c.bucket);
    went := went + n;
  END LOOP;
  RETURN went;
END $$;
