//! What the ledger asks of a database. Two stores and the simulator's keep the same contract; the suite in
//! `tests/store_contract.rs` of each store's crate holds them to it.
//!
//! A store persists whole records under a compare-and-set on their version, together with the payloads that
//! belong to the transition, in one atomic and durable write. It interprets nothing.

use crate::canonical::Fingerprint;
use crate::claims::{Claim, Claimed};
use crate::gaps::{self, Gaps};
use crate::handle::{Handle, HandleChange};
use crate::keys::Secret;
use crate::operation::{Execution, Operation, Unreadable};
pub use crate::shelf::{MAX_SHELF_NAME, MAX_SHELVED, Shelved, shelf_bounded};
use crate::words::{Epoch, Key, KeyHash, Millis, OperationId, Scope, SlotHash, Time};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Why a store did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written: the request was not even begun. Retry is safe.
    #[error("the ledger can't be used now ({0}); nothing was written")]
    Unavailable(String),
    /// It is not known whether the write happened.
    #[error("the ledger did not confirm a write ({0}); it may or may not have been made")]
    Uncertain(String),
    /// A record can't be read.
    #[error("a record of the ledger is damaged ({0})")]
    Damaged(String),
}

/// Tells people of a record that a store leaves out because it can't be used. Stores tell once of each.
pub fn report(id: OperationId, why: Unreadable) {
    match why {
        Unreadable::Damaged => {
            tracing::error!("the record of {id} is damaged and left alone; restore it from a backup");
        }
        Unreadable::Newer => {
            tracing::warn!(
                "the record of {id} was written by a newer version of this program and is left to it"
            );
        }
    }
}

impl StoreError {
    /// A record that can't be used: one that a newer program wrote is whole, and that program answers for it.
    #[must_use]
    pub fn unreadable(id: OperationId, why: Unreadable) -> StoreError {
        match why {
            Unreadable::Damaged => StoreError::Damaged(id.to_string()),
            Unreadable::Newer => StoreError::Unavailable(format!(
                "{id} was written by a newer version of this program, which has to answer for it: ask again, or finish the upgrade"
            )),
        }
    }
}

/// Payloads kept beside a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobKind {
    /// The call's arguments, canonical.
    Arguments,
    /// The intent of the effect with this index.
    Intent(u16),
    /// The receipt of the effect with this index.
    Receipt(u16),
    /// The final result.
    Result,
    /// What the input with this index asks.
    Request(u16),
    /// The answer to the input with this index.
    Answer(u16),
    /// An intent that waits for the last answer: [`Intent::pack`](crate::Intent::pack).
    Planned,
}

impl BlobKind {
    /// A stable number for storage: the kind in the high half, the index in the low.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            BlobKind::Arguments => 1 << 16,
            BlobKind::Intent(i) => (2 << 16) | u32::from(i),
            BlobKind::Receipt(i) => (3 << 16) | u32::from(i),
            BlobKind::Result => 4 << 16,
            BlobKind::Request(i) => (5 << 16) | u32::from(i),
            BlobKind::Answer(i) => (6 << 16) | u32::from(i),
            BlobKind::Planned => 7 << 16,
        }
    }
}

/// A payload and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// What it is.
    pub kind: BlobKind,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// What a creation does with the slot of its (scope, fingerprint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotWrite {
    /// The new operation becomes the slot's, whatever was there.
    Set,
    /// Only if the slot holds exactly this (`None`: is empty, or holds a pruned operation).
    CompareAndSet(Option<OperationId>),
}

