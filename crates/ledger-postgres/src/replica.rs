//! This replica among the others: its epoch, its lease, who is alive, and the looks at the clock and at where the ledger is.

use crate::clock::{Jump, LedgerClock, Reading, elapsed};
use crate::link::{Conn, lock};
use crate::shared::Shared;
use crate::{OpenError, describe, schema};
use ledger::words::{Epoch, Millis, Time};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The renewals in one lease.
const BEATS: i64 = 4;

/// How many statements the pulse has.
pub(crate) const STATEMENTS: usize = 5;
pub(crate) const RENEW: &str = "UPDATE replica SET lease_until = ledger_clock() + lease_ms, beats = beats + 1, skew_ms = $2, \
     server_name = $3, version = $4, fingerprint = $5, listen = $6 WHERE epoch = $1 AND ended_at IS NULL RETURNING ledger_clock()";
pub(crate) const MARK: &str = "UPDATE meta SET high_water = $1 WHERE high_water < $1";
pub(crate) const LOOK: &str = "SELECT shift, clock_step, held, high_water, timeline, \
     ARRAY(SELECT epoch FROM replica WHERE ended_at IS NULL), (SELECT max(epoch) FROM replica), \
     (SELECT coalesce(ended_at, ledger_clock()) > ledger_clock() - 1800000 FROM replica WHERE epoch = $1), \
     ARRAY[(SELECT n FROM tally WHERE epoch = $1 AND lane = 0 AND code = 0), (SELECT n FROM tally WHERE epoch = $1 AND lane = 1 AND code = 0)], \
     ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint FROM meta";
pub(crate) const REAP: &str = "SELECT reap_1($1, $2)";
/// Only one replica puts the clock right: whoever saw it first.
pub(crate) const SHIFT: &str =
    "UPDATE meta SET shift = $2, clock_step = greatest(clock_step, $3) WHERE shift = $1";

/// Who is alive.
#[derive(Default)]
struct Others {
    live: BTreeSet<u64>,
    /// The newest epoch when that was asked. A later one has only just begun.
    newest: u64,
}

pub(crate) struct Standing {
    epoch: AtomicU64,
    /// Until when this boot's lease holds, by this machine's clock.
    until: AtomicI64,
    others: RwLock<Others>,
    /// Each writer's number of its newest transaction of this boot that was acknowledged as durable.
    acknowledged: Mutex<(u64, [i64; 2])>,
    pub hurry: Notify,
    changes: watch::Sender<Epoch>,
    /// It was asked to go: no new epoch follows.
    left: AtomicBool,
    /// Why no new epoch can follow: a newer program changed the schema.
    outdated: OnceLock<String>,
}

impl Standing {
    pub fn new(epoch: Epoch, until: i64) -> Standing {
        let others = Others { live: BTreeSet::from([epoch.0]), newest: epoch.0 };
        Standing {
            epoch: AtomicU64::new(epoch.0),
            until: AtomicI64::new(until),
            others: RwLock::new(others),
            acknowledged: Mutex::default(),
            hurry: Notify::new(),
            changes: watch::Sender::new(epoch),
            left: AtomicBool::new(false),
            outdated: OnceLock::new(),
        }
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Each epoch that this replica goes on under, beginning with the present one.
    pub fn epochs(&self) -> watch::Receiver<Epoch> {
        self.changes.subscribe()
    }

    pub fn is_lapsed(&self) -> bool {
        elapsed() >= self.until.load(Ordering::Acquire)
    }

    /// Nothing is written any more, and no new epoch follows.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
        self.until.store(i64::MIN, Ordering::Release);
    }

    /// Why this program can't go on, if a newer one changed the schema.
    pub fn outdated(&self) -> Option<&str> {
        self.outdated.get().map(String::as_str)
    }

    /// Whether its lease was over a day ago: then others may have cleared away what told of it.
    fn is_long_lapsed(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until != i64::MIN && elapsed() - until > 86_400_000
    }

