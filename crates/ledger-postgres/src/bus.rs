//! News between replicas, over LISTEN and NOTIFY: a doorbell.
//!
//! Nothing of it is in a ledger transaction: a commit with a NOTIFY takes a lock that all notifying commits take, so the
//! bell is rung by a connection of its own, once for whatever has gathered. Which records moved is in the notification
//! itself; notes are rows of `outbox`, and the notification only says that there are some. After a lost connection
//! hearers are told of a gap, and the notes of that time are read.

use crate::link::{Conn, Link, lock};
use crate::shared::Shared;
use crate::{describe, replica};
use ledger::Env;
use ledger::bus::{Bus, Heard, MAX_BODY, MAX_TOPIC, Note, ROOM};
use ledger::words::OperationId;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_postgres::{Notification, Row};

/// Bytes in one notification; the server takes fewer than 8,000.
const PAYLOAD: usize = 7000;
/// Ids that may wait to be sent; beyond, hearers are told of a gap.
const MOST: usize = 16_384;
/// How long notes are kept for those who are away, milliseconds. Who is away for longer hears of a gap, as everybody does
/// who was away.
const KEPT: i64 = 600_000;
/// How often notes are looked for without a bell.
const LOOK: Duration = Duration::from_secs(2);

/// Where they are among the statements of the connection that also renews the lease.
const SENDING_FROM: usize = replica::STATEMENTS;
/// Rings, and writes notes.
pub(crate) const SENDING: [&str; 3] = [
    "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p",
    "INSERT INTO outbox (at, sender, topic, body) SELECT ledger_clock(), $1, n.topic, n.body FROM unnest($2::text[], $3::text[]) AS n (topic, body)",
    "DELETE FROM outbox o USING (SELECT xid, seq FROM outbox WHERE at < ledger_clock() - $1 ORDER BY xid, seq LIMIT 1000) d
     WHERE o.xid = d.xid AND o.seq = d.seq",
];
/// Notes beyond a place; and the place before which none can appear any more. A number that is taken early may be
/// committed late, so what comes later is told from what is new by its number, not by its place.
pub(crate) const HEARING: [&str; 2] = [
    "SELECT o.seq, o.xid::text, o.xid < pg_snapshot_xmin(pg_current_snapshot()), o.sender, o.topic, o.body FROM outbox o
     WHERE (o.xid, o.seq) > ($1::text::xid8, $2) ORDER BY o.xid, o.seq LIMIT 1000",
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text",
];

#[derive(Default)]
struct Waiting {
    moved: BTreeSet<OperationId>,
    notes: Vec<Note>,
    /// Too much came at once.
    overflow: bool,
}

/// A replica's way to the others. See [`ledger::bus`].
pub struct PgBus {
    sender: i64,
    channel: String,
    waiting: Mutex<Waiting>,
    wake: Notify,
    heard: broadcast::Sender<Heard>,
}

impl PgBus {
    pub(crate) fn new(schema: &str, env: &dyn Env) -> PgBus {
        let mut random = [0; 8];
        env.random(&mut random);
        PgBus {
            sender: i64::from_le_bytes(random),
            channel: format!("counterfoil_{}", &schema[..schema.len().min(40)]),
            waiting: Mutex::default(),
            wake: Notify::new(),
            heard: broadcast::Sender::new(ROOM),
        }
    }

    fn say(&self, heard: Heard) {
        // Nobody has to listen.
        let _ = self.heard.send(heard);
    }

    /// Texts of notifications: `m`, the sender, and ids; `n` and the sender; `g` and the sender for a gap.
    fn texts(&self, w: &Waiting) -> Vec<String> {
        let head = |kind: char| format!("{kind} {}", self.sender);
        let mut texts = Vec::new();
        if w.overflow {
            texts.push(head('g'));
        }
        let mut text = String::new();
        for id in &w.moved {
            if text.is_empty() {
                text = head('m');
            }
            text += &format!(" {id}");
            if text.len() >= PAYLOAD {
                texts.push(std::mem::take(&mut text));
            }
        }
        texts.extend((!text.is_empty()).then_some(text));
        if !w.notes.is_empty() {
            texts.push(head('n'));
        }
        texts
    }
}

impl Bus for PgBus {
    fn moved(&self, id: OperationId) {
        let mut w = lock(&self.waiting);
        if w.moved.len() < MOST {
            w.moved.insert(id);
        } else {
            w.overflow = true;
        }
        drop(w);
        self.wake.notify_one();
    }
    fn tell(&self, note: Note) {
        let mut w = lock(&self.waiting);
        if note.topic.len() > MAX_TOPIC
            || note.body.len() > MAX_BODY
            || w.notes.len() >= ROOM
            || note.body.contains('\0')
            || note.topic.contains('\0')
        {
            w.overflow = true;
        } else {
            w.notes.push(note);
        }
        drop(w);
        self.wake.notify_one();
    }
    fn listen(&self) -> broadcast::Receiver<Heard> {
        self.heard.subscribe()
    }
}

