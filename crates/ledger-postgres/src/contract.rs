//! The contract of a [`Store`], by the tasks and connections of [`PgStore`].

use crate::queue::Work;
use crate::read::{COUNTS, count};
use crate::record::{Bits, Change, counts, decode};
use crate::shared::{DUE, DUE_AT_REST, EXPIRED, LIVE, NEXT, PRUNE};
use crate::store::PgStore;
use crate::{claims, handles, schema, sessions};
use async_trait::async_trait;
use ledger::claims::{Claim, Claimed};
use ledger::gaps::Gaps;
use ledger::handle::Handle;
use ledger::operation::{FORM, Operation};
use ledger::store::{
    ApiKey, BlobKind, Committed, Counts, Found, Identity, Query, Session, SessionChange, Shelved, Store,
    StoreError, StoreStats, Tombstone, Write,
};
use ledger::words::{Epoch, KeyHash, Millis, OperationId, SlotHash, Time};
use std::sync::atomic::Ordering;
use tokio_postgres::types::ToSql;

/// Records, and tombstones, in one step of pruning.
const PRUNE_STEP: usize = 200;
/// How long a replica looks after what it was given as due before another may, at most.
const HOLD: i64 = 2000;

impl PgStore {
    async fn due_by(&self, statement: usize, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        // A few places apart, so that two replicas don't give up the same rows at the same moment.
        let spread = self.shared.env.jitter(Millis(HOLD / 2)).0;
        let hold = if self.shared.replica.has_company() { HOLD / 2 + spread } else { 0 };
        let epoch = self.shared.epoch().0.cast_signed();
        let form = i64::from(FORM);
        let rows = self.shared.again(statement, &[&epoch, &now.0, &count(limit), &hold, &form]).await?;
        let due: Vec<Operation> = rows.iter().filter_map(|r| self.shared.readers.sound(r)).collect();
        // Whose work came here because it is gone must be known to be gone.
        if due.iter().any(|op| op.owner != self.shared.epoch() && self.is_live(op.owner)) {
            let rows = self.shared.again(LIVE, &[]).await?;
            rows.iter().for_each(|r| self.shared.replica.heard(r.get(0), r.get(1)));
        }
        Ok(due)
    }
}

#[async_trait]
impl Store for PgStore {
    fn now(&self) -> Time {
        self.shared.clock.now()
    }
    fn epoch(&self) -> Epoch {
        self.shared.epoch()
    }
    fn is_live(&self, epoch: Epoch) -> bool {
        self.shared.replica.is_live(epoch)
    }
    fn clock_step(&self) -> Option<Time> {
        self.shared.clock.step()
    }
    fn gaps(&self) -> &Gaps {
        &self.shared.gaps
    }
    fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    async fn write(&self, write: Write) -> Result<Committed, StoreError> {
        self.write_under(self.shared.epoch(), write).await
    }
    /// The writer looks again: see [`crate::writer`].
    async fn write_under(&self, epoch: Epoch, write: Write) -> Result<Committed, StoreError> {
        self.shared.usable()?;
        let mut write = write;
        let changes = match &mut write {
            Write::Update { handles, .. } => std::mem::take(handles),
            Write::Create { .. } => Vec::new(),
        };
        let change = Change::new(write, self.shared.config.attention, epoch)?;
        if !changes.is_empty() {
            return Box::pin(handles::write(&self.shared, &change, &changes)).await;
        }
        self.shared.ask(Work::Write(Box::new(change))).await
    }

    fn write_lazily(&self, write: Write) {
        let id = write.operation().id;
        let change = Change::new(write, self.shared.config.attention, self.shared.epoch());
        if !change.is_ok_and(|change| self.shared.queue.tell(change)) {
            tracing::warn!("a lazy write of {id} was dropped: the ledger is behind or was closed");
        }
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.shared.usable()?;
        self.shared.ask(Work::Flush).await.map(|_| ())
    }

