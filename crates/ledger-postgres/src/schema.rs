//! Tables and functions, their versions, and how a boot begins.

use crate::clock::{Reading, elapsed};
use crate::link::Conn;
use crate::{Config, FAILOVER_WITHIN, Failover, OpenError};
use ledger::Env;
use ledger::gaps::{Gap, Gaps};
use ledger::keys::Secret;
use ledger::store::Identity;
use ledger::words::{Epoch, Time};
use tokio_postgres::Client;

/// A step of the schema.
pub(crate) struct Migration {
    /// The oldest schema whose programs go on working on a ledger after this step. One that only adds leaves it where it
    /// was; one that takes something away, or gives it another meaning, raises it, and is refused while replicas of
    /// older programs are alive.
    pub compatible_from: u32,
    pub sql: &'static str,
}

/// Each entry lifts the schema by one. Entries never change once released. What comes later is an entry of its own, in a
/// file of its own; a function that changes gets another number in its name, and the old one stays for older programs.
const MIGRATIONS: [Migration; 7] = [
    Migration {
        compatible_from: 1,
        sql: concat!(
            include_str!("../sql/0001.sql"),
            include_str!("../sql/write.sql"),
            include_str!("../sql/tend.sql")
        ),
    },
    // Programs of the first schema don't keep what they don't know of a record: a task would be lost.
    Migration { compatible_from: 2, sql: include_str!("../sql/0002.sql") },
    Migration { compatible_from: 2, sql: include_str!("../sql/0003.sql") },
    Migration { compatible_from: 2, sql: include_str!("../sql/0004.sql") },
    Migration { compatible_from: 2, sql: include_str!("../sql/0005.sql") },
    // Programs of the schema before leave records that hold claims alone, by their form.
    Migration { compatible_from: 2, sql: include_str!("../sql/0006.sql") },
    Migration { compatible_from: 2, sql: include_str!("../sql/0007.sql") },
];

/// How many there are.
#[cfg(feature = "failpoints")]
pub(crate) const OWN: u32 = MIGRATIONS.len() as u32;

/// All steps that this program knows.
fn migrations() -> Vec<&'static Migration> {
    let all = MIGRATIONS.iter();
    #[cfg(feature = "failpoints")]
    let all = all.chain(crate::newer::step());
    all.collect()
}

/// The newest schema this program knows.
pub(crate) fn latest() -> u32 {
    u32::try_from(migrations().len()).unwrap_or(u32::MAX)
}

/// How long a step waits for a lock before it lets those behind it go first, and tries again.
const STEP_LOCK: &str = "SET LOCAL lock_timeout = '2s'";
/// Tries of a step that others were in the way of.
const STEP_TRIES: u32 = 30;

/// What a ledger says of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    version: u32,
    /// The oldest schema whose programs may work on it.
    compatible_from: u32,
}

/// A row that doesn't say is from a program that asked for its own schema.
const FOUND: &str =
    "SELECT coalesce(max(version), 0), coalesce(max(coalesce(compatible_from, version)), 0) FROM migration";

async fn found(client: &Client) -> Result<Found, OpenError> {
    let row = client.query_one(FOUND, &[]).await?;
    let number = |n| u32::try_from(row.get::<_, i32>(n)).map_err(|_| OpenError::NotALedger);
    Ok(Found { version: number(0)?, compatible_from: number(1)? })
}

impl Found {
    /// Whether a program that knows up to `known` may work on it.
    fn admits(self, known: u32) -> Result<(), OpenError> {
        if self.version > known && self.compatible_from > known {
            return Err(OpenError::Newer { found: self.version, needed: self.compatible_from, known });
        }
        Ok(())
    }
}

/// Refuses a server that can't hold a ledger.
async fn fit(client: &Client) -> Result<(), OpenError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery(),
               current_setting('server_version')",
            &[],
        )
        .await?;
    if row.get::<_, i32>(0) < 140_000 {
        let version: String = row.get(3);
        return Err(OpenError::Unfit(format!(
            "the server is PostgreSQL {version}, and a ledger needs 14 or newer"
        )));
    }
    let encoding: String = row.get(1);
    if encoding != "UTF8" {
        return Err(OpenError::Unfit(format!(
            "the database's encoding is {encoding}; make one with encoding UTF8"
        )));
    }
    if row.get(2) {
        return Err(OpenError::Unfit(
            "the server is a standby, which can't be written to; give the primary's address".into(),
        ));
    }
    Ok(())
}

