//! The writes of operations as the service makes them, for the examples that measure.
#![allow(dead_code, clippy::unwrap_used)]

pub mod limited;

use ledger::decide::{Fence, Opening, Outcome, open};
use ledger::executor::Receipt;
use ledger::store::{SlotWrite, Write};
use ledger::words::{EffectKey, Epoch, Key, OperationId, Scope, Time};
use ledger::{
    DeliveryState, Env, Event, Fingerprint, Intent, Operation, OperationPolicy, Recovery, Strategy,
    SystemEnv, decide,
};

/// What becomes of one operation.
pub struct Writes {
    /// It is opened with its intent, 512 bytes.
    pub create: Write,
    /// It ended, with a receipt of 128 bytes and a result of 1 KiB.
    pub close: Write,
    /// The result was sent.
    pub delivered: Write,
}

/// An operation with a key of its own, made at `at`.
pub fn operation(epoch: Epoch, at: Time) -> Writes {
    let id = OperationId::new(at, SystemEnv.random_u128());
    let scope = Scope { principal: "bench".into(), tool: "pay".into(), mode: "sandbox".into() };
    let key = Key::new(&format!("order-{:x}", SystemEnv.random_u128())).unwrap();
    let arguments =
        ledger::canonical::canonicalise_arguments(Some(&format!("{{\"order\":\"{}\"}}", key.as_str())), None)
            .unwrap();
    let fingerprint = Fingerprint::of("pay", &arguments);
    let effect = EffectKey::derive("bench", &scope, id, Some(&key), &fingerprint, "charge", "");
    let intent = Intent {
        name: "charge".into(),
        discriminator: String::new(),
        recovery: Recovery::new(Strategy::Key),
        summary: "POST https://api.example/charges".into(),
        body: vec![b'x'; 512],
    };
    let opening = Opening {
        id,
        scope,
        key: Some(key),
        fingerprint,
        policy: OperationPolicy::default(),
        epoch,
        intent: Some((intent, effect)),
        arguments: None,
        asks: Vec::new(),
    };
    let opened = open(opening, at);
    let fence = Fence { attempt: 1, epoch };
    let receive = Event::Receive { fence, effect: 0, outcome: Outcome::Applied(Receipt(vec![b'r'; 128])) };
    let received = decide(&opened.next, receive, at).unwrap();
    let close = Event::Close { fence, result: vec![b'y'; 1024], is_error: false, caller_gone: false };
    let closed = decide(&received.next, close, at).unwrap();
    // Both transitions in one write, as the service makes them: the version counts one.
    let next = Operation { version: 2, ..closed.next };
    let delivered = decide(&next, Event::Deliver(DeliveryState::Written), at).unwrap();
    let update = |operation: Operation, stamp, blobs| Write::Update {
        operation: Box::new(operation),
        stamp,
        blobs,
        handles: Vec::new(),
    };
    Writes {
        create: Write::Create {
            operation: Box::new(opened.next),
            slot: SlotWrite::CompareAndSet(None),
            blobs: opened.blobs,
        },
        close: update(next, 1, received.blobs.into_iter().chain(closed.blobs).collect()),
        delivered: update(delivered.next, 2, delivered.blobs),
    }
}

/// The same operation, over and delivered, as one creation.
pub fn over(epoch: Epoch, at: Time) -> Write {
    let Writes { create, close, delivered } = operation(epoch, at);
    let (Write::Create { blobs, .. }, Write::Update { blobs: more, .. }) = (create, close) else {
        unreachable!("a creation and an update");
    };
    Write::Create {
        operation: Box::new(Operation { version: 1, ..delivered.operation().clone() }),
        slot: SlotWrite::Set,
        blobs: [blobs, more].concat(),
    }
}