    /// That boot was ended by others.
    pub fn lapse(&self, epoch: Epoch) {
        if epoch == self.epoch() {
            self.until.store(i64::MIN, Ordering::Release);
            self.hurry.notify_one();
        }
    }

    pub fn is_live(&self, epoch: Epoch) -> bool {
        if epoch == self.epoch() {
            return !self.is_lapsed();
        }
        let others = self.others.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        epoch.0 != 0 && (others.live.contains(&epoch.0) || epoch.0 > others.newest)
    }

    /// Whether any other replica is known to be alive.
    pub fn has_company(&self) -> bool {
        let mine = self.epoch().0;
        let others = self.others.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        others.live.iter().any(|e| *e != mine)
    }

    pub fn heard(&self, live: Vec<i64>, newest: Option<i64>) {
        let mut others = self.others.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        others.live = live.into_iter().map(i64::cast_unsigned).collect();
        others.newest = newest.map_or(0, i64::cast_unsigned);
    }

    pub fn acknowledged(&self, epoch: Epoch, lane: i16, batch: i64) {
        let mut a = lock(&self.acknowledged);
        if a.0 != epoch.0 {
            *a = (epoch.0, [0; 2]);
        }
        if let Some(newest) = a.1.get_mut(usize::from(lane.unsigned_abs())) {
            *newest = batch.max(*newest);
        }
    }

    /// What was acknowledged under this epoch.
    fn acknowledged_of(&self, epoch: Epoch) -> [i64; 2] {
        let a = lock(&self.acknowledged);
        if a.0 == epoch.0 { a.1 } else { [0; 2] }
    }

    /// This boot's lease holds longer. Not if it was over by this machine's clock, however that of the database saw it:
    /// whoever asked meanwhile was told that this boot is gone.
    fn prolonged(&self, until: i64) -> bool {
        let longer = |held| (elapsed() < held).then_some(until);
        self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer).is_ok()
    }

    fn renewed(&self, epoch: Epoch, until: i64) {
        self.epoch.store(epoch.0, Ordering::Release);
        self.until.store(until, Ordering::Release);
        self.changes.send_if_modified(|e| std::mem::replace(e, epoch) != epoch);
    }
}

/// Renews the lease for as long as the store is open, and looks around.
pub(crate) async fn pulse(shared: Arc<Shared>) {
    let lease = shared.config.lease.0;
    let pause = Duration::from_millis((lease / BEATS).unsigned_abs().max(25));
    // Nobody is ended by a clock that was just set.
    let mut quiet_until = elapsed();
    loop {
        let _ = tokio::time::timeout(pause, shared.replica.hurry.notified()).await;
        if shared.is_closing() {
            return;
        }
        if shared.replica.left.load(Ordering::Acquire) {
            continue;
        }
        if shared.is_lapsed() {
            renew_epoch(&shared).await;
            quiet_until = elapsed() + lease;
            continue;
        }
        if let Some(until) = beat(&shared, quiet_until).await {
            quiet_until = until;
        }
    }
}

/// One renewal. When something stood in the way of ending others, until when it does.
async fn beat(shared: &Shared, quiet_until: i64) -> Option<i64> {
    let lease = shared.config.lease.0;
    let conn = shared.links.pulse.get().await.ok()?;
    let epoch = shared.epoch();
    let sent = elapsed();
    let within = Duration::from_millis((lease / 2).unsigned_abs()).min(shared.config.answer_within);
    let done = tokio::time::timeout(within, renew(shared, &conn, epoch, sent)).await;
    match done {
        Ok(Ok(None)) => {
            tracing::warn!(
                "this replica's lease is over, or others ended it: it takes a new epoch, and gives up what it ran"
            );
            shared.lapse(epoch);
            None
        }
        Ok(Ok(Some(jump))) => {
            if jump.is_none() && elapsed() >= quiet_until {
                let now = shared.clock.now().0;
                match conn.client.query(&conn.statements[3], &[&epoch.0.cast_signed(), &now]).await {
                    Ok(ended) if !ended.is_empty() => {
                        tracing::warn!("{} replicas gave no sign of life and were ended", ended.len());
                        look(shared, &conn, epoch).await.ok();
                    }
                    Ok(_) => {}
                    Err(e) => tracing::warn!("could not look for replicas that are gone: {}", describe(&e)),
                }
            }
            jump.map(|_| elapsed() + lease)
        }
        Ok(Err(e)) => {
            tracing::warn!("the lease could not be renewed: {}", describe(&e));
            None
        }
        Err(_) => {
            tracing::warn!("the database does not answer; connecting again");
            conn.give_up();
            shared.replica.hurry.notify_one();
            None
        }
    }
}