/// Brings the tables up to date. Several replicas may do so at once: one after the other, under a lock.
pub(crate) async fn migrate(
    client: &Client,
    schema: &str,
    config: &Config,
    env: &dyn Env,
) -> Result<(), OpenError> {
    fit(client).await?;
    let lock = format!("counterfoil.migrate.{}", config.schema);
    client.batch_execute("SET lock_timeout = '60s'").await?;
    client.query("SELECT pg_advisory_lock(hashtextextended($1, 0))", &[&lock]).await?;
    let done = migrate_locked(client, schema, config, env).await;
    client.query("SELECT pg_advisory_unlock(hashtextextended($1, 0))", &[&lock]).await?;
    done
}

async fn migrate_locked(
    client: &Client,
    schema: &str,
    config: &Config,
    env: &dyn Env,
) -> Result<(), OpenError> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
               EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'migration'),
               EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1),
               EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = $1 AND c.relname = 'migration' AND a.attname = 'compatible_from')",
            &[&config.schema],
        )
        .await?;
    let (there, ours, used): (bool, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if used && !ours {
        return Err(OpenError::NotALedger);
    }
    if !ours && !config.make {
        return Err(OpenError::Missing);
    }
    if !there {
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    if !ours {
        client
            .batch_execute(
                "CREATE TABLE migration (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), compatible_from integer)",
            )
            .await?;
    } else if !row.get::<_, bool>(3) {
        client
            .batch_execute("ALTER TABLE migration ADD COLUMN IF NOT EXISTS compatible_from integer")
            .await?;
    }
    let found = found(client).await?;
    found.admits(latest())?;
    if found.version > latest() {
        tracing::warn!(
            "the ledger's schema {} is newer than this program's {}, and made so that this program may work on it",
            found.version,
            latest()
        );
    }
    let steps: Vec<(u32, &Migration)> = (1_u32..).zip(migrations()).skip(found.version as usize).collect();
    // Before the first of them: nothing is changed where the last of them can't be made.
    let needed = steps.iter().map(|(_, m)| m.compatible_from).max().unwrap_or(0);
    if needed > found.compatible_from && found.version > 0 {
        nobody_older(client, needed).await?;
    }
    for (version, step) in steps {
        make(client, version, step, found.compatible_from).await?;
    }
    let mut secret = [0; 32];
    env.random(&mut secret);
    client
        .execute(
            "INSERT INTO meta (one, name, secret, created_at, high_water, shift) SELECT 1, $1, $2, c, c, 0
             FROM (SELECT ledger_clock() AS c) n ON CONFLICT (one) DO NOTHING",
            &[&config.name, &secret.as_slice()],
        )
        .await?;
    Ok(())
}

/// The boots that know less than `$1` and have not ended; the column came with the second schema.
const OLDER: &str = "SELECT r.epoch, coalesce(nullif(r.listen, ''), r.instance), r.version, r.lease_until >= ledger_clock()
  FROM replica r WHERE r.ended_at IS NULL AND coalesce((to_jsonb(r) ->> 'knows')::integer, 1) < $1 ORDER BY r.epoch";

/// Refuses if a replica is alive that could not go on at schema `needed`, and ends those that are silent: if one of them
/// wakes, it finds that it may not begin again.
async fn nobody_older(client: &Client, needed: u32) -> Result<Vec<i64>, OpenError> {
    let needed = i32::try_from(needed).unwrap_or(i32::MAX);
    let older = client.query(OLDER, &[&needed]).await?;
    let alive: Vec<String> = older
        .iter()
        .filter(|r| r.get(3))
        .map(|r| format!("{} ({})", r.get::<_, &str>(1), r.get::<_, &str>(2)))
        .collect();
    if alive.is_empty() {
        return Ok(older.iter().map(|r| r.get(0)).collect());
    }
    let more = alive.len().saturating_sub(NAMED);
    let mut names = alive.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        names += &format!(" and {more} more");
    }
    Err(OpenError::OlderAlive { needed: needed.unsigned_abs(), names })
}

/// How many replicas a refusal names.
const NAMED: usize = 8;

