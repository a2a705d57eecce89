//! What is put away at one replica is taken out at any, over every change of keys, and for nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::Memory;
use ledger::Millis;
use seal::{Keeper, MasterKey, MasterPlace, OpenError, Operation, Reject, Settings};
use std::sync::Arc;

const ABOUT: [&[u8]; 2] = [b"ledger", b"alice"];

fn settings() -> Settings {
    Settings { audience: "billing".into(), state_ttl: Millis::secs(600), alone: false }
}

async fn start(shelf: &Arc<Memory>, place: &MasterPlace) -> Keeper {
    Keeper::start(shelf.clone(), place.clone(), settings()).await.unwrap()
}

async fn alter(shelf: &Memory, place: &MasterPlace, operation: Operation) {
    seal::alter(shelf, place, &settings(), &operation).await.unwrap();
}

async fn taken(keeper: &Keeper, text: &str) -> Result<Vec<u8>, OpenError> {
    keeper.take_out(text, &ABOUT).await.map(|secret| secret.to_vec())
}

#[tokio::test(start_paused = true)]
async fn it_outlasts_rotations_and_master_keys() {
    let shelf = Arc::new(Memory::default());
    let (old, new) = (MasterKey::new().unwrap(), MasterKey::new().unwrap());
    let (place, next) = (MasterPlace::Given(old.clone()), MasterPlace::Given(new.clone()));
    let (a, b) = (start(&shelf, &place).await, start(&shelf, &place).await);
    let text = a.put_away(b"CANARY", &ABOUT).await.unwrap();
    assert_eq!(taken(&b, &text).await.unwrap(), b"CANARY");
    assert_eq!(
        b.take_out(&text, &[b"ledger", b"bob"]).await.unwrap_err(),
        OpenError::Rejected(Reject::Forged)
    );
    alter(&shelf, &place, Operation::Rotate).await;
    // Whoever read the ring now goes on opening what was put away before, and nothing of what comes later.
    let copied = Arc::new(Memory::default());
    copied.put(shelf.bytes());
    alter(&shelf, &place, Operation::Replace).await;
    alter(&shelf, &place, Operation::Allow(new)).await;
    alter(&shelf, &next, Operation::Forbid(old.id())).await;
    let c = start(&shelf, &next).await;
    assert_eq!(taken(&c, &text).await.unwrap(), b"CANARY");
    let later = c.put_away(b"CANARY", &ABOUT).await.unwrap();
    let thief = start(&copied, &place).await;
    assert_eq!(taken(&thief, &text).await.unwrap(), b"CANARY");
    assert_eq!(taken(&thief, &later).await.unwrap_err(), OpenError::Rejected(Reject::UnknownKey));
    // A replica that has an older copy reads the newer one before it refuses.
    let d = start(&shelf, &next).await;
    alter(&shelf, &next, Operation::Replace).await;
    c.refresh().await.unwrap();
    let newest = c.put_away(b"CANARY", &ABOUT).await.unwrap();
    assert_eq!(taken(&d, &newest).await.unwrap(), b"CANARY");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_away_is_no_refusal() {
    let shelf = Arc::new(Memory::default());
    let place = MasterPlace::Given(MasterKey::new().unwrap());
    let a = start(&shelf, &place).await;
    let text = a.put_away(b"CANARY", &ABOUT).await.unwrap();
    tokio::time::advance(seal::STALE.duration()).await;
    shelf.away.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(taken(&a, &text).await, Err(OpenError::Unavailable(_))));
    assert!(a.put_away(b"CANARY", &ABOUT).await.is_err());
}
