//! One connection to the database that comes back by itself, with the settings and statements that everything here needs.

use crate::tls::MakeTls;
use crate::{OpenError, describe, is_in_the_way, is_read_only};
use ledger::store::StoreError;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};
use tokio_postgres::{AsyncMessage, Client, Notification, Statement};

/// The pauses between two tries: doubled from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// How long one try may take.
const TRY: Duration = Duration::from_secs(8);

/// What every connection is told first.
///
/// Plans are pinned: a table that was never analysed must not be joined by hashing all of it. There is no time limit for
/// statements: a commit that is cancelled while it waits for its standby counts as done without having been copied.
fn settings(schema: &str) -> String {
    format!(
        "SET search_path = {schema}; SET client_min_messages = warning; SET synchronous_commit = on;
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET jit = off;
         SET plan_cache_mode = force_generic_plan; SET statement_timeout = 0; SET lock_timeout = '5s';
         SET idle_in_transaction_session_timeout = '10s'; SET default_transaction_isolation = 'read committed';
         SET TIME ZONE 'UTC'; SET bytea_output = hex; SET standard_conforming_strings = on"
    )
}

/// Where the database is and how it is spoken to.
pub(crate) struct Place {
    pub config: tokio_postgres::Config,
    pub tls: MakeTls,
    /// Quoted.
    pub schema: String,
}

/// What a connection is for.
#[derive(Clone)]
pub(crate) struct Purpose {
    /// Prepared on it, and used by number.
    pub statements: &'static [&'static str],
    /// Nothing on it has to be durable when it is answered.
    pub relaxed: bool,
    /// Where notifications go.
    pub heard: Option<mpsc::Sender<Notification>>,
}

/// A connection as it is now.
pub(crate) struct Conn {
    pub client: Client,
    pub statements: Vec<Statement>,
    /// A notification found no room.
    pub missed: Arc<AtomicBool>,
    /// It answers no more, whatever it looks like.
    given_up: AtomicBool,
    ended: Arc<Notify>,
    reader: tokio::task::AbortHandle,
}

impl Conn {
    /// Lets it go: it did not answer in time.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.reader.abort();
        self.ended.notify_one();
    }
    /// The server refused a statement. Whether it is to be made again, now that another's work that was in its way may be
    /// done; not more than so often.
    pub async fn makes_again(&self, refused: &tokio_postgres::Error, tries: &mut u32, most: u32) -> bool {
        let again = is_in_the_way(refused) && *tries < most;
        if again {
            *tries += 1;
            tokio::time::sleep(Duration::from_millis(1 << *tries)).await;
        } else if is_read_only(refused) {
            // A primary that became a standby: another server may be behind the address by now.
            self.give_up();
        }
        again
    }
    fn is_usable(&self) -> bool {
        !self.given_up.load(Ordering::Acquire) && !self.client.is_closed()
    }
}

impl Place {
    /// Connects, and reads what arrives until the connection ends.
    pub async fn connect(&self, purpose: &Purpose) -> Result<Conn, tokio_postgres::Error> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let heard = purpose.heard.clone();
        let missed = Arc::new(AtomicBool::new(false));
        let missing = missed.clone();
        let ended = Arc::new(Notify::new());
        let ending = ended.clone();
        let reader = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(n)) => {
                        if let Some(heard) = &heard {
                            missing.fetch_or(heard.try_send(n).is_err(), Ordering::AcqRel);
                        }
                    }
                    Ok(AsyncMessage::Notice(n)) => tracing::debug!("the database says: {}", n.message()),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            ending.notify_one();
        })
        .abort_handle();
        client.batch_execute(&settings(&self.schema)).await?;
        if purpose.relaxed {
            client.batch_execute("SET synchronous_commit = off").await?;
        }
        let mut prepared = Vec::with_capacity(purpose.statements.len());
        for sql in purpose.statements {
            prepared.push(client.prepare(sql).await?);
        }
        Ok(Conn { client, statements: prepared, missed, given_up: AtomicBool::new(false), ended, reader })
    }
}

/// A connection that is made again whenever it ends.
pub(crate) struct Link {
    now: watch::Receiver<Option<Arc<Conn>>>,
    /// Since when it is away.
    away: Arc<Mutex<Option<Instant>>>,
    why: Arc<Mutex<String>>,
    patience: Duration,
}

impl Link {
    /// Keeps a connection from now on, beginning with a first one.
    pub fn keep(place: Arc<Place>, first: Conn, purpose: Purpose, patience: Duration) -> Link {
        let (set, now) = watch::channel(Some(Arc::new(first)));
        let away = Arc::new(Mutex::new(None));
        let why = Arc::new(Mutex::new(String::from("it has gone")));
        let (away_too, why_too) = (away.clone(), why.clone());
        tokio::spawn(async move {
            loop {
                let conn = set.borrow().clone();
                if let Some(conn) = conn {
                    tokio::select! {
                        () = conn.ended.notified() => {}
                        () = set.closed() => {}
                    }
                    conn.give_up();
                }
                if set.is_closed() {
                    return;
                }
                *lock(&away_too) = Some(Instant::now());
                set.send_replace(None);
                let mut pause = PAUSES.0;
                let conn = loop {
                    match tokio::time::timeout(TRY, place.connect(&purpose)).await {
                        Ok(Ok(conn)) => break conn,
                        Ok(Err(e)) => *lock(&why_too) = describe(&e),
                        Err(_) => "it does not answer".clone_into(&mut lock(&why_too)),
                    }
                    if set.is_closed() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                };
                *lock(&away_too) = None;
                set.send_replace(Some(Arc::new(conn)));
            }
        });
        Link { now, away, why, patience }
    }

    /// Whether it is there now, as far as is known.
    pub fn is_up(&self) -> bool {
        self.now.borrow().as_ref().is_some_and(|c| c.is_usable())
    }

    /// The connection, waited for as long as the database may be away.
    pub async fn get(&self) -> Result<Arc<Conn>, StoreError> {
        let mut now = self.now.clone();
        loop {
            let conn = now.borrow_and_update().clone().filter(|c| c.is_usable());
            if let Some(conn) = conn {
                return Ok(conn);
            }
            let since = *lock(&self.away);
            let left = self.patience.saturating_sub(since.map_or(Duration::ZERO, |t| t.elapsed()));
            let changed = tokio::time::timeout(left.max(Duration::from_millis(1)), now.changed()).await;
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(StoreError::Unavailable("the store was closed".into())),
                Err(_)
                    if left.is_zero() || lock(&self.away).is_some_and(|t| t.elapsed() >= self.patience) =>
                {
                    return Err(StoreError::Unavailable(format!(
                        "the database is away: {}",
                        lock(&self.why)
                    )));
                }
                Err(_) => {}
            }
        }
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name as an SQL identifier.
pub(crate) fn quoted(name: &str) -> Result<String, OpenError> {
    let fits = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if fits {
        Ok(format!("\"{name}\""))
    } else {
        Err(OpenError::Setting("the schema's name is made of up to 63 of a to z, 0 to 9 and _"))
    }
}
