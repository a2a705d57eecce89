//! One ring for all processes on a ledger: made once, never replaced because it could not be opened.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::Memory;
use ledger::Millis;
use seal::{
    Error, FILE, Keeper, MasterKey, MasterPlace, OpenError, Operation, POLL, Reject, STALE, SealError,
    Settings, Stage, Told,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

fn settings(audience: &str) -> Settings {
    Settings { audience: audience.into(), state_ttl: Millis::secs(600), alone: false }
}

fn given() -> MasterPlace {
    MasterPlace::Given(MasterKey::new().unwrap())
}

fn file(dir: &Path) -> MasterPlace {
    MasterPlace::File(dir.join(FILE))
}

async fn start(shelf: &Arc<Memory>, place: &MasterPlace) -> Result<Keeper, Error> {
    Keeper::start(shelf.clone(), place.clone(), settings("billing")).await
}

async fn alter(shelf: &Memory, place: &MasterPlace, operation: Operation) -> Result<Told, Error> {
    seal::alter(shelf, place, &settings("billing"), &operation).await
}

/// Whether what one seals the other opens.
async fn agree(a: &Keeper, b: &Keeper) -> bool {
    let context = a.context("state", "ann", "tools/call", "t", b"f");
    let token = a.seal(b"{\"x\":1}", &context, None).await.unwrap();
    b.open(&token, &context).await == Ok(b"{\"x\":1}".to_vec())
}

#[tokio::test]
async fn processes_that_start_at_once_have_one_ring() {
    for _ in 0..20 {
        let (shelf, place) = (Arc::new(Memory::default()), given());
        let (a, b, c) = tokio::join!(start(&shelf, &place), start(&shelf, &place), start(&shelf, &place));
        let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
        assert!(agree(&a, &b).await && agree(&b, &c).await && agree(&c, &a).await);
        assert_eq!(shelf.value.lock().unwrap().as_ref().unwrap().version, 1);
    }
}

#[tokio::test]
async fn a_master_keys_file_is_made_with_the_ring_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let (shelf, place) = (Arc::new(Memory::default()), file(dir.path()));
    let first = start(&shelf, &place).await.unwrap();
    assert!(dir.path().join(FILE).exists());
    let again = start(&shelf, &place).await.unwrap();
    assert!(agree(&first, &again).await);
    // What is kept holds no key in the clear.
    let text = String::from_utf8(shelf.bytes()).unwrap();
    let master = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
    assert!(!text.contains(master.trim()) && !text.contains("secret"), "{text}");
}

/// Two machines with a directory each: one wins, the other is told, and leaves nothing that opens nothing.
#[tokio::test]
async fn machines_that_would_make_a_master_key_each_end_with_one() {
    for _ in 0..20 {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let shelf = Arc::new(Memory::default());
        let (places, keepers) = {
            let places = [file(one.path()), file(two.path())];
            let (a, b) = tokio::join!(start(&shelf, &places[0]), start(&shelf, &places[1]));
            (places, [a, b])
        };
        let won = keepers.iter().position(Result::is_ok).unwrap();
        let lost = keepers[1 - won].as_ref().unwrap_err();
        assert!(matches!(lost, Error::NoMaster { .. }), "{lost}");
        assert!(lost.to_string().contains("[seal] master") && lost.to_string().contains("mk-"), "{lost}");
        assert_eq!(places[1 - won].get(), Ok(None), "the file of the one that lost");
        assert!(places[won].get().unwrap().is_some());
        assert!(start(&shelf, &places[won]).await.is_ok());
    }
}

/// Two processes in one directory have one file, whoever is first with what.
#[tokio::test]
async fn processes_in_one_directory_share_its_master_key() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let (shelf, place) = (Arc::new(Memory::default()), file(dir.path()));
        let (a, b) = tokio::join!(start(&shelf, &place), start(&shelf, &place));
        assert!(agree(&a.unwrap(), &b.unwrap()).await);
        assert!(place.get().unwrap().is_some());
        assert!(start(&shelf, &place).await.is_ok());
    }
}

#[tokio::test]
async fn another_master_key_is_refused_and_changes_nothing() {
    let (shelf, place, other) = (Arc::new(Memory::default()), given(), given());
    start(&shelf, &place).await.unwrap();
    let kept = shelf.bytes();
    let refused = start(&shelf, &other).await.unwrap_err();
    let text = refused.to_string();
    let id = |place: &MasterPlace| place.get().unwrap().unwrap().id().to_string();
    assert!(refused.is_configuration() && text.contains(&id(&place)) && text.contains(&id(&other)), "{text}");
    assert!(text.contains("Nothing was changed") && text.contains("keys reset"), "{text}");
    for operation in [Operation::Rotate, Operation::Replace, Operation::Rename("x".into())] {
        let refused = alter(&shelf, &other, operation).await.unwrap_err();
        assert!(matches!(refused, Error::WrongMaster { .. }), "{refused}");
    }
    assert!(matches!(seal::look(&*shelf, &other).await, Err(Error::WrongMaster { .. })));
    assert_eq!(shelf.bytes(), kept);
    assert!(start(&shelf, &place).await.is_ok());
}