/// One atomic write.
#[derive(Clone, Debug)]
pub enum Write {
    /// A new record. Conflicts: its key is taken, or the slot moved on. A record with the same id that is
    /// already there is this very write, repeated: `Done`.
    Create {
        /// The record; its version is 1 after the write.
        operation: Box<Operation>,
        /// What to do with the slot.
        slot: SlotWrite,
        /// Payloads.
        blobs: Vec<Blob>,
    },
    /// The next state of a record, if its version is still `operation.version - 1`.
    Update {
        /// The record with its new version.
        operation: Box<Operation>,
        /// Marks this write, so that its repetition after a lost acknowledgement is recognised.
        stamp: u64,
        /// Payloads to add; a kind that is already there is left as it is (receipts and results never change).
        blobs: Vec<Blob>,
        /// Changes of handles, each about another one: all of them with the record, or nothing.
        handles: Vec<HandleChange>,
    },
}

impl Write {
    /// The record that is written.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        match self {
            Write::Create { operation, .. } | Write::Update { operation, .. } => operation,
        }
    }
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is durable.
    Done,
    /// Nothing was written: the key names another operation of this scope (or a tombstone).
    KeyTaken,
    /// Nothing was written: the slot holds another operation than expected.
    SlotTaken,
    /// Nothing was written: the record has moved on, or is gone.
    Stale,
    /// Nothing was written: a handle is not there, or has another version, or is there already.
    HandleMoved,
    /// Nothing was written: the principal has as many handles as it may have.
    HandlesFull,
}

/// What remains of a pruned operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The operation that was.
    pub id: OperationId,
    /// What it asked.
    pub fingerprint: Fingerprint,
    /// How it ended: the word of its execution state.
    pub outcome: String,
    /// When it was pruned.
    pub at: Time,
}

/// What a look-up by key or id finds.
#[derive(Clone, Debug)]
pub enum Found {
    /// A record.
    Operation(Box<Operation>),
    /// A pruned one.
    Tombstone(Tombstone),
}

/// A filter over records, newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// Only this principal's.
    pub principal: Option<String>,
    /// Only this tool's (canonical id).
    pub tool: Option<String>,
    /// Only those in this execution state (the word).
    pub state: Option<String>,
    /// Only those with this delivery state (the word).
    pub delivery: Option<String>,
    /// Only those older than this one (exclusive), for paging.
    pub before: Option<OperationId>,
    /// How many at most.
    pub limit: usize,
}

impl Query {
    /// Whether it takes this record: all of it but the limit.
    #[must_use]
    pub fn takes(&self, op: &Operation) -> bool {
        let says = |filter: &Option<String>, word: &str| filter.as_deref().is_none_or(|f| f == word);
        says(&self.principal, &op.scope.principal)
            && says(&self.tool, &op.scope.tool)
            && says(&self.state, op.execution.word())
            && says(&self.delivery, op.delivery.state.word())
            && self.before.is_none_or(|before| op.id < before)
    }
}

/// How many records there are in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By execution word.
    pub execution: std::collections::BTreeMap<String, u64>,
    /// By delivery word.
    pub delivery: std::collections::BTreeMap<String, u64>,
}

/// What a ledger keeps about itself.
#[derive(Clone)]
pub struct Identity {
    /// Its name: part of every effect key, fixed when it is created.
    pub name: String,
    /// Signs minted keys and delivery nonces.
    pub secret: Secret,
}

/// An API key as it is kept: never the key, only its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// A public name for it.
    pub id: String,
    /// Who calls with it.
    pub principal: String,
    /// SHA-256 of the key, hexadecimal.
    pub hash: String,
    /// When it was made.
    pub created_at: Time,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Time>,
    /// A note for people.
    pub note: String,
}

/// Figures about the store itself, for metrics and `doctor`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Transactions committed.
    pub commits: u64,
    /// Writes in them.
    pub writes: u64,
    /// Time spent in commits, microseconds.
    pub commit_us: u64,
    /// The longest commit, microseconds.
    pub commit_max_us: u64,
    /// Commit durations by upper bound in microseconds (cumulative), for a histogram.
    pub commit_buckets: Vec<(u64, u64)>,
    /// Bytes of the database and its log.
    pub bytes: u64,
    /// Free bytes on its disk.
    pub free_bytes: u64,
    /// New intents are refused because the disk is nearly full.
    pub disk_low: bool,
    /// The schema's version.
    pub schema: u32,
}

