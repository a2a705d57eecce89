//! Facts about the server and the other replicas, for `doctor` and readiness.

use crate::shared::Shared;
use ledger::store::StoreError;
use ledger::words::{Epoch, Millis, Time};

/// What a fact means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, with less than what could be promised.
    Warn,
    /// A promise does not hold.
    Bad,
}

/// A fact about the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at: a setting's name, or a few words.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What it means.
    pub verdict: Verdict,
    /// What to do, where something is to be done.
    pub advice: &'static str,
}

/// A replica that is alive, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its boot.
    pub epoch: Epoch,
    /// Whether it is this one.
    pub this: bool,
    /// Its name among the replicas.
    pub instance: String,
    /// Its server's name.
    pub server_name: String,
    /// Its program's version.
    pub version: String,
    /// The newest schema that its program knows.
    pub schema: u32,
    /// The hash of its configuration.
    pub fingerprint: String,
    /// Where it listens.
    pub listen: String,
    /// When it began.
    pub started_at: Time,
    /// What is left of its lease; negative if it has lapsed.
    pub lease_left: Millis,
    /// How far its machine's wall clock is ahead of the database's (negative: behind). Nothing is decided by it, but logs and certificates are.
    pub skew: Millis,
}

const SETTINGS: &str =
    "SELECT current_setting('server_version'), current_setting('synchronous_standby_names'),
  current_setting('fsync'), current_setting('full_page_writes'), current_setting('wal_level'),
  current_setting('idle_in_transaction_session_timeout'), current_setting('autovacuum'),
  (SELECT count(*) FROM pg_stat_replication), current_setting('max_connections')::bigint,
  (SELECT count(*) FROM pg_stat_activity), current_setting('archive_mode')";

/// Facts about the server's settings.
pub(crate) async fn checks(shared: &Shared) -> Result<Vec<Check>, StoreError> {
    let row = shared.write_one(SETTINGS, &[]).await?;
    let text = |n: usize| row.get::<_, String>(n);
    let on = |what, n: usize, advice| {
        let found = text(n);
        let verdict = if found == "on" { Verdict::Good } else { Verdict::Bad };
        Check { what, found, verdict, advice: if verdict == Verdict::Good { "" } else { advice } }
    };
    let mut all = vec![Check { what: "server_version", found: text(0), verdict: Verdict::Good, advice: "" }];
    let (names, standbys): (String, i64) = (text(1), row.get(7));
    all.push(match (names.is_empty(), standbys) {
        (false, _) => Check { what: "synchronous_standby_names", found: names, verdict: Verdict::Good, advice: "" },
        (true, 0) => Check {
            what: "synchronous_standby_names",
            found: "none, and no standby".into(),
            verdict: Verdict::Good,
            advice: "",
        },
        (true, n) => Check {
            what: "synchronous_standby_names",
            found: format!("none, with {n} standbys"),
            verdict: Verdict::Warn,
            advice: "a failover to a standby that is not synchronous can lose acknowledged intents, and then an effect can happen twice: name the standby in synchronous_standby_names",
        },
    });
    all.push(on("fsync", 2, "what is acknowledged can be lost in a power cut: set fsync = on"));
    all.push(on("full_page_writes", 3, "a power cut can tear pages: set full_page_writes = on"));
    let wal = text(4);
    let replicated = wal != "minimal";
    all.push(Check {
        what: "wal_level",
        found: wal,
        verdict: if replicated { Verdict::Good } else { Verdict::Warn },
        advice: if replicated {
            ""
        } else {
            "no standby and no archive can be kept: set wal_level = replica"
        },
    });
    all.push(Check {
        what: "idle_in_transaction_session_timeout",
        found: text(5),
        verdict: Verdict::Good,
        advice: "",
    });
    all.push(on("autovacuum", 6, "tables grow without end: set autovacuum = on"));
    let archive = text(10);
    let archived = archive != "off";
    all.push(Check {
        what: "archive_mode",
        found: archive,
        verdict: if archived { Verdict::Good } else { Verdict::Warn },
        advice: if archived {
            ""
        } else {
            "no restore to a point in time: set archive_mode = on and archive_command"
        },
    });
    let (most, used): (i64, i64) = (row.get(8), row.get(9));
    let tight = used * 10 > most * 9;
    all.push(Check {
        what: "max_connections",
        found: format!("{used} of {most} in use"),
        verdict: if tight { Verdict::Warn } else { Verdict::Good },
        advice: if tight { "a replica takes seven connections: raise max_connections" } else { "" },
    });
    Ok(all)
}

/// The replicas that are alive, in the order of their epochs.
pub(crate) async fn replicas(shared: &Shared) -> Result<Vec<Replica>, StoreError> {
    let rows = shared
        .write_all(
            "SELECT epoch, instance, server_name, version, fingerprint, listen, started_at, lease_until - ledger_clock(), skew_ms, knows
             FROM replica WHERE ended_at IS NULL ORDER BY epoch",
            &[],
        )
        .await?;
    let mine = shared.epoch();
    Ok(rows
        .iter()
        .map(|r| {
            let epoch = Epoch(r.get::<_, i64>(0).cast_unsigned());
            Replica {
                epoch,
                this: epoch == mine,
                instance: r.get(1),
                server_name: r.get(2),
                version: r.get(3),
                fingerprint: r.get(4),
                listen: r.get(5),
                started_at: Time(r.get(6)),
                lease_left: Millis(r.get(7)),
                skew: Millis(r.get(8)),
                schema: r.get::<_, i32>(9).unsigned_abs(),
            }
        })
        .collect())
}