#[tokio::test]
async fn another_server_name_is_refused_where_there_may_be_others() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    start(&shelf, &place).await.unwrap();
    let kept = shelf.bytes();
    let refused = Keeper::start(shelf.clone(), place.clone(), settings("shop")).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("\"billing\"") && text.contains("\"shop\"") && text.contains("keys rename"),
        "{text}"
    );
    assert_eq!(shelf.bytes(), kept);
    // Renamed on purpose: the ones that run are told, and stop sealing before others refuse what they seal.
    let running = start(&shelf, &place).await.unwrap();
    let told = alter(&shelf, &place, Operation::Rename("shop".into())).await.unwrap();
    assert_eq!(told.audience, "shop");
    assert!(Keeper::start(shelf.clone(), place.clone(), settings("shop")).await.is_ok());
    assert!(matches!(running.refresh().await, Err(Error::Audience { .. })));
    assert!(matches!(running.trouble(), Some(Error::Audience { .. })));
    // Where nobody else can be, a new name is a new name.
    let alone = Settings { alone: true, ..settings("alone") };
    let renamed = Keeper::start(shelf.clone(), place.clone(), alone).await.unwrap();
    assert_eq!(renamed.context("state", "a", "m", "n", b"").audience, "alone");
    assert_eq!(seal::look(&*shelf, &place).await.unwrap().audience, "alone");
}

/// Every byte of what is kept, changed: an error that says so, or, where the byte doesn't count, the same ring.
#[tokio::test]
async fn damage_is_found_told_and_left_alone() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    let keeper = start(&shelf, &place).await.unwrap();
    let good = shelf.bytes();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        shelf.put(bad.clone());
        match start(&shelf, &place).await {
            Ok(same) => assert!(agree(&keeper, &same).await, "byte {at}"),
            Err(
                e
                @ (Error::Damaged(_) | Error::WrongMaster { .. } | Error::Newer(_) | Error::Audience { .. }),
            ) => {
                assert!(e.is_configuration(), "{e}");
            }
            Err(e) => panic!("byte {at}: {e}"),
        }
        assert_eq!(shelf.bytes(), bad, "byte {at}: it was written over");
    }
    for bad in [vec![], b"null".to_vec(), b"{\"form\":1}".to_vec(), vec![b' '; 1 << 20], good[..100].to_vec()]
    {
        shelf.put(bad);
        let e = start(&shelf, &place).await.unwrap_err();
        assert!(matches!(e, Error::Damaged(_)) && e.to_string().contains("was left as it is"), "{e}");
    }
    shelf.put(String::from_utf8(good.clone()).unwrap().replace("\"form\":1", "\"form\":2").into_bytes());
    assert!(matches!(start(&shelf, &place).await, Err(Error::Newer(2))));
    let e = alter(&shelf, &place, Operation::Reset).await.unwrap_err();
    assert!(matches!(e, Error::Newer(2)), "what a newer version wrote is not damaged: {e}");
    // The server name is authenticated with the keys.
    shelf.put(String::from_utf8(good).unwrap().replace("billing", "billinG").into_bytes());
    assert!(matches!(start(&shelf, &place).await, Err(Error::Damaged(_))));
}