type Renewed = Option<Option<Jump>>;

/// `None`: the boot is over.
async fn renew(
    shared: &Shared,
    conn: &Conn,
    epoch: Epoch,
    sent: i64,
) -> Result<Renewed, tokio_postgres::Error> {
    let d = lock(&shared.description).clone();
    let skew = shared.skew();
    let mine = epoch.0.cast_signed();
    let row = conn
        .client
        .query_opt(
            &conn.statements[0],
            &[&mine, &skew, &d.server_name, &d.version, &d.fingerprint, &d.listen],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let reading = Reading { sent, arrived: elapsed(), clock: row.get(0) };
    // Counted from before it was sent.
    if !shared.replica.prolonged(sent + shared.config.lease.0) {
        return Ok(None);
    }
    let shift = shared.clock.shift();
    look(shared, conn, epoch).await?;
    let jump = match shared.clock.take(reading) {
        // Another replica put the clock right; not all have renewed their leases since.
        Ok(()) => (shared.clock.shift() != shift).then_some(Jump(0)),
        Err(jump) => {
            step(shared, conn, jump).await?;
            Some(jump)
        }
    };
    conn.client.execute(&conn.statements[1], &[&shared.clock.now().0]).await?;
    Ok(Some(jump))
}

/// The database's clock was set: ledger time goes on as it was, for all replicas.
async fn step(shared: &Shared, conn: &Conn, Jump(by): Jump) -> Result<(), tokio_postgres::Error> {
    let (seen, at) = (shared.clock.shift(), shared.clock.now());
    tracing::warn!(
        "the database's clock was set by about {by} ms: replays of open intents are over, their quarantines begin now"
    );
    conn.client.execute(&conn.statements[4], &[&seen, &(seen - by), &at.0]).await?;
    let row = conn.client.query_one("SELECT shift, clock_step FROM meta", &[]).await?;
    shared.clock.heard(row.get(0), row.get::<_, Option<i64>>(1).map(Time));
    Ok(())
}

/// What the database knows of clocks, replicas, and where the ledger is.
async fn look(shared: &Shared, conn: &Conn, epoch: Epoch) -> Result<(), tokio_postgres::Error> {
    let acknowledged = shared.replica.acknowledged_of(epoch);
    let row = conn.client.query_one(&conn.statements[2], &[&epoch.0.cast_signed()]).await?;
    shared.clock.heard(row.get(0), row.get::<_, Option<i64>>(1).map(Time));
    shared.replica.heard(row.get(5), row.get(6));
    let held: Option<String> = row.get(2);
    // A boot that ended long ago has no account of its own any more.
    let there = match row.get::<_, Option<bool>>(7) {
        Some(true) => {
            let kept: Vec<Option<i64>> = row.get(8);
            acknowledged.iter().zip(kept).all(|(a, kept)| kept.unwrap_or(0) >= *a)
        }
        Some(false) => true,
        None => shared.replica.is_long_lapsed(),
    };
    let (known, here): (Option<i64>, i64) = (row.get(4), row.get(9));
    if known.is_some_and(|known| known != here) {
        let unused = shared.clock.now().0 - row.get::<_, i64>(3);
        conn.client.execute("UPDATE meta SET timeline = $1", &[&here]).await?;
        if held.is_none()
            && let Some(why) = schema::timeline_changed(&shared.config, known, Some(here), unused)
        {
            return hold(shared, conn, &why).await;
        }
        tracing::warn!("another server took over");
    }
    if held.is_none() && !there {
        return hold(shared, conn, "writes are missing that were acknowledged as durable").await;
    }
    shared.set_held(held.is_some());
    Ok(())
}

async fn hold(shared: &Shared, conn: &Conn, why: &str) -> Result<(), tokio_postgres::Error> {
    tracing::error!(
        "{why}: the database may be older than the world, so new operations wait until the ledger is released"
    );
    conn.client.execute("UPDATE meta SET held = coalesce(held, $1)", &[&why]).await?;
    shared.set_held(true);
    Ok(())
}

/// Goes on under a new epoch: what ran under the old one is anybody's.
async fn renew_epoch(shared: &Shared) {
    let Ok(conn) = shared.links.pulse.get().await else { return };
    let old = shared.epoch();
    let sent = elapsed();
    let begun = async {
        // Under the old epoch first: what was lost with the database's past is noticed by it.
        look(shared, &conn, old).await?;
        let mut config = shared.config.clone();
        config.description = lock(&shared.description).clone();
        let begun = schema::begin(&conn, &config, &shared.instance, false, false).await?;
        shared.clock.heard(begun.shift, begun.step);
        // A jump that nobody has put right yet is seen at the next beat.
        let _ = shared.clock.take(begun.reading);
        let now = shared.clock.now();
        conn.client.query("SELECT end_replica_1($1, $2)", &[&old.0.cast_signed(), &now.0]).await?;
        schema::succeed(&conn, begun.epoch, &shared.instance, now).await?;
        shared.set_held(begun.held.is_some());
        Ok::<_, OpenError>(begun.epoch)
    };
    match tokio::time::timeout(shared.config.answer_within, begun).await {
        Ok(Ok(epoch)) => {
            shared.replica.renewed(epoch, sent + shared.config.lease.0);
            tracing::warn!(
                "the lease of epoch {} was over; this replica goes on under epoch {}",
                old.0,
                epoch.0
            );
            if let Err(e) = look(shared, &conn, epoch).await {
                tracing::warn!("could not look for other replicas: {}", describe(&e));
            }
        }
        Ok(Err(e @ OpenError::Newer { .. })) => {
            let why = e.to_string();
            if shared.replica.outdated.set(why.clone()).is_ok() {
                (shared.on_fatal)(why);
            }
        }
        Ok(Err(e)) => tracing::warn!("no new lease yet: {e}"),
        Err(_) => conn.give_up(),
    }
}

/// The look at the start: who is alive.
pub(crate) async fn first_look(shared: &Shared) -> Result<(), OpenError> {
    let conn = shared.links.pulse.get().await.map_err(|e| OpenError::Unreachable(e.to_string()))?;
    Ok(look(shared, &conn, shared.epoch()).await?)
}

/// How long a lease must be at least.
pub(crate) const LEAST_LEASE: Millis = Millis(300);

/// What `LedgerClock` starts from: never behind the mark.
pub(crate) fn first_clock(begun: &schema::Begun, margin: Millis) -> LedgerClock {
    let clock = LedgerClock::start(begun.reading, begun.shift, begun.step, margin);
    clock.at_least(begun.high_water);
    clock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_was_over_is_never_prolonged() {
        let standing = Standing::new(Epoch(1), elapsed() + 60_000);
        assert!(standing.prolonged(elapsed() + 120_000));
        assert!(!standing.is_lapsed());
        let lapsed = Standing::new(Epoch(1), elapsed());
        assert!(!lapsed.prolonged(elapsed() + 60_000), "the answer came too late");
        assert!(lapsed.is_lapsed() && !lapsed.is_live(Epoch(1)));
        standing.lapse(Epoch(1));
        assert!(!standing.prolonged(elapsed() + 60_000), "others ended it meanwhile");
        lapsed.renewed(Epoch(2), elapsed() + 60_000);
        assert!(lapsed.is_live(Epoch(2)), "a new epoch goes on");
    }
}
