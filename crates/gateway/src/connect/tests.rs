//! Two replicas on one ledger, and an authorization server that is played.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../credentials/tests/common/mod.rs"]
mod common;

use super::record::Record;
use super::*;
use common::{Played, rotating};
use ledger::env::Abort;
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{Env, Millis, SystemEnv, Time};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The system's, whose clock can be put forward.
#[derive(Default)]
struct Clock(AtomicI64);

impl Env for Clock {
    fn random(&self, buf: &mut [u8]) {
        SystemEnv.random(buf);
    }
    fn sleep(&self, d: Millis) -> futures_util::future::BoxFuture<'static, ()> {
        SystemEnv.sleep(d)
    }
    fn spawn(&self, task: futures_util::future::BoxFuture<'static, ()>) -> Abort {
        SystemEnv.spawn(task)
    }
    fn monotonic(&self) -> i64 {
        SystemEnv.monotonic() + self.0.load(Ordering::SeqCst)
    }
}

const ALICE: Whose<'static> =
    Whose { account: "a", mode: "sandbox", origin: common::ORIGIN, principal: "alice" };

struct Two {
    store: Arc<MemoryStore>,
    clock: Arc<Clock>,
    played: Played,
    client: Client,
    all: [Arc<Connections>; 2],
}

impl Two {
    /// With tokens that live so many seconds; the clock is put forward by as many.
    async fn new(life: i64, forward: i64, play: impl FnMut(&str) -> (u16, String) + Send + 'static) -> Two {
        let clock = Arc::new(Clock::default());
        let store = Arc::new(MemoryStore::new(clock.clone(), Time(1_700_000_000_000), Attention::default()));
        let place = seal::MasterPlace::Given(seal::MasterKey::new().unwrap());
        let sealing = seal::Settings { audience: "test".into(), state_ttl: Millis::secs(600), alone: true };
        let mut all = Vec::new();
        for _ in 0..2 {
            let shelf = Arc::new(seal::OnLedger(store.clone()));
            let keeper = Keeper::start(shelf, place.clone(), sealing.clone()).await.unwrap();
            let one = Connections::default();
            one.open(store.clone(), keeper);
            all.push(Arc::new(one));
        }
        let played = Played::new(play);
        let client = played.client();
        let all = all.try_into().unwrap_or_else(|_| unreachable!());
        let pair = Two { store, clock, played, client, all };
        pair.connect("mark", life).await;
        pair.forward(forward);
        pair
    }