/// Makes one step, in one transaction. Who writes meanwhile is in the way for a moment, and goes first.
async fn make(client: &Client, version: u32, step: &Migration, before: u32) -> Result<(), OpenError> {
    use tokio_postgres::error::SqlState;
    let mut tries = 0;
    loop {
        client.batch_execute(&format!("BEGIN; {STEP_LOCK}")).await?;
        let done = make_inside(client, version, step, before).await;
        client.batch_execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
        match done {
            Err(Step::Refused(e))
                if tries < STEP_TRIES
                    && [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED]
                        .iter()
                        .any(|c| e.code() == Some(c)) =>
            {
                tries += 1;
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(Step::Refused(e)) => return Err(e.into()),
            Err(Step::Not(e)) => return Err(e),
            Ok(()) => return Ok(()),
        }
    }
}

enum Step {
    Refused(tokio_postgres::Error),
    Not(OpenError),
}

impl From<tokio_postgres::Error> for Step {
    fn from(e: tokio_postgres::Error) -> Self {
        Step::Refused(e)
    }
}

async fn make_inside(client: &Client, version: u32, step: &Migration, before: u32) -> Result<(), Step> {
    if version > 1 && step.compatible_from > before {
        // No boot begins while this is decided.
        client.query("SELECT 1 FROM meta FOR UPDATE", &[]).await?;
        let silent = nobody_older(client, step.compatible_from).await.map_err(Step::Not)?;
        client
            .query(
                "SELECT end_replica_1(e, (SELECT greatest(ledger_clock() + shift, high_water) FROM meta)) FROM unnest($1::bigint[]) AS e",
                &[&silent],
            )
            .await?;
    }
    client.batch_execute(step.sql).await?;
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [
        &i32::try_from(version).unwrap_or(i32::MAX),
        &i32::try_from(step.compatible_from).unwrap_or(i32::MAX),
    ];
    client.execute("INSERT INTO migration (version, compatible_from) VALUES ($1, $2)", &row).await?;
    Ok(())
}

/// What a boot begins with.
pub(crate) struct Begun {
    pub epoch: Epoch,
    pub identity: Identity,
    pub reading: Reading,
    pub shift: i64,
    pub step: Option<Time>,
    pub high_water: Time,
    pub held: Option<String>,
    pub gaps: Gaps,
}

/// This cluster's number and timeline; a server that does not tell leaves them out.
pub(crate) const ORIGIN: &str = "SELECT (SELECT system_identifier::text FROM pg_control_system()), ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint";

/// Why a ledger that was used on one timeline and is found on another is held; `unused` for how long it was not, in
/// milliseconds.
pub(crate) fn timeline_changed(
    config: &Config,
    known: Option<i64>,
    here: Option<i64>,
    unused: i64,
) -> Option<String> {
    let (known, here) = (known?, here?);
    if known == here || (config.failover == Failover::Synchronous && unused <= FAILOVER_WITHIN.0) {
        return None;
    }
    Some(format!(
        "the server's timeline changed from {known} to {here}: a standby was promoted, or a backup put back"
    ))
}

/// Why a ledger found in this cluster on this timeline is held.
fn suspicion(
    config: &Config,
    known: (Option<String>, Option<i64>),
    here: (&Option<String>, Option<i64>),
    unused: i64,
) -> Option<String> {
    if let (Some(known), Some(here)) = (&known.0, here.0)
        && known != here
    {
        return Some("it was put into another cluster".to_owned());
    }
    timeline_changed(config, known.1, here.1, unused)
}

/// Registers a boot: its epoch, its lease, and whether the ledger is where it was. `fresh`: this replica watched no clock
/// before.
pub(crate) async fn begin(
    conn: &Conn,
    config: &Config,
    instance: &str,
    restored: bool,
    fresh: bool,
) -> Result<Begun, OpenError> {
    let client = &conn.client;
    let here = match client.query_one(ORIGIN, &[]).await {
        Ok(row) => (row.get::<_, Option<String>>(0), row.get::<_, Option<i64>>(1)),
        Err(e) if crate::is_definite(&e) => {
            tracing::warn!(
                "the server does not tell its cluster and timeline, so a restored ledger is not noticed: {}",
                crate::describe(&e)
            );
            (None, None)
        }
        Err(e) => return Err(e.into()),
    };
    client.batch_execute("BEGIN").await?;
    let done = begin_inside(client, config, instance, restored, fresh, here).await;
    client.batch_execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    done
}

async fn begin_inside(
    client: &Client,
    config: &Config,
    instance: &str,
    restored: bool,
    fresh: bool,
    here: (Option<String>, Option<i64>),
) -> Result<Begun, OpenError> {
    // The lock first: what is read of the clock must not have waited.
    let meta = client
        .query_one("SELECT name, secret, high_water, shift, clock_step, system_identifier, timeline, held, gaps,
               EXISTS (SELECT 1 FROM replica WHERE ended_at IS NULL AND lease_until >= ledger_clock()) FROM meta FOR UPDATE", &[])
        .await?;
    // A newer program may have changed the schema since this one looked.
    found(client).await?.admits(latest())?;
    let sent = elapsed();
    let clock: i64 = client.query_one("SELECT ledger_clock()", &[]).await?.get(0);
    let reading = Reading { sent, arrived: elapsed(), clock };
    let (high_water, mut shift): (i64, i64) = (meta.get(2), meta.get(3));
    let mut step: Option<i64> = meta.get(4);
    let ahead = clock + shift - high_water;
    if ahead < -config.clock_margin.0 {
        tracing::warn!(
            "the database's clock is behind the ledger's time: replays of open intents are over, their quarantines begin now"
        );
        shift -= ahead;
        step = step.max(Some(high_water));
    }
    let mut gaps: Gaps = serde_json::from_str(meta.get(8)).unwrap_or_default();
    if fresh && !meta.get::<_, bool>(9) && ahead > config.clock_margin.0 {
        // Nobody saw whether this time passed, or the clock was set.
        gaps.add(Gap { from: Time(high_water), to: Time(clock + shift) });
    }
    let kept = serde_json::to_string(&gaps).unwrap_or_else(|_| "[]".into());
    let known = (meta.get::<_, Option<String>>(5), meta.get::<_, Option<i64>>(6));
    let mut held: Option<String> = meta.get(7);
    if held.is_none() {
        held = suspicion(config, known, (&here.0, here.1), ahead)
            .or_else(|| restored.then(|| "it was said to be restored".to_owned()));
    }
    client
        .execute(
            "UPDATE meta SET high_water = greatest(high_water, $1), shift = $2, clock_step = $3, held = $4,
               system_identifier = coalesce($5, system_identifier), timeline = coalesce($6, timeline), gaps = $7",
            &[&(clock + shift), &shift, &step, &held, &here.0, &here.1, &kept],
        )
        .await?;
    let d = &config.description;
    let knows = i32::try_from(latest()).unwrap_or(i32::MAX);
    let epoch: i64 = client
        .query_one(
            "INSERT INTO replica (epoch, instance, started_at, lease_ms, lease_until, beats, skew_ms, server_name, version, fingerprint, listen, knows)
             VALUES (nextval('replica_epoch'), $1, $2, $3, ledger_clock() + $3, 0, 0, $4, $5, $6, $7, $8) RETURNING epoch",
            &[&instance, &(clock + shift), &config.lease.0, &d.server_name, &d.version, &d.fingerprint, &d.listen, &knows],
        )
        .await?
        .get(0);
    let secret: Vec<u8> = meta.get(1);
    Ok(Begun {
        epoch: Epoch(epoch.cast_unsigned()),
        identity: Identity { name: meta.get(0), secret: Secret(secret.try_into().unwrap_or_default()) },
        reading,
        shift,
        step: step.map(Time),
        high_water: Time(high_water),
        held,
        gaps,
    })
}

/// Ends what came before under the same name, and (`reap`) whose lease has lapsed.
pub(crate) async fn succeed(
    conn: &Conn,
    epoch: Epoch,
    instance: &str,
    now: Time,
) -> Result<(), tokio_postgres::Error> {
    let mine = epoch.0.cast_signed();
    conn.client
        .query(
            "SELECT end_replica_1(epoch, $3) FROM (SELECT epoch FROM replica WHERE instance = $1 AND epoch < $2 AND ended_at IS NULL ORDER BY epoch) r",
            &[&instance, &mine, &now.0],
        )
        .await?;
    conn.client.query("SELECT reap_1($1, $2)", &[&mine, &now.0]).await?;
    // The counts of boots that are long over become one.
    conn.client
        .execute(
            "WITH old AS (DELETE FROM tally t WHERE t.epoch <> 0 AND t.epoch < $1
               AND NOT EXISTS (SELECT 1 FROM replica r WHERE r.epoch = t.epoch AND (r.ended_at IS NULL OR r.ended_at > ledger_clock() - 3600000))
               RETURNING t.code, t.n)
             INSERT INTO tally (epoch, lane, code, n) SELECT 0, 0, code, sum(n) FROM old WHERE code <> 0 GROUP BY code ORDER BY code
             ON CONFLICT (epoch, lane, code) DO UPDATE SET n = tally.n + excluded.n",
            &[&mine],
        )
        .await?;
    Ok(())
}