/// Sends what gathers, for as long as the store is open.
pub(crate) async fn send(shared: Arc<Shared>) {
    let bus = shared.bus.clone();
    let mut swept = tokio::time::Instant::now();
    loop {
        let _ = tokio::time::timeout(Duration::from_secs(60), bus.wake.notified()).await;
        let mut w = std::mem::take(&mut *lock(&bus.waiting));
        // Alone there is nobody to ring for. (Who comes says so, see `hear`.)
        if !shared.replica.has_company() {
            w.moved.clear();
        }
        while !(w.moved.is_empty() && w.notes.is_empty() && !w.overflow) {
            if shared.is_closing() && shared.links.pulse.get().await.is_err() {
                return;
            }
            let Ok(conn) = shared.links.pulse.get().await else {
                // Whoever listens to the same database hears of a gap when it is back.
                w.overflow = true;
                w.moved.clear();
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            match tokio::time::timeout(shared.config.answer_within, send_one(&bus, &conn, &mut w)).await {
                Ok(Ok(())) => break,
                Ok(Err(e)) => {
                    tracing::debug!("news was not sent: {}", describe(&e));
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(_) => conn.give_up(),
            }
        }
        if swept.elapsed() > Duration::from_secs(60) {
            swept = tokio::time::Instant::now();
            if let Ok(conn) = shared.links.pulse.get().await {
                let _ = conn.client.execute(&conn.statements[SENDING_FROM + 2], &[&KEPT]).await;
            }
        }
        if shared.is_closing() {
            return;
        }
    }
}

async fn send_one(bus: &PgBus, conn: &Conn, w: &mut Waiting) -> Result<(), tokio_postgres::Error> {
    let texts = bus.texts(w);
    if !w.notes.is_empty() {
        let topics: Vec<&str> = w.notes.iter().map(|n| &*n.topic).collect();
        let bodies: Vec<&str> = w.notes.iter().map(|n| &*n.body).collect();
        conn.client.execute(&conn.statements[SENDING_FROM + 1], &[&bus.sender, &topics, &bodies]).await?;
        // Heard at least once: had the answer been lost, they would be written again.
        w.notes.clear();
    }
    conn.client.query(&conn.statements[SENDING_FROM], &[&bus.channel, &texts]).await?;
    Ok(())
}

/// Where the reader of the outbox is.
struct Cursor {
    xid: String,
    seq: i64,
    /// What was read beyond the place before which nothing can appear any more.
    read: HashSet<i64>,
}

/// Hears, for as long as the store is open.
pub(crate) async fn hear(shared: Arc<Shared>, mut bells: mpsc::Receiver<Notification>, link: Link) {
    let bus = shared.bus.clone();
    let listen = format!("LISTEN \"{}\"", bus.channel);
    let mut cursor: Option<Cursor> = None;
    let mut on: Option<Arc<Conn>> = None;
    loop {
        if shared.is_closing() {
            return;
        }
        let Ok(conn) = link.get().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let is_new = !on.as_ref().is_some_and(|c| Arc::ptr_eq(c, &conn));
        let asked = async {
            if is_new {
                conn.client.batch_execute(&listen).await?;
                // Those who thought they were alone ring from now on.
                conn.client
                    .query("SELECT pg_notify($1, $2)", &[&bus.channel, &format!("h {}", bus.sender)])
                    .await?;
                if cursor.is_some() {
                    bus.say(Heard::Gap);
                } else {
                    // What was written before this replica began is none of its business.
                    let xmin: String = conn.client.query_one(&conn.statements[1], &[]).await?.get(0);
                    cursor = Some(Cursor { xid: xmin, seq: 0, read: HashSet::new() });
                }
            }
            if let Some(cursor) = &mut cursor {
                read(&bus, &conn, cursor).await?;
            }
            Ok::<_, tokio_postgres::Error>(())
        };
        if conn.missed.swap(false, std::sync::atomic::Ordering::AcqRel) {
            bus.say(Heard::Gap);
        }
        match tokio::time::timeout(shared.config.answer_within, asked).await {
            Ok(Ok(())) => on = Some(conn),
            Ok(Err(e)) => {
                tracing::debug!("news could not be read: {}", describe(&e));
                conn.give_up();
                continue;
            }
            Err(_) => {
                conn.give_up();
                continue;
            }
        }
        let until = tokio::time::Instant::now() + LOOK;
        // Bells that only say that records moved need no look at the outbox.
        while let Ok(Some(bell)) = tokio::time::timeout_at(until, bells.recv()).await {
            if ring(&shared, &bus, &bell) {
                break;
            }
        }
    }
}

/// Passes on what a bell says. Whether there are notes to read.
fn ring(shared: &Shared, bus: &PgBus, bell: &Notification) -> bool {
    let mut words = bell.payload().split(' ');
    let (kind, sender) = (words.next(), words.next());
    if bell.channel() != bus.channel || sender.and_then(|s| s.parse().ok()) == Some(bus.sender) {
        return false;
    }
    match kind {
        Some("m") => words.filter_map(|w| w.parse().ok()).for_each(|id| bus.say(Heard::Moved(id))),
        Some("g") => bus.say(Heard::Gap),
        Some("h") => shared.replica.hurry.notify_one(),
        Some("n") => return true,
        _ => {}
    }
    false
}

async fn read(bus: &PgBus, conn: &Conn, cursor: &mut Cursor) -> Result<(), tokio_postgres::Error> {
    loop {
        let rows = conn.client.query(&conn.statements[0], &[&cursor.xid, &cursor.seq]).await?;
        let mut moved = false;
        for row in &rows {
            moved |= take(bus, row, cursor);
        }
        if rows.len() < 1000 || !moved {
            return Ok(());
        }
    }
}

/// Passes a note on, once. Whether the cursor moved.
fn take(bus: &PgBus, row: &Row, cursor: &mut Cursor) -> bool {
    let (seq, settled, sender): (i64, bool, i64) = (row.get(0), row.get(2), row.get(3));
    if cursor.read.insert(seq) && sender != bus.sender {
        bus.say(Heard::Note(Arc::new(Note { topic: row.get(4), body: row.get(5) })));
    }
    if settled {
        cursor.xid = row.get(1);
        cursor.seq = seq;
        cursor.read.remove(&seq);
    }
    settled
}

/// A listener that falls behind loses bells: then it is told of a gap at its next look.
pub(crate) fn bells() -> (mpsc::Sender<Notification>, mpsc::Receiver<Notification>) {
    mpsc::channel(ROOM)
}
