//! The workload: everything that the store can be asked to keep.

use super::told::{Cell, PRUNED, Told, state_of};
use counterfoil_powerloss::{Event as DiskEvent, Recorder};
use ledger::decide::{Fence, Opening, Outcome, open};
use ledger::executor::Receipt;
use ledger::store::{ApiKey, Committed, Session, SessionChange, SlotWrite, Store, StoreError, Write};
use ledger::words::{EffectKey, Key, Millis, OperationId, Scope, Time};
use ledger::{
    Blob, DeliveryState, Event, Fingerprint, Intent, Operation, OperationPolicy, Recovery, Strategy, decide,
};
use ledger_sqlite::SqliteStore;
use std::time::Duration;

/// One user of the store, who keeps account of what it is told.
pub struct User<'a> {
    pub store: &'a SqliteStore,
    pub told: &'a Told,
}

type Asked = Result<(), StoreError>;

struct Held {
    op: Operation,
    blobs: Vec<Blob>,
    stamp: u64,
}

pub fn id(n: u64) -> OperationId {
    OperationId::new(Time(1_600_000_000_000 + n.cast_signed()), u128::from(n))
}

/// The n-th operation, opened now.
pub fn opening(n: u64, store: &dyn Store, retention: Millis, arguments: usize) -> (Operation, Vec<Blob>) {
    let scope = Scope { principal: "alice".into(), tool: "pay".into(), mode: "production".into() };
    let key = Key::new(&format!("key-{n}")).ok().filter(|_| n.is_multiple_of(2));
    let text = format!("{{\"n\":{n}}}");
    let canonical = ledger::canonical::canonicalise_arguments(Some(&text), None).unwrap();
    let fingerprint = Fingerprint::of("pay", &canonical);
    let effect = EffectKey::derive("test", &scope, id(n), key.as_ref(), &fingerprint, "charge", "");
    let intent = Intent {
        name: "charge".into(),
        discriminator: String::new(),
        recovery: Recovery::new(Strategy::Key),
        summary: "POST /charges".into(),
        body: format!("intent {n}").into_bytes(),
    };
    let o = Opening {
        id: id(n),
        scope,
        key,
        fingerprint,
        policy: OperationPolicy { retention, ..OperationPolicy::default() },
        epoch: store.epoch(),
        intent: Some((intent, effect)),
        arguments: Some((0..arguments).map(|i| ((i as u64 * (n + 7)) >> 3) as u8).collect()),
        asks: Vec::new(),
    };
    let t = open(o, store.now());
    (t.next, t.blobs)
}