    fn forward(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    async fn connect(&self, mark: &str, life: i64) {
        let tokens = Tokens {
            access: Zeroizing::new("access1".into()),
            refresh: Some(Zeroizing::new("refresh1".into())),
            expires: Some(credentials::unix_now() + life),
            scopes: vec!["read".into()],
        };
        let grant = renew::granted(&self.client, &tokens, self.store.now());
        let pair = Pair { access: tokens.access, refresh: tokens.refresh };
        let text = serde_json::to_vec(&pair).unwrap();
        self.all[0].keep(&ALICE, mark, Some(grant), &text, None).await.unwrap();
    }

    async fn find(&self, n: usize) -> Result<Option<(String, Option<Ticket>)>, String> {
        let found = self.all[n].find(&ALICE, Some(&self.client)).await?;
        Ok(found.map(|own| {
            assert_eq!(own.mark, "mark");
            (own.secret.to_string(), own.ticket)
        }))
    }

    async fn token(&self, n: usize) -> String {
        self.find(n).await.unwrap().unwrap().0
    }

    /// Until the server was asked so often.
    async fn reached(&self, many: usize) {
        while self.played.asked() < many {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn record(&self) -> Record {
        record::read(&*self.store, &ALICE).await.unwrap().1.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_uses_at_two_replicas_one_renews() {
    let pair = Arc::new(Two::new(100, 101, rotating()).await);
    let mut all = tokio::task::JoinSet::new();
    for n in 0..16 {
        let pair = pair.clone();
        all.spawn(async move { pair.token(n % 2).await });
    }
    while let Some(one) = all.join_next().await {
        assert_eq!(one.unwrap(), "access2");
    }
    assert_eq!(pair.played.asked(), 1);
    let grant = pair.record().await.grant.unwrap();
    assert!(grant.renewable && grant.refused.is_none() && grant.ends.unwrap() > pair.store.now());
    // And the next time, at the other one.
    pair.forward(3600);
    assert_eq!(pair.token(1).await, "access3");
    assert_eq!((pair.token(0).await, pair.played.asked()), ("access3".into(), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_about_to_end_is_used_while_another_is_got() {
    let pair = Arc::new(Two::new(100, 90, rotating()).await);
    let first = tokio::spawn({
        let pair = pair.clone();
        async move { pair.token(0).await }
    });
    pair.reached(1).await;
    assert_eq!(pair.token(1).await, "access1");
    assert_eq!((first.await.unwrap(), pair.played.asked()), ("access2".into(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_away_leaves_a_renewal_that_is_finished() {
    let pair = Two::new(100, 101, rotating()).await;
    let gone = tokio::time::timeout(Duration::from_millis(50), pair.find(0)).await;
    assert!(gone.is_err());
    assert_eq!((pair.token(1).await, pair.token(0).await), ("access2".into(), "access2".into()));
    assert_eq!(pair.played.asked(), 1);
    // One that was begun for a refusal is told, too: the next refusal so soon after it is the provider's last word.
    let pair = Two::new(3600, 0, rotating()).await;
    let first = pair.find(0).await.unwrap().unwrap().1.unwrap();
    assert!(pair.all[0].refused(&ALICE, first));
    let gone = tokio::time::timeout(Duration::from_millis(50), pair.find(0)).await;
    assert!(gone.is_err());
    let (token, second) = pair.find(0).await.unwrap().unwrap();
    assert_eq!(token, "access2");
    assert!(pair.all[0].refused(&ALICE, first) && !pair.all[0].refused(&ALICE, second.unwrap()));
    assert_eq!(pair.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_kept_and_asked_for_once() {
    let over = |_: &str| (400, r#"{"error":"invalid_grant"}"#.into());
    let pair = Two::new(100, 101, over).await;
    for n in [0, 1, 0, 1] {
        assert_eq!(pair.find(n).await, Ok(None));
    }
    assert_eq!(pair.played.asked(), 1);
    assert_eq!(pair.record().await.grant.unwrap().refused.as_deref(), Some("invalid_grant"));
    // Connected anew it is another one.
    pair.connect("another", 100).await;
    let own = pair.all[1].find(&ALICE, Some(&pair.client)).await.unwrap().unwrap();
    assert_eq!((own.mark.as_str(), own.secret.as_str()), ("another", "access1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_over_at_a_replica_whose_token_would_be_good_yet() {
    let over = |_: &str| (400, r#"{"error":"invalid_grant"}"#.into());
    let pair = Two::new(3600, 0, over).await;
    let first = pair.find(0).await.unwrap().unwrap().1.unwrap();
    assert_eq!(pair.token(1).await, "access1");
    assert!(pair.all[0].refused(&ALICE, first));
    for n in [0, 1, 0, 1] {
        assert_eq!(pair.find(n).await, Ok(None));
    }
    assert_eq!(pair.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_too_long_to_be_kept_are_not_asked_for_again_and_again() {
    let long = format!(r#"{{"access_token":"{}","token_type":"Bearer"}}"#, "a".repeat((8 << 10) - 4));
    let pair = Two::new(100, 101, move |_| (200, long.clone())).await;
    for n in [0, 1, 1, 0] {
        let why = pair.find(n).await.unwrap_err();
        assert!(why.contains("longer than the 8 KiB"), "{why}");
    }
    assert_eq!(pair.played.asked(), 1);
    // It is as it was.
    pair.played.play(rotating());
    pair.forward(3);
    assert_eq!(pair.token(1).await, "access2");
    // Nor are they taken at first: what is bounded is what is sealed.
    let tokens = |size: usize| Tokens {
        access: Zeroizing::new("a".repeat(size)),
        refresh: Some(Zeroizing::new("r".into())),
        expires: None,
        scopes: vec![],
    };
    assert!(pair.all[0].new_tokens(&pair.client, tokens(8000)).is_ok());
    assert!(pair.all[0].new_tokens(&pair.client, tokens((8 << 10) - 4)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_connection_takes_the_place_of_none_that_can_be_used() {
    let pair = Two::new(100, 0, rotating()).await;
    let again = async || {
        let tokens = Tokens {
            access: Zeroizing::new("other".into()),
            refresh: None,
            expires: Some(credentials::unix_now() + 3600),
            scopes: vec![],
        };
        let tokens = pair.all[1].new_tokens(&pair.client, tokens).unwrap();
        pair.all[1].connect(&ALICE, &pair.client, &tokens).await.unwrap();
        pair.record().await.mark
    };
    assert_eq!(again().await, "mark");
    // Nor of one that is renewed first.
    pair.forward(101);
    assert_eq!(again().await, "mark");
    pair.played.play(|_| (400, r#"{"error":"invalid_grant"}"#.into()));
    assert_eq!(pair.find(0).await, Ok(None));
    assert_ne!(again().await, "mark");
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_that_a_renewal_does_not_tell_are_those_of_before() {
    let mut pair = Two::new(100, 101, rotating()).await;
    pair.client.scopes = vec!["read".into(), "write".into()];
    assert_eq!(pair.token(0).await, "access2");
    assert_eq!(pair.record().await.grant.unwrap().scopes, ["read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_is_waited_for_at_the_end() {
    let pair = Two::new(100, 101, rotating()).await;
    let got = pair.record().await.grant.unwrap().got;
    assert!(tokio::time::timeout(Duration::from_millis(50), pair.find(0)).await.is_err());
    pair.all[0].settle(Duration::ZERO).await;
    assert_eq!(pair.record().await.grant.unwrap().got, got);
    pair.all[0].settle(Duration::from_secs(10)).await;
    assert_ne!(pair.record().await.grant.unwrap().got, got);
    assert_eq!(pair.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_changes_nothing_and_is_left_alone_by_all_for_a_while() {
    for (status, body) in [
        (500, "<h1>SECRET</h1>"),
        (302, ""),
        (200, "SECRET"),
        (401, r#"{"error":"invalid_client"}"#),
        (200, r#"{"access_token":"a","token_type":"mac"}"#),
    ] {
        let pair = Two::new(100, 90, move |_| (status, body.into())).await;
        // Good for a little yet.
        for n in [0, 1, 1, 0] {
            assert_eq!(pair.token(n).await, "access1", "{status} {body}");
        }
        assert_eq!(pair.played.asked(), 1, "{status} {body}");
        pair.forward(11);
        for n in [0, 1, 1, 0] {
            let why = pair.find(n).await.unwrap_err();
            assert!(why.contains("can't be renewed now") && !why.contains("SECRET"), "{why}");
        }
        assert_eq!(pair.played.asked(), 2, "{status} {body}");
        pair.played.play(rotating());
        pair.forward(3);
        assert_eq!(pair.token(1).await, "access2", "{status} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_replaced_once_for_all_that_were_sent_under_it() {
    let pair = Two::new(3600, 0, rotating()).await;
    let first = pair.find(0).await.unwrap().unwrap().1.unwrap();
    assert!(pair.all[0].refused(&ALICE, first));
    let (token, second) = pair.find(0).await.unwrap().unwrap();
    assert_eq!(token, "access2");
    for n in [0, 0, 1, 1] {
        assert!(pair.all[n].refused(&ALICE, first));
        assert_eq!(pair.token(n).await, "access2");
    }
    assert!(!pair.all[0].refused(&ALICE, second.unwrap()));
    assert_eq!(pair.token(0).await, "access2");
    assert_eq!(pair.played.asked(), 1);
    // Of somebody else nothing was said.
    let bob = Whose { principal: "bob", ..ALICE };
    assert!(pair.all[0].find(&bob, Some(&pair.client)).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_holder_is_gone_ends() {
    let pair = Arc::new(Two::new(100, 101, rotating()).await);
    let data = serde_json::to_vec(&serde_json::json!({ "Taken": "somebody" })).unwrap();
    let at = format!("renewal/{}", place(&ALICE));
    let until = Some(pair.store.now().plus(Millis::secs(20)));
    assert!(pair.store.shelve(&at, 0, data, until).await.unwrap());
    let waits = tokio::spawn({
        let pair = pair.clone();
        async move { pair.token(0).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished() && pair.played.asked() == 0);
    pair.forward(21);
    assert_eq!((waits.await.unwrap(), pair.played.asked()), ("access2".into(), 1));
}

/// A replica that stood still for longer than its turn: another one asked with the used token. What counts in the end is
/// what the server gave.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_more_than_the_refusal_of_the_token_that_got_it() {
    let pair = Arc::new(Two::new(100, 101, rotating()).await);
    let begin = |n: usize| {
        let pair = pair.clone();
        tokio::spawn(async move { pair.find(n).await.unwrap().map(|(token, _)| token) })
    };
    let one = begin(0);
    pair.reached(1).await;
    pair.forward(21);
    let two = begin(1);
    pair.reached(2).await;
    // Whichever answer is there first, the other one may find nothing for a moment.
    let (one, _) = (one.await.unwrap(), two.await.unwrap());
    assert_eq!((one.as_deref(), pair.token(1).await.as_str()), (Some("access2"), "access2"));
    assert_eq!((pair.record().await.grant.unwrap().refused, pair.played.asked()), (None, 2));
    // The refusal was written first.
    pair.forward(3600);
    let one = begin(0);
    pair.reached(3).await;
    let (record, shelf) = (pair.record().await, pair.all[1].kept().unwrap());
    let text = shelf.open(&ALICE, &record).await.unwrap().unwrap();
    let refused = Grant { refused: Some("invalid_grant".into()), ..record.grant.unwrap() };
    pair.all[1].keep(&ALICE, "mark", Some(refused), &text, None).await.unwrap();
    assert_eq!(one.await.unwrap().as_deref(), Some("access3"));
    assert_eq!((pair.record().await.grant.unwrap().refused, pair.token(1).await), (None, "access3".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_meanwhile_does_not_come_back() {
    let pair = Arc::new(Two::new(100, 101, rotating()).await);
    let renews = tokio::spawn({
        let pair = pair.clone();
        async move { pair.find(0).await }
    });
    pair.reached(1).await;
    assert!(forget(&*pair.store, &ALICE).await.unwrap());
    assert_eq!(renews.await.unwrap(), Ok(None));
    assert_eq!(pair.find(1).await, Ok(None));
    assert_eq!(pair.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_their_issuers_and_clients_and_nothing_is_changed_of_what_is_told() {
    let pair = Two::new(3600, 0, rotating()).await;
    assert_eq!(pair.token(1).await, "access1");
    let other = Client { id: "another".into(), ..pair.client.clone() };
    assert!(pair.all[0].find(&ALICE, Some(&other)).await.unwrap().is_none());
    // Nor are they taken for a secret that was given.
    assert!(pair.all[0].find(&ALICE, None).await.unwrap().is_none());
    let found = pair.store.shelved(&place(&ALICE)).await.unwrap().unwrap();
    let text = String::from_utf8(found.data).unwrap();
    assert!(!text.contains("access1") && !text.contains("refresh1"), "{text}");
    let changed = text.replace("\"client\":\"client\"", "\"client\":\"another\"");
    assert_ne!(text, changed);
    assert!(pair.store.shelve(&place(&ALICE), found.version, changed.into_bytes(), None).await.unwrap());
    assert!(pair.all[0].find(&ALICE, Some(&other)).await.unwrap().is_none());
    assert_eq!(pair.played.asked(), 0);
}
