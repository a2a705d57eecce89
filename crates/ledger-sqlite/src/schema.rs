//! Settings, tables and migrations, and which programs may work on what they make.
//!
//! A record is a narrow row with the columns that are searched, and the record itself as JSON; payloads are
//! appended to a table of their own, so that an update of a record moves none of them. The slot and key
//! indexes are the only ones at random places, and are tables of their own, which get many entries at once (see
//! [`crate::index`]); everything else grows at its end or stays small (the partial indexes hold only what wants attention, waits for a person, or has ended). A session's subscriptions are rows of
//! their own, so that marking its use moves none of them.

use crate::OpenError;
use crate::clock::Mark;
use crate::record::Counters;
use ledger::Env;
use ledger::gaps::Gaps;
use ledger::keys::Secret;
use ledger::store::Identity;
use ledger::words::{Epoch, Time};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use std::path::PathBuf;
use std::time::Duration;

/// Marks the file (`PRAGMA application_id`): "CFL1".
const APPLICATION: i32 = 0x4346_4c31;

/// A step of the schema.
struct Migration {
    /// The oldest schema whose programs go on working on a ledger after this step, so that one can go back to them. One
    /// that only adds leaves it where it was; one that takes something away, or gives it another meaning, raises it.
    compatible_from: u32,
    sql: &'static str,
}

/// Each entry lifts the schema by one. Entries never change once released: what comes later is an entry of its own.
const MIGRATIONS: [Migration; 6] = [
    Migration { compatible_from: 1, sql: FIRST },
    Migration { compatible_from: 2, sql: SESSIONS },
    // Programs of earlier schemas ask for exactly their own.
    Migration { compatible_from: 3, sql: CLOCK },
    Migration { compatible_from: 3, sql: HANDLES },
    // Programs of earlier schemas would not find the keys that are not in the table yet.
    Migration { compatible_from: 5, sql: INDEXES },
    // Programs of the schema before leave records that hold claims alone, by their form.
    Migration { compatible_from: 5, sql: CLAIMS },
];