/// A session of a legacy client: what it said once and asked for since. It proves nothing: the principal is checked with
/// every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Random, 128 bits or more.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// The protocol revision agreed on.
    pub revision: String,
    /// What the client said of itself, JSON text.
    pub client: String,
    /// Lowest level of log messages wanted.
    pub log_level: Option<String>,
    /// URIs of resources whose changes are wanted; sorted, each once.
    pub subscriptions: Vec<String>,
    /// When it was opened.
    pub opened_at: Time,
    /// When it was last used, give or take the pause between two marks.
    pub used_at: Time,
}

/// A change of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// It was used now.
    Used,
    /// Log messages of this level and above are wanted.
    LogLevel(String),
    /// Changes of this resource are wanted; beyond [`MAX_SUBSCRIPTIONS`] nothing changes.
    Subscribe(String),
    /// They are no longer wanted.
    Unsubscribe(String),
}

/// The most sessions that a principal holds; one more ends another, see [`Store::open_session`].
pub const MAX_SESSIONS: usize = 4096;
/// The most subscriptions that a session holds.
pub const MAX_SUBSCRIPTIONS: usize = 256;
/// The longest id, revision or log level of a session, in bytes.
pub const MAX_SESSION_WORD: usize = 255;
/// The longest text of what a session's client said of itself, in bytes.
pub const MAX_SESSION_CLIENT: usize = 64 << 10;
/// The longest URI that a session subscribes to, in bytes.
pub const MAX_SESSION_URI: usize = 8 << 10;

fn session_text(what: &str, text: &str, most: usize) -> Result<(), StoreError> {
    if text.len() <= most {
        return Ok(());
    }
    Err(StoreError::Unavailable(format!(
        "the {what} of a session is longer than {most} bytes; make it shorter"
    )))
}

impl Session {
    /// Whether it may be kept, with its subscriptions put in order. Every store asks before it opens a session.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: a part is too large. Nothing is cut off: a client that was promised less than it
    /// asked for would never know.
    pub fn bounded(mut self) -> Result<Session, StoreError> {
        session_text("id", &self.id, MAX_SESSION_WORD)?;
        session_text("revision", &self.revision, MAX_SESSION_WORD)?;
        session_text("log level", self.log_level.as_deref().unwrap_or_default(), MAX_SESSION_WORD)?;
        session_text("client", &self.client, MAX_SESSION_CLIENT)?;
        for uri in &self.subscriptions {
            session_text("resource URI", uri, MAX_SESSION_URI)?;
        }
        self.subscriptions.sort_unstable();
        self.subscriptions.dedup();
        if self.subscriptions.len() > MAX_SUBSCRIPTIONS {
            return Err(StoreError::Unavailable(format!(
                "a session holds at most {MAX_SUBSCRIPTIONS} subscriptions; ask for fewer"
            )));
        }
        Ok(self)
    }
}

impl SessionChange {
    /// Whether it may be made. Every store asks before it changes a session.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: its text is too large.
    pub fn bounded(self) -> Result<SessionChange, StoreError> {
        match &self {
            SessionChange::Used => {}
            SessionChange::LogLevel(level) => session_text("log level", level, MAX_SESSION_WORD)?,
            // One that is too long was never subscribed to.
            SessionChange::Subscribe(uri) => session_text("resource URI", uri, MAX_SESSION_URI)?,
            SessionChange::Unsubscribe(_) => {}
        }
        Ok(self)
    }
}

/// Why a session is not opened under an id that another one has: it would take that one's place.
pub const SESSION_TAKEN: &str = "a session with this id is there already; open it under a new id";

