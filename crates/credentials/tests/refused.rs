//! Tokens and clients that are refused, forgotten or loaded anew, against an authorization server that is played.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{Played, Stage, rotating, secret};
use credentials::{Client, Flow, Live, Secret, Wanted};
use std::time::Duration;
use zeroize::Zeroizing;

/// Gives another token each time.
fn own() -> impl FnMut(&str) -> (u16, String) + Send + 'static {
    let mut n = 0;
    move |_| {
        n += 1;
        (200, format!(r#"{{"access_token":"own{n}","token_type":"bearer","expires_in":3600}}"#))
    }
}

/// A client that acts for itself, by this secret or the store's.
fn itself(played: &Played, secret: Option<&str>) -> Client {
    Client {
        flow: Flow::ClientCredentials,
        secret: secret.map(|s| Zeroizing::new(s.into())),
        ..played.client()
    }
}

fn kept_secret() -> Secret {
    Secret { client_secret: Some(Zeroizing::new("s".into())), ..Secret::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_were_sent_under_a_replaced_token_go_out_again() {
    let stage = Stage::new(1000, rotating());
    let live = stage.live();
    let first = live.find(&stage.wanted()).await.unwrap().ticket.unwrap();
    assert!(live.refused(&stage.wanted(), first));
    let second = live.find(&stage.wanted()).await.unwrap();
    assert_eq!(second.secret.as_str(), "access2");
    // The answers of the others, which left under the first one.
    for _ in 0..9 {
        assert!(live.refused(&stage.wanted(), first));
        assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    }
    assert!(!live.refused(&stage.wanted(), second.ticket.unwrap()));
    assert_eq!(stage.played.asked(), 1);
    // Connected anew with the very token that was replaced: no one goes round with it for ever.
    stage.connect("m1", 1000, secret(1));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().ticket, Some(first));
    assert!(!live.refused(&stage.wanted(), first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_given_again_is_not_asked_for_again() {
    let same =
        r#"{"access_token":"access1","refresh_token":"refresh1","token_type":"Bearer","expires_in":3600}"#;
    let stage = Stage::new(1000, move |_| (200, same.into()));
    let live = stage.live();
    let first = live.find(&stage.wanted()).await.unwrap().ticket.unwrap();
    assert!(live.refused(&stage.wanted(), first));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().ticket, Some(first));
    assert!(!live.refused(&stage.wanted(), first));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().ticket, Some(first));
    assert_eq!(stage.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_secret_is_forgotten_is_over() {
    let mut stage = Stage::new(1000, own());
    stage.client = itself(&stage.played, None);
    stage.connect("m1", 1000, kept_secret());
    let live = stage.live();
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "own1");
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "own1");
    stage.store.forget("a", "sandbox").unwrap();
    for _ in 0..2 {
        let told = live.find(&stage.wanted()).await.unwrap_err();
        assert!(told.contains("not connected") && told.contains("auth connect a"), "{told}");
    }
    assert_eq!(stage.played.asked(), 1);
    stage.connect("m1", 1000, kept_secret());
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "own2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_client_rests_and_changes_nothing() {
    let refuses = |_: &str| (401, r#"{"error":"invalid_client"}"#.into());
    // A token that is good for a little yet goes on being used.
    let stage = Stage::new(30, refuses);
    let live = stage.live();
    for _ in 0..5 {
        assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access1");
    }
    assert_eq!(stage.played.asked(), 1);
    // One that is over is asked about once, too; and when the client is right again, it is renewed.
    let stage = Stage::new(-5, refuses);
    let live = stage.live();
    for _ in 0..5 {
        let told = live.find(&stage.wanted()).await.unwrap_err();
        assert!(told.contains("invalid_client") && told.contains("Check client_id"), "{told}");
    }
    assert_eq!((stage.played.asked(), stage.kept().0.refused), (1, None));
    stage.played.play(rotating());
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    // And a client that acts for itself.
    let mut stage = Stage::new(-5, refuses);
    stage.client = itself(&stage.played, Some("s"));
    let live = stage.live();
    for _ in 0..5 {
        let told = live.find(&stage.wanted()).await.unwrap_err();
        assert!(told.contains("invalid_client") && !told.contains("try again"), "{told}");
    }
    assert_eq!(stage.played.asked(), 1);
    // Corrected, it does not rest first.
    stage.played.play(own());
    stage.client = itself(&stage.played, Some("corrected"));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "own1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_loaded_anew_goes_on_with_what_is_known() {
    let stage = Stage::new(-5, rotating());
    let shared = || Live::shared(Ok(stage.store.clone()));
    let lock = stage.store.folder().join("store.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    assert!(shared().find(&stage.wanted()).await.unwrap_err().contains("store.lock"));
    assert_eq!(stage.kept().1, secret(1));
    std::fs::remove_dir(&lock).unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(shared().find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    assert_eq!((stage.kept().1, stage.played.asked()), (secret(2), 1));
    // Another store is another.
    let other = Stage::new(1000, rotating());
    let found = Live::shared(Ok(other.store.clone())).find(&other.wanted()).await.unwrap();
    assert_eq!(found.secret.as_str(), "access1");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_client_does_not_use_the_token_of_the_one_before() {
    let stage = Stage::new(1000, own());
    let live = stage.live();
    let one = itself(&stage.played, Some("s"));
    let found = |client: Client| {
        let (live, stage) = (live.clone(), &stage);
        async move {
            let found = live.find(&Wanted { client: Some(&client), ..stage.wanted() }).await.unwrap();
            (found.secret.to_string(), found.mark)
        }
    };
    let (first, mark) = found(one.clone()).await;
    assert_eq!(first, "own1");
    let (second, other) = found(Client { id: "another".into(), ..one.clone() }).await;
    assert!(second == "own2" && mark != other);
    assert_eq!(found(one.clone()).await, (first, mark.clone()));
    // The same one that asks for something else, or by another secret, is the same account and gets a token of that.
    let scopes = Client { scopes: vec!["write".into()], ..one.clone() };
    assert_eq!(found(scopes.clone()).await, ("own3".into(), mark.clone()));
    assert_eq!(found(scopes.clone()).await, ("own3".into(), mark.clone()));
    let secret = Some(Zeroizing::new("new".into()));
    assert_eq!(found(Client { secret, ..scopes }).await, ("own4".into(), mark));
}