    async fn by_id(&self, id: OperationId) -> Result<Option<Found>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.by_id(id).await
    }
    async fn owned(&self, principal: &str, id: OperationId) -> Result<Option<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.owned(principal, id).await
    }
    async fn by_key(&self, key: &KeyHash) -> Result<Option<Found>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.by_key(key).await
    }
    async fn by_slot(&self, slot: &SlotHash) -> Result<Option<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.by_slot(slot).await
    }
    async fn blob(&self, id: OperationId, kind: BlobKind) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.blob(id, kind).await
    }

    /// What other replicas look after just now is left out; what this one gets is its own to look after for a moment.
    async fn due(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.due_by(DUE, now, limit).await
    }
    async fn due_at_rest(&self, now: Time, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.due_by(DUE_AT_REST, now, limit).await
    }
    async fn orphans(&self, after: Option<OperationId>, limit: usize) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.orphans(after, limit).await
    }
    async fn next_attention(&self) -> Result<Option<Time>, StoreError> {
        self.shared.usable()?;
        let rows = self.shared.again(NEXT, &[]).await?;
        Ok(rows.first().and_then(|r| r.get::<_, Option<i64>>(0)).map(Time))
    }
    async fn list(&self, query: &Query) -> Result<Vec<Operation>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.list(query).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.shared.usable()?;
        let rows = self.shared.readers.rows(COUNTS, &[]).await?;
        Ok(counts(rows.iter().map(|r| (r.get(0), r.get(1)))))
    }

    async fn prune(&self, now: Time, tombstones_for: Millis, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        let shared = &self.shared;
        let epoch = shared.epoch().0.cast_signed();
        let old = now.0.saturating_sub(tombstones_for.0);
        let (mut pruned, mut place) = (0, (i64::MIN, Bits([0; 16])));
        loop {
            let step = PRUNE_STEP.min(limit - pruned);
            let rows = shared.again(EXPIRED, &[&now.0, &place.0, &place.1, &count(step)]).await?;
            let (mut ids, mut versions, mut graves): (Vec<Bits>, Vec<i64>, Vec<String>) = Default::default();
            for row in &rows {
                let (id, version): (Bits, i64) = (row.get(0), row.get(1));
                place = (row.get(3), id);
                // A record that can't be read stays: somebody has to look at it.
                let Ok(op) = decode(id, version, row.get(2)) else { continue };
                let outcome = op.execution.word().into();
                let grave = Tombstone { id: op.id, fingerprint: op.fingerprint, outcome, at: now };
                let Ok(text) = serde_json::to_string(&grave) else { continue };
                ids.push(id);
                versions.push(version);
                graves.push(text);
            }
            let args: [&(dyn ToSql + Sync); 7] =
                [&epoch, &ids, &versions, &graves, &now.0, &old, &count(PRUNE_STEP)];
            let done = shared.again(PRUNE, &args).await?;
            let number = |n| done.first().map_or(0, |r| usize::try_from(r.get::<_, i64>(n)).unwrap_or(0));
            pruned += number(0);
            if (rows.len() < step || pruned >= limit) && number(1) < PRUNE_STEP {
                return Ok(pruned);
            }
        }
    }

    fn is_held(&self) -> bool {
        self.shared.held.load(Ordering::Acquire)
    }
    async fn release(&self) -> Result<(), StoreError> {
        self.shared.usable()?;
        self.shared.write_all("UPDATE meta SET held = NULL", &[]).await?;
        self.shared.set_held(false);
        Ok(())
    }

    async fn put_api_key(&self, key: ApiKey) -> Result<(), StoreError> {
        self.shared.usable()?;
        let text = serde_json::to_string(&key)
            .map_err(|_| StoreError::Unavailable("an API key has no JSON form".into()))?;
        if key.id.contains('\0') {
            return Err(StoreError::Unavailable("an API key's id has a zero character".into()));
        }
        let sql = "INSERT INTO api_key (id, record) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET record = excluded.record";
        self.shared.write_all(sql, &[&key.id, &text]).await.map(|_| ())
    }
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.shared.usable()?;
        self.shared.readers.api_keys().await
    }

    async fn open_session(&self, session: Session) -> Result<Vec<String>, StoreError> {
        self.shared.usable()?;
        sessions::open(&self.shared, session).await
    }
    async fn session(&self, id: &str) -> Result<Option<Session>, StoreError> {
        self.shared.usable()?;
        sessions::find(&self.shared.readers, id).await
    }
    async fn change_session(&self, id: &str, change: SessionChange) -> Result<Option<Session>, StoreError> {
        self.shared.usable()?;
        sessions::change(&self.shared, id, change).await
    }
    async fn end_session(&self, id: &str) -> Result<bool, StoreError> {
        self.shared.usable()?;
        sessions::end(&self.shared, id).await
    }
    async fn prune_sessions(&self, unused_since: Time, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        sessions::prune(&self.shared, unused_since, limit).await
    }

    async fn handle(
        &self,
        id_hash: &[u8; 32],
        principal: &str,
        now: Time,
    ) -> Result<Option<Handle>, StoreError> {
        self.shared.usable()?;
        handles::find(&self.shared.readers, id_hash, principal, now).await
    }
    async fn handles(
        &self,
        principal: &str,
        kind: Option<&str>,
        after: Option<[u8; 32]>,
        limit: usize,
        now: Time,
    ) -> Result<Vec<Handle>, StoreError> {
        self.shared.usable()?;
        handles::list(&self.shared.readers, principal, kind, after, limit, now).await
    }
    async fn touch_handle(&self, id_hash: &[u8; 32], principal: &str, at: Time) -> Result<(), StoreError> {
        self.shared.usable()?;
        handles::touch(&self.shared, id_hash, principal, at).await
    }
    async fn prune_handles(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        handles::prune(&self.shared, now, limit).await
    }
    async fn shelved(&self, name: &str) -> Result<Option<Shelved>, StoreError> {
        self.shared.usable()?;
        handles::shelved(&self.shared.readers, name, self.shared.clock.now()).await
    }
    async fn shelve(
        &self,
        name: &str,
        expected: u64,
        data: Vec<u8>,
        until: Option<Time>,
    ) -> Result<bool, StoreError> {
        self.shared.usable()?;
        handles::shelve(&self.shared, name, expected, data, until).await
    }
    async fn prune_shelf(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        handles::prune_shelf(&self.shared, now, limit).await
    }

    async fn claim(&self, holder: OperationId, turn: u64, claims: &[Claim]) -> Result<Claimed, StoreError> {
        self.shared.usable()?;
        claims::claim(&self.shared, holder, turn, claims).await
    }
    async fn release_claims(
        &self,
        holder: OperationId,
        turn: u64,
        buckets: &[String],
    ) -> Result<(), StoreError> {
        self.shared.usable()?;
        claims::release(&self.shared, holder, turn, buckets).await
    }
    async fn prune_claims(&self, now: Time, limit: usize) -> Result<usize, StoreError> {
        self.shared.usable()?;
        claims::prune(&self.shared, now, limit).await
    }

    fn stats(&self) -> StoreStats {
        let figures = self.shared.figures().stats();
        StoreStats {
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            free_bytes: u64::MAX,
            schema: schema::latest(),
            ..figures
        }
    }
}