impl User<'_> {
    /// Asks for something and writes down what is answered.
    async fn asked<T>(
        &self,
        cell: &Cell,
        state: String,
        ask: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let n = self.told.begun(cell, state);
        let answer = ask.await;
        match &answer {
            Ok(_) => self.told.done(cell, n),
            Err(StoreError::Unavailable(_)) => self.told.refused(cell, n),
            // It may have been made.
            Err(_) => {}
        }
        answer
    }

    async fn create(&self, n: u64, retention: Millis, arguments: usize) -> Result<Held, StoreError> {
        let (op, blobs) = opening(n, self.store, retention, arguments);
        let slot = if n.is_multiple_of(2) { SlotWrite::Set } else { SlotWrite::CompareAndSet(None) };
        let write = Write::Create { operation: Box::new(op.clone()), slot, blobs: blobs.clone() };
        let made =
            self.asked(&Cell::Operation(op.id), state_of(&op, &blobs), self.store.write(write)).await?;
        assert_eq!(made, Committed::Done);
        Ok(Held { op, blobs, stamp: 0 })
    }

    fn next(&self, h: &mut Held, event: Event) -> Write {
        let t = decide(&h.op, event, self.store.now()).unwrap();
        h.stamp += 1;
        h.op = t.next;
        h.blobs.extend(t.blobs.clone());
        Write::Update {
            operation: Box::new(h.op.clone()),
            stamp: h.stamp,
            blobs: t.blobs,
            handles: Vec::new(),
        }
    }

    async fn update(&self, h: &mut Held, event: Event) -> Asked {
        let write = self.next(h, event);
        let state = state_of(&h.op, &h.blobs);
        let made = self.asked(&Cell::Operation(h.op.id), state, self.store.write(write)).await?;
        assert_eq!(made, Committed::Done);
        Ok(())
    }

    /// An operation from its opening to its delivery.
    pub async fn operation(&self, n: u64, retention: Millis, arguments: usize) -> Asked {
        let mut h = self.create(n, retention, arguments).await?;
        let f = Fence { attempt: h.op.attempt, epoch: h.op.owner };
        let outcome = Outcome::Applied(Receipt(format!("receipt {n}").into_bytes()));
        self.update(&mut h, Event::Receive { fence: f, effect: 0, outcome }).await?;
        let result = format!("result {n}").into_bytes();
        self.update(&mut h, Event::Close { fence: f, result, is_error: false, caller_gone: false }).await?;
        let write = self.next(&mut h, Event::Deliver(DeliveryState::Written));
        let cell = Cell::Operation(h.op.id);
        let begun = self.told.begun(&cell, state_of(&h.op, &h.blobs));
        self.store.write_lazily(write);
        // A lazy write may be lost: only a flush answers for it.
        self.store.flush().await?;
        self.told.done(&cell, begun);
        Ok(())
    }

    /// An operation that stays open.
    pub async fn left_open(&self, n: u64) -> Asked {
        self.create(n, Millis::secs(60), 10).await.map(|_| ())
    }

    pub async fn api_key(&self, id: &str) -> Asked {
        let cell = Cell::ApiKey(id.into());
        let mut key = ApiKey {
            id: id.into(),
            principal: "alice".into(),
            hash: "00".into(),
            created_at: Time(1),
            revoked_at: None,
            note: String::new(),
        };
        self.asked(&cell, format!("{key:?}"), self.store.put_api_key(key.clone())).await?;
        key.revoked_at = Some(Time(2));
        self.asked(&cell, format!("{key:?}"), self.store.put_api_key(key)).await
    }

    pub async fn session(&self, id: &str) -> Asked {
        let cell = Cell::Session(id.into());
        let mut s = Session {
            id: id.into(),
            principal: "alice".into(),
            revision: "2025-11-25".into(),
            client: "{}".into(),
            log_level: None,
            subscriptions: vec!["note://1".into()],
            opened_at: Time(1),
            used_at: Time(1),
        };
        self.asked(&cell, format!("{s:?}"), self.store.open_session(s.clone())).await?;
        s.log_level = Some("debug".into());
        let change = SessionChange::LogLevel("debug".into());
        self.asked(&cell, format!("{s:?}"), self.store.change_session(id, change)).await?;
        s.subscriptions.push("note://2".into());
        let change = SessionChange::Subscribe("note://2".into());
        self.asked(&cell, format!("{s:?}"), self.store.change_session(id, change)).await?;
        if id.ends_with("ended") {
            self.asked(&cell, "absent".into(), self.store.end_session(id)).await?;
        }
        Ok(())
    }

    /// Prunes the one operation that is kept for no time.
    async fn prune(&self, n: u64) -> Asked {
        let later = self.store.now().plus(Millis(10));
        let prune = self.store.prune(later, Millis::secs(60), 10);
        let went = self.asked(&Cell::Operation(id(n)), PRUNED.into(), prune).await?;
        assert_eq!(went, 1);
        Ok(())
    }

    /// The whole workload, `first` being its first operation's number. What was refused is returned; the rest of it
    /// goes on.
    pub async fn everything(&self, first: u64, recorder: &Recorder) -> Vec<StoreError> {
        let week = Millis::secs(7 * 86_400);
        let mut errors: Vec<Asked> = Vec::new();
        let (key, session) = (format!("k{first}"), format!("s{first}"));
        let begun = tokio::join!(
            self.operation(first, Millis(0), 20),
            self.operation(first + 1, week, 5000),
            self.operation(first + 2, week, 20),
            self.api_key(&key),
            self.session(&session),
        );
        let pruned = begun.0.is_ok();
        errors.extend([begun.0, begun.1, begun.2, begun.3, begun.4]);
        // Enough for the log to be copied into the database when nothing else is to do.
        errors.push(self.operation(first + 3, week, 1_200_000).await);
        if errors.iter().all(Result::is_ok) {
            copied(recorder).await;
        }
        // The log begins anew.
        errors.push(self.left_open(first + 4).await);
        if pruned {
            errors.push(self.prune(first).await);
        }
        let end = format!("s{first}-ended");
        let last =
            tokio::join!(self.operation(first + 5, week, 20), self.left_open(first + 6), self.session(&end));
        errors.extend([last.0, last.1, last.2]);
        errors.into_iter().filter_map(Result::err).collect()
    }
}

/// Waits until the database file itself was synced; not for long, as a fault may stand in the way.
async fn copied(recorder: &Recorder) {
    let from = recorder.len();
    for _ in 0..300 {
        if recorder.since(from, |e| matches!(e, DiskEvent::Sync { file, .. } if &**file == "ledger.db")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
