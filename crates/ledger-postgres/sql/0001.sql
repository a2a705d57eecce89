-- The first schema. Never changes once released: what comes later is a file of its own. Functions carry a number in
-- their names, so that programs of two versions can work on one database.
--
-- Times are the ledger's, in milliseconds since the Unix epoch; ids and hashes are 128 bits, kept as uuid; the numbers
-- of states and deliveries are those of `record.rs`.

-- The database's clock. Everything that asks for the time asks this, so that a test can set it.
CREATE FUNCTION ledger_clock() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

CREATE TABLE meta (
  one smallint PRIMARY KEY CHECK (one = 1),
  name text NOT NULL,
  secret bytea NOT NULL,
  created_at bigint NOT NULL,
  -- The ledger's time never goes behind this.
  high_water bigint NOT NULL,
  -- What is added to the database's clock, because that was set.
  shift bigint NOT NULL,
  clock_step bigint,
  -- Stretches of the ledger's time that no replica watched, JSON.
  gaps text NOT NULL DEFAULT '[]',
  -- Which cluster and timeline the ledger was last used in.
  system_identifier text,
  timeline bigint,
  -- Why new operations wait.
  held text
) WITH (fillfactor = 10);

CREATE SEQUENCE replica_epoch;

-- One row a boot. A boot is over when `ended_at` is set, and never comes back.
CREATE TABLE replica (
  epoch bigint PRIMARY KEY,
  instance text NOT NULL,
  started_at bigint NOT NULL,
  lease_ms bigint NOT NULL,
  -- By the database's clock.
  lease_until bigint NOT NULL,
  ended_at bigint,
  beats bigint NOT NULL,
  skew_ms bigint NOT NULL,
  server_name text NOT NULL,
  version text NOT NULL,
  fingerprint text NOT NULL,
  listen text NOT NULL
) WITH (fillfactor = 50);

-- Narrow enough to stay on its page when it changes: no index is on a column that does.
CREATE TABLE op (
  id uuid PRIMARY KEY,
  key_hash uuid,
  slot_hash uuid NOT NULL,
  principal text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL,
  -- At the earliest then it may be pruned; `expires_at` is exact.
  prune_after bigint NOT NULL,
  expires_at bigint,
  attention bigint,
  -- Where its row in `attention` is, if it has one: at `attention`, or before it.
  low bigint,
  low_before bigint,
  version bigint NOT NULL,
  stamp bigint NOT NULL,
  owner_epoch bigint NOT NULL,
  caller_epoch bigint NOT NULL,
  -- State and delivery, and both before the last write, as one number (state * 8 + delivery).
  code smallint NOT NULL,
  code_before smallint NOT NULL,
  record text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX op_principal ON op (principal, id);
CREATE INDEX op_prune ON op (prune_after, id);

CREATE TABLE op_blob (
  op_id uuid NOT NULL,
  kind integer NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (op_id, kind)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

-- A key stays as long as a record or a tombstone has it.
CREATE TABLE op_key (key_hash uuid PRIMARY KEY, op_id uuid NOT NULL);

-- The newest operation of a (scope, fingerprint); the one before it as its writer knew it, and whether it cared.
CREATE TABLE slot (
  slot_hash uuid PRIMARY KEY,
  op_id uuid NOT NULL,
  before uuid,
  forced boolean NOT NULL
) WITH (fillfactor = 80);

-- What wants attention some time, and (at the end of time) what waits for a person: small, whatever the ledger holds.
-- A row may be early; it is put right when its time comes. A holder is the replica that looks after it just now.
CREATE TABLE attention (
  at bigint NOT NULL,
  op_id uuid NOT NULL,
  holder bigint,
  held_until bigint,
  PRIMARY KEY (at, op_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE TABLE tombstone (
  id uuid PRIMARY KEY,
  key_hash uuid,
  at bigint NOT NULL,
  record text NOT NULL
);
CREATE INDEX tombstone_at ON tombstone (at);

-- How many records are in each state: each replica adds to rows of its own. Number 0 counts its transactions.
CREATE TABLE tally (
  epoch bigint NOT NULL,
  lane smallint NOT NULL,
  code smallint NOT NULL,
  n bigint NOT NULL,
  PRIMARY KEY (epoch, lane, code)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500);

CREATE TABLE api_key (id text COLLATE "C" PRIMARY KEY, record text NOT NULL);

CREATE TABLE session (
  id text COLLATE "C" PRIMARY KEY,
  principal text COLLATE "C" NOT NULL,
  revision text NOT NULL,
  client text NOT NULL,
  log_level text,
  opened_at bigint NOT NULL,
  used_at bigint NOT NULL
);
CREATE INDEX session_principal ON session (principal);
CREATE INDEX session_used ON session (used_at, id);
CREATE TABLE session_uri (
  session_id text COLLATE "C" NOT NULL,
  uri text COLLATE "C" NOT NULL,
  PRIMARY KEY (session_id, uri)
);

CREATE TABLE outbox (
  seq bigint GENERATED ALWAYS AS IDENTITY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  at bigint NOT NULL,
  sender bigint NOT NULL,
  topic text NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (xid, seq)
);