const FIRST: &str = "
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  name TEXT NOT NULL,
  secret BLOB NOT NULL,
  shards INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  high_water INTEGER NOT NULL,
  clock_step INTEGER,
  counts TEXT NOT NULL
) STRICT;
CREATE TABLE op (
  seq INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  key_hash BLOB,
  slot_hash BLOB NOT NULL,
  principal TEXT NOT NULL,
  tool TEXT NOT NULL,
  state INTEGER NOT NULL,
  delivery INTEGER NOT NULL,
  version INTEGER NOT NULL,
  stamp INTEGER NOT NULL,
  owner_epoch INTEGER NOT NULL,
  caller_epoch INTEGER NOT NULL,
  attention INTEGER,
  expires_at INTEGER,
  record TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX op_id ON op (id);
CREATE UNIQUE INDEX op_key ON op (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX op_principal ON op (principal, id);
CREATE INDEX op_attention ON op (attention, id, owner_epoch, caller_epoch) WHERE attention IS NOT NULL;
CREATE INDEX op_expires ON op (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX op_waiting ON op (id) WHERE state = 3 OR state = 7 OR delivery = 3;
CREATE TABLE op_blob (
  seq INTEGER PRIMARY KEY,
  op_seq INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX op_blob_of ON op_blob (op_seq, kind);
CREATE TABLE slot (slot_hash BLOB PRIMARY KEY, op_seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tombstone (id BLOB PRIMARY KEY, key_hash BLOB, at INTEGER NOT NULL, record TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX tombstone_key ON tombstone (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX tombstone_at ON tombstone (at);
CREATE TABLE api_key (id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT, WITHOUT ROWID;
";

const SESSIONS: &str = "
CREATE TABLE session (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  principal TEXT NOT NULL,
  revision TEXT NOT NULL,
  log_level TEXT,
  opened_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  client TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX session_id ON session (id);
CREATE INDEX session_used ON session (used_at);
CREATE INDEX session_principal ON session (principal, used_at, id);
CREATE TABLE session_uri (session_seq INTEGER NOT NULL, uri TEXT NOT NULL, PRIMARY KEY (session_seq, uri)) STRICT, WITHOUT ROWID;
";

const CLOCK: &str = "
ALTER TABLE meta ADD COLUMN boot TEXT;
ALTER TABLE meta ADD COLUMN elapsed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN skew INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN gaps TEXT NOT NULL DEFAULT '[]';
";

const HANDLES: &str = "
CREATE TABLE handle (
  id_hash BLOB NOT NULL,
  principal TEXT NOT NULL,
  kind TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  idle INTEGER NOT NULL,
  absolute INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  value BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX handle_id ON handle (id_hash);
CREATE INDEX handle_principal ON handle (principal, id_hash, kind, expires_at);
CREATE INDEX handle_expires ON handle (expires_at);
CREATE TABLE shelf (
  name TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  until INTEGER,
  data BLOB NOT NULL
) STRICT;
CREATE INDEX shelf_until ON shelf (until, name) WHERE until IS NOT NULL;
";

const INDEXES: &str = "
CREATE TABLE op_by_key (key_hash BLOB PRIMARY KEY, op_seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO op_by_key (key_hash, op_seq) SELECT key_hash, seq FROM op WHERE key_hash IS NOT NULL ORDER BY key_hash;
DROP INDEX op_key;
ALTER TABLE meta ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET indexed = (SELECT coalesce(max(seq), 0) FROM op);
";

const CLAIMS: &str = "
CREATE TABLE allowance (bucket TEXT PRIMARY KEY, used INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE claim (
  bucket TEXT NOT NULL,
  holder BLOB NOT NULL,
  amount INTEGER NOT NULL,
  until INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  PRIMARY KEY (bucket, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX claim_over ON claim (bucket, until, holder, amount);
CREATE INDEX claim_until ON claim (until, bucket);
";

/// The newest schema this program knows.
pub(crate) const LATEST: u32 = MIGRATIONS.len() as u32;

/// What the ledger knows about itself when it is opened.
pub(crate) struct Meta {
    pub identity: Identity,
    pub epoch: Epoch,
    pub mark: Mark,
    pub gaps: Gaps,
    pub counts: Counters,
}

/// Where the database is.
#[derive(Clone)]
pub(crate) struct Place {
    pub path: PathBuf,
    #[cfg(feature = "faults")]
    pub vfs: Option<String>,
}

impl Place {
    fn connect(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        #[cfg(feature = "faults")]
        if let Some(vfs) = &self.vfs {
            return Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str());
        }
        Connection::open_with_flags(&self.path, flags)
    }
}

fn open(place: &Place, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let db = place.connect(flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE)?;
    db.busy_timeout(Duration::from_secs(5))?;
    // Nothing checkpoints but when the writer says so: least of all a connection closing after an error.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

/// A connection that can only read.
pub(crate) fn reader(place: &Place) -> rusqlite::Result<Connection> {
    let db = open(place, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // Every commit empties a reader's cache at its next read, and that costs the more, the larger it ever was.
    db.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -1024;")?;
    Ok(db)
}

/// A connection that copies the log, and syncs as the writer's does.
pub(crate) fn copier(place: &Place) -> rusqlite::Result<Connection> {
    let db = open(place, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.execute_batch(&format!("{SYNCED} PRAGMA temp_store = MEMORY; PRAGMA cache_size = -64;"))?;
    db.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    Ok(db)
}

/// The writer's connection, after checking that the file is ours and not newer than we are.
pub(crate) fn writer(place: &Place) -> Result<Connection, OpenError> {
    let db = open(place, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let pragma = |name: &str| db.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).map_err(foreign);
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0)).map_err(foreign)?;
    let empty = application == 0 && version == 0 && tables == 0;
    if !empty && application != i64::from(APPLICATION) {
        return Err(OpenError::NotALedger);
    }
    let found = u32::try_from(version).map_err(|_| OpenError::NotALedger)?;
    if found > LATEST {
        let needed = compatible_from(&db, found).map_err(foreign)?;
        if needed > LATEST {
            return Err(OpenError::Newer { found, needed, known: LATEST });
        }
        tracing::warn!(
            "the ledger's schema {found} is newer than this program's {LATEST}, and made so that this program may work on it"
        );
    }
    configure(&db)?;
    Ok(db)
}

/// The oldest schema whose programs may work on a ledger of schema `found`: what each step said, kept beside the version.
fn compatible_from(db: &Connection, found: u32) -> rusqlite::Result<u32> {
    let told: i64 = db.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migration'",
        [],
        |r| r.get(0),
    )?;
    if told == 0 {
        return Ok(found);
    }
    // The step that led here says so too, or it knows nothing of this.
    let sql = "SELECT CASE WHEN max(version) = ?1 THEN max(compatible_from) END FROM migration";
    db.query_row(sql, [found], |r| r.get::<_, Option<u32>>(0)).map(|n| n.unwrap_or(found))
}

fn foreign(error: rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::NotALedger,
        _ => error.into(),
    }
}

/// What is synced when. `fullfsync` matters on macOS only, where a plain fsync stops at the drive's cache.
const SYNCED: &str = "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;";

/// Settings of the writer; those that durability rests on are read back.
fn configure(db: &Connection) -> Result<(), OpenError> {
    {
        // To its end: the change is committed after the row with the new mode was given, and that can fail.
        let mut set = db.prepare("PRAGMA journal_mode = WAL")?;
        let mut rows = set.query([])?;
        while rows.next()?.is_some() {}
    }
    if db.pragma_query_value(None, "journal_mode", |r| r.get::<_, String>(0))? != "wal" {
        return Err(OpenError::Unsafe("write-ahead logging"));
    }
    db.execute_batch(&format!(
        "{SYNCED} PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536; PRAGMA foreign_keys = OFF;"
    ))?;
    // The log stays allocated: overwriting a file syncs in half the time of growing one.
    for set in ["PRAGMA wal_autocheckpoint = 0", "PRAGMA journal_size_limit = -1"] {
        db.query_row(set, [], |_| Ok(()))?;
    }
    if db.pragma_query_value(None, "synchronous", |r| r.get::<_, i64>(0))? != 2 {
        return Err(OpenError::Unsafe("synchronous=FULL"));
    }
    Ok(())
}

/// Brings the tables up to date, makes the identity of a new ledger, and reads what it knows about itself.
pub(crate) fn migrate(db: &mut Connection, name: &str, env: &dyn Env, wall: i64) -> Result<Meta, OpenError> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = tx.pragma_query_value(None, "user_version", |r| r.get(0))?;
    for (next, step) in (1_u32..).zip(&MIGRATIONS).skip(version as usize) {
        tx.execute_batch(step.sql)?;
        tx.execute_batch(
            "CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, compatible_from INTEGER NOT NULL) STRICT",
        )?;
        tx.execute("INSERT INTO migration VALUES (?1, ?2)", params![next, step.compatible_from])?;
        tx.pragma_update(None, "user_version", next)?;
    }
    if version == 0 {
        tx.pragma_update(None, "application_id", APPLICATION)?;
        let mut secret = [0; 32];
        env.random(&mut secret);
        tx.execute(
            "INSERT INTO meta (one, name, secret, shards, created_at, epoch, high_water, counts) VALUES (1, ?1, ?2, 1, ?3, 0, ?3, ?4)",
            params![name, secret, wall, Counters::default().text()],
        )?;
    }
    let meta = tx.query_row(
        "SELECT name, secret, epoch, high_water, clock_step, boot, elapsed, skew, gaps, counts FROM meta",
        [],
        |r| {
            Ok(Meta {
                identity: Identity { name: r.get(0)?, secret: Secret(r.get(1)?) },
                epoch: Epoch(r.get::<_, i64>(2)?.cast_unsigned()),
                mark: Mark {
                    high_water: Time(r.get(3)?),
                    step: r.get::<_, Option<i64>>(4)?.map(Time),
                    boot: r.get(5)?,
                    elapsed: r.get(6)?,
                    skew: r.get(7)?,
                },
                gaps: serde_json::from_str(&r.get::<_, String>(8)?)
                    .map_err(|_| rusqlite::Error::InvalidQuery)?,
                counts: Counters::parse(&r.get::<_, String>(9)?).ok_or(rusqlite::Error::InvalidQuery)?,
            })
        },
    )?;
    tx.commit()?;
    Ok(meta)
}

/// Makes this start's epoch durable, with the time it begins at.
pub(crate) fn begin(db: &Connection, epoch: Epoch, mark: &Mark, gaps: &Gaps) -> rusqlite::Result<()> {
    let gaps = serde_json::to_string(gaps).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    db.execute(
        "UPDATE meta SET epoch = ?1, high_water = ?2, clock_step = ?3, boot = ?4, elapsed = ?5, skew = ?6, gaps = ?7",
        params![
            epoch.0.cast_signed(),
            mark.high_water.0,
            mark.step.map(|t| t.0),
            mark.boot,
            mark.elapsed,
            mark.skew,
            gaps
        ],
    )?;
    Ok(())
}