#[tokio::test(start_paused = true)]
async fn a_rotation_refuses_nothing() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    let (a, b) = (start(&shelf, &place).await.unwrap(), start(&shelf, &place).await.unwrap());
    let context = a.context("state", "ann", "tools/call", "t", b"f");
    let old = a.seal(b"1", &context, None).await.unwrap();
    let told = alter(&shelf, &place, Operation::Rotate).await.unwrap();
    assert_eq!(told.keys.iter().map(|t| t.stage).collect::<Vec<_>>(), [Stage::Active, Stage::Standby]);
    let again = alter(&shelf, &place, Operation::Rotate).await.unwrap_err().to_string();
    assert!(again.contains("on its way already") && again.contains("90 s"), "{again}");
    // One learns it, the other doesn't: it looks the key up when it meets it.
    shelf.advance(89_999);
    a.refresh().await.unwrap();
    let still = a.seal(b"2", &context, None).await.unwrap();
    assert_eq!(still.rsplit('.').next(), old.rsplit('.').next(), "the old key seals");
    shelf.advance(1);
    let new = a.seal(b"3", &context, None).await.unwrap();
    assert_ne!(new.rsplit('.').next(), old.rsplit('.').next());
    assert_eq!(b.open(&new, &context).await, Ok(b"3".to_vec()));
    for keeper in [&a, &b] {
        assert_eq!(keeper.open(&old, &context).await, Ok(b"1".to_vec()));
        assert_eq!(keeper.open(&still, &context).await, Ok(b"2".to_vec()));
    }
    // In the end the old key is taken out of the ledger.
    shelf.advance(Millis::secs(3600).0);
    let tending = a.clone();
    let tending = tokio::spawn(async move { tending.tend().await });
    tokio::time::sleep(POLL.duration() * 2).await;
    tending.abort();
    assert_eq!(seal::look(&*shelf, &place).await.unwrap().keys.len(), 1);
    assert_eq!(b.open(&old, &context).await, Err(OpenError::Rejected(Reject::UnknownKey)));
}

#[tokio::test(start_paused = true)]
async fn keys_are_let_go_at_once_where_that_is_asked() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    let (a, b) = (start(&shelf, &place).await.unwrap(), start(&shelf, &place).await.unwrap());
    let context = a.context("state", "ann", "tools/call", "t", b"f");
    let old = a.seal(b"1", &context, None).await.unwrap();
    alter(&shelf, &place, Operation::Replace).await.unwrap();
    a.refresh().await.unwrap();
    let new = a.seal(b"2", &context, None).await.unwrap();
    assert_eq!(b.open(&new, &context).await, Ok(b"2".to_vec()), "it looks the new key up");
    for keeper in [&a, &b] {
        assert_eq!(keeper.open(&old, &context).await, Err(OpenError::Rejected(Reject::UnknownKey)));
    }
}

/// Whoever sends names of keys that don't exist makes one reading a second, not one each.
#[tokio::test(start_paused = true)]
async fn unknown_keys_make_few_readings() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    let a = start(&shelf, &place).await.unwrap();
    let foreign = start(&Arc::new(Memory::default()), &given()).await.unwrap();
    let context = a.context("state", "ann", "tools/call", "t", b"f");
    let token = foreign.seal(b"1", &context, None).await.unwrap();
    let (begun, before) = (tokio::time::Instant::now(), shelf.reads.load(SeqCst));
    let mut all = tokio::task::JoinSet::new();
    for i in 0..200u64 {
        let (a, token) = (a.clone(), token.clone());
        all.spawn(async move {
            tokio::time::sleep(Duration::from_millis(i * 20)).await;
            let context = a.context("state", "ann", "tools/call", "t", b"f");
            a.open(&token, &context).await
        });
    }
    while let Some(done) = all.join_next().await {
        assert_eq!(done.unwrap(), Err(OpenError::Rejected(Reject::UnknownKey)));
    }
    let reads = shelf.reads.load(SeqCst) - before;
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!(reads >= 1 && reads <= seconds + 1, "{reads} readings in {seconds} s");
    assert!(seconds <= 6, "{seconds} s");
}

/// While the ledger is away a fresh copy does; a stale one neither seals nor refuses.
#[tokio::test(start_paused = true)]
async fn a_stale_copy_is_not_used() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    let a = start(&shelf, &place).await.unwrap();
    let context = a.context("state", "ann", "tools/call", "t", b"f");
    let token = a.seal(b"1", &context, None).await.unwrap();
    shelf.away.store(true, SeqCst);
    assert!(a.refresh().await.is_err());
    assert_eq!(a.open(&token, &context).await, Ok(b"1".to_vec()));
    // A key that it doesn't know may be a new one.
    let foreign = start(&Arc::new(Memory::default()), &given()).await.unwrap();
    let unknown = foreign.seal(b"1", &context, None).await.unwrap();
    assert!(matches!(a.open(&unknown, &context).await, Err(OpenError::Unavailable(_))));
    tokio::time::sleep(STALE.duration()).await;
    assert!(matches!(a.open(&token, &context).await, Err(OpenError::Unavailable(_))));
    assert!(matches!(a.seal(b"1", &context, None).await, Err(SealError::Unavailable(_))));
    shelf.away.store(false, SeqCst);
    assert_eq!(a.open(&token, &context).await, Ok(b"1".to_vec()));
    assert!(a.trouble().is_none());
}