/// The database under a ledger.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The ledger's time now. Monotone, over restarts too.
    fn now(&self) -> Time;
    /// This boot's number. A replica that lapsed goes on under another one.
    fn epoch(&self) -> Epoch;
    /// Whether the replica of that boot may still be alive (its lease has not lapsed).
    fn is_live(&self, epoch: Epoch) -> bool;
    /// Intents made before or at this moment can't be trusted to be as young as they look, because the clock was
    /// set; their replays are over and their quarantines begin here.
    fn clock_step(&self) -> Option<Time>;
    /// Stretches of the ledger's time of which it isn't known how much really passed: nothing watched the clock. They
    /// count for no wait that makes something safe.
    fn gaps(&self) -> &Gaps {
        &gaps::NONE
    }
    /// The ledger's name and secret.
    fn identity(&self) -> &Identity;

    /// Makes one write, durable when it returns `Done`. Creations are refused early (`Unavailable`) when the
    /// disk is nearly full; updates are not.
    async fn write(&self, write: Write) -> Result<Committed, StoreError>;
    /// As [`Store::write`], for what was begun under `epoch`: once this replica goes on under another one, nothing is
    /// written and the answer is `Unavailable`. A store under which that can happen between here and the write looks
    /// again when it writes.
    async fn write_under(&self, epoch: Epoch, write: Write) -> Result<Committed, StoreError> {
        if self.epoch() != epoch {
            return Err(StoreError::Unavailable("the boot that began this is over".into()));
        }
        self.write(write).await
    }
    /// Makes a write some time soon, together with others; its loss in a crash is allowed for. Used for
    /// delivery states. A stale one is dropped.
    fn write_lazily(&self, write: Write);
    /// Waits until all lazy writes so far are durable.
    async fn flush(&self) -> Result<(), StoreError>;

    /// By id, in any scope: the caller checks the principal.
    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError>;
    /// The operation with this id, if it is this principal's. Unknown and foreign ones look alike; a store whose records
    /// take time to be read reads none of another's for it, so that time does not tell them apart either.
    async fn owned(&self, principal: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        Ok(match self.by_id(id).await? {
            Some(Found::Operation(op)) if *op.scope.principal == *principal => Some(*op),
            _ => None,
        })
    }
    /// By key in its scope.
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError>;
    /// The newest operation of a slot.
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError>;
    /// A payload.
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError>;

    /// Records whose attention time (as given at their last write) has come, earliest first.
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError>;
    /// As [`Store::due`], without those that are running: so that what waits behind very many of them is reached. This
    /// one reads past some thousands of them; a store that can do better does.
    async fn due_at_rest(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        let mut most = limit;
        loop {
            let due = self.due(now, most).await?;
            let all = due.len() < most || most >= limit.saturating_mul(16);
            let at_rest = due.into_iter().filter(|op| op.execution != Execution::Running);
            let at_rest: Vec<Operation> = at_rest.take(limit).collect();
            if all || at_rest.len() >= limit {
                return Ok(at_rest);
            }
            most = most.saturating_mul(4);
        }
    }
    /// Records that want attention some time and were last owned or called by a replica that is no longer
    /// alive, in the order of their ids, after `after`. For the start.
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError>;
    /// The earliest attention time of all.
    async fn next_attention(&self) -> Result<Option<Time>, StoreError>;
    /// Records by filter, newest first.
    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError>;
    /// How many in each state.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// Removes up to `limit` records that expired before `now`, leaving tombstones, and tombstones older than
    /// `tombstones_for`. Returns how many records went.
    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError>;

    /// Whether new operations wait: the ledger was restored from a backup, so it is older than the world, and
    /// nobody has released it yet.
    fn is_held(&self) -> bool {
        false
    }
    /// Lets new operations be opened again.
    async fn release(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Keeps an API key (by its id), new or changed.
    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError>;
    /// All API keys.
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Keeps a new session. Its id must be new, and its parts within the bounds of [`Session::bounded`]; else it is
    /// refused (`Unavailable`), as it is when the disk is nearly full. Beyond [`MAX_SESSIONS`] of a principal others end:
    /// first those never used since they were opened, oldest first, so that who only opens sessions ends nobody's that
    /// is in use; then those unused for longest. Gives the ids of those that ended for it.
    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError>;
    /// The session with this id, whoever asks: the caller checks the principal.
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError>;
    /// Changes a session, atomically with other changes of it, and gives it as it is then; `None` if it isn't there.
    /// Only [`SessionChange::Used`] moves its time of use.
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError>;
    /// Ends a session; `false` if it wasn't there.
    async fn end_session(&self, id: &str) -> Result<bool, StoreError>;
    /// Removes up to `limit` sessions that were last used before `unused_since`, those unused longest first. Returns
    /// how many went.
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError>;

    /// The handle with this hash, if it is this principal's and there at `now`: unknown and foreign ones look alike, and
    /// take the same one question.
    async fn handle(
        &self,
        id_hash: &[u8; 32],
        principal: &str,
        now: Time,
    ) -> Result<Option<Handle>, StoreError>;
    /// A principal's handles that are there at `now`, of one kind or of all, in the order of their hashes, after `after`.
    async fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError>;
    /// Notes that a handle was used at `at`, unless it was gone by then. Its time of use never goes back.
    async fn touch_handle(&self, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<(), StoreError>;
    /// Removes up to `limit` handles that were gone by `now`. Returns how many went.
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError>;

    /// What is on the shelf under this name; what is gone by now is not there.
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError>;
    /// Puts something on the shelf under this name, if what is there has the version `expected` (0: nothing is there, or
    /// it is gone by now). Its version is one more than that of what it replaces, gone or not. Durable when it returns
    /// `true`; `false`: nothing was written. Beyond the bounds of [`shelf_bounded`] it is refused (`Unavailable`), as it
    /// is when the disk is nearly full.
    async fn shelve(
        &self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError>;
    /// Removes up to `limit` things from the shelf that were gone by `now`. Returns how many went.
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError>;

    /// Claims all of this for one holder, or nothing. Of a bucket, what other holders have and is not over yet is used; a
    /// claim fits if that and its amount are at most its cap. What the holder has of it already is replaced, not added to,
    /// so that a claim whose acknowledgement was lost can be made again. `turn` says which of the holder's turns this is. A
    /// claim may be made once more when nobody waits for it any longer, so it takes nothing from what is held: one of an
    /// earlier turn changes nothing, and none makes it end sooner. Beyond [`bounded`](crate::claims::bounded) it is refused (`Unavailable`), as it
    /// is when the disk is nearly full.
    ///
    /// A claim is on the disk no later than any write that is begun after it was granted.
    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError>;
    /// Gives back what a holder has of these buckets, unless it claimed in a later turn. What is not there is no fault.
    async fn release_claims(
        &self,
        holder: OperationId,
        turn: u64,
        buckets: &[String],
    ) -> Result<(), StoreError>;
    /// Removes up to `limit` claims that were over by `now`, or fewer so that others don't wait: 100 or more if there are so
    /// many. Returns how many went.
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError>;

    /// Figures about the store.
    fn stats(&self) -> StoreStats;
}

/// How long a `ready` result may wait for its stream before it counts as undelivered, and an undelivered one
/// before an alert is raised; stores pass these to [`Operation::attention`].
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// For `ready`.
    pub grace: Millis,
    /// For `undelivered`.
    pub alert_after: Millis,
}

impl Default for Attention {
    fn default() -> Self {
        Attention { grace: Millis::secs(90), alert_after: Millis::secs(900) }
    }
}

/// The hash under which a record's key is found, if it has one.
#[must_use]
pub fn key_hash_of(op: &Operation) -> Option<KeyHash> {
    op.key.as_ref().map(|k: &Key| op.scope.key_hash(k))
}

/// The slot of a record.
#[must_use]
pub fn slot_hash_of(op: &Operation) -> SlotHash {
    let scope: &Scope = &op.scope;
    scope.slot_hash(&op.fingerprint)
}