#[tokio::test]
async fn replicas_go_over_to_another_master_key_one_by_one() {
    let (shelf, old, new) = (Arc::new(Memory::default()), given(), given());
    let key = |place: &MasterPlace| place.get().unwrap().unwrap();
    let a = start(&shelf, &old).await.unwrap();
    let told = alter(&shelf, &old, Operation::Allow(key(&new))).await.unwrap();
    assert_eq!(told.masters, [key(&old).id(), key(&new).id()]);
    assert!(alter(&shelf, &old, Operation::Allow(key(&new))).await.is_err());
    let third = alter(&shelf, &old, Operation::Allow(key(&given()))).await.unwrap_err().to_string();
    assert!(third.contains("forbid one"), "{third}");
    // Both open it, and both turn it.
    let b = start(&shelf, &new).await.unwrap();
    assert!(agree(&a, &b).await && agree(&b, &a).await);
    alter(&shelf, &new, Operation::Rotate).await.unwrap();
    a.refresh().await.unwrap();
    let own = alter(&shelf, &new, Operation::Forbid(key(&new).id())).await.unwrap_err().to_string();
    assert!(own.contains("restart"), "{own}");
    let before = shelf.bytes();
    let told = alter(&shelf, &new, Operation::Forbid(key(&old).id())).await.unwrap();
    assert_eq!(told.masters, [key(&new).id()]);
    assert!(agree(&a, &b).await, "the ring is the same");
    assert!(matches!(start(&shelf, &old).await, Err(Error::WrongMaster { .. })));
    assert!(matches!(a.refresh().await, Err(Error::WrongMaster { .. })));
    // The old slot, put back by whoever kept it, opens nothing of what is written now.
    let (before, now): (serde_json::Value, serde_json::Value) =
        (serde_json::from_slice(&before).unwrap(), serde_json::from_slice(&shelf.bytes()).unwrap());
    let mut mixed = now.clone();
    mixed["masters"] = before["masters"].clone();
    shelf.put(serde_json::to_vec(&mixed).unwrap());
    assert!(matches!(start(&shelf, &old).await, Err(Error::Damaged(_))));
}

#[tokio::test]
async fn a_ring_that_opens_is_not_reset_and_one_that_does_not_is() {
    let (shelf, place) = (Arc::new(Memory::default()), given());
    start(&shelf, &place).await.unwrap();
    let refused = alter(&shelf, &place, Operation::Reset).await.unwrap_err().to_string();
    assert!(refused.contains("nothing was changed"), "{refused}");
    let dir = tempfile::tempdir().unwrap();
    let other = file(dir.path());
    assert!(matches!(start(&shelf, &other).await, Err(Error::NoMaster { .. })));
    assert_eq!(other.get(), Ok(None));
    let told = alter(&shelf, &other, Operation::Reset).await.unwrap();
    assert_eq!((told.keys.len(), told.masters.clone()), (1, vec![told.mine]));
    assert!(start(&shelf, &other).await.is_ok());
    assert!(matches!(start(&shelf, &place).await, Err(Error::WrongMaster { .. })));
}

/// A write whose answer was lost is found again, and not made twice.
#[tokio::test]
async fn a_lost_acknowledgement_makes_no_second_ring() {
    let dir = tempfile::tempdir().unwrap();
    let (shelf, place) = (Arc::new(Memory::default()), file(dir.path()));
    shelf.lose.store(true, SeqCst);
    let e = start(&shelf, &place).await.unwrap_err();
    assert!(matches!(e, Error::Store(_)) && !e.is_configuration(), "{e}");
    let kept = shelf.bytes();
    start(&shelf, &place).await.unwrap();
    assert_eq!(shelf.bytes(), kept);
    shelf.lose.store(true, SeqCst);
    assert!(alter(&shelf, &place, Operation::Rotate).await.is_err());
    assert_eq!(seal::look(&*shelf, &place).await.unwrap().keys.len(), 2);
}

/// On a ledger's own shelf.
#[tokio::test]
async fn a_ledger_keeps_a_ring() {
    use ledger::store::Attention;
    let env: Arc<dyn ledger::Env> = Arc::new(ledger::SystemEnv);
    let store = Arc::new(ledger::memory::MemoryStore::new(env, ledger::Time(1000), Attention::default()));
    let (shelf, place) = (Arc::new(seal::OnLedger(store)), given());
    let start = || Keeper::start(shelf.clone(), place.clone(), settings("billing"));
    let (a, b) = tokio::join!(start(), start());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(agree(&a, &b).await && agree(&b, &a).await);
    let told = seal::alter(&*shelf, &place, &settings("billing"), &Operation::Rotate).await.unwrap();
    assert_eq!(told.keys.len(), 2);
    assert_eq!(seal::look(&*shelf, &place).await.unwrap().keys.len(), 2);
    assert!(agree(&start().await.unwrap(), &a).await);
}
