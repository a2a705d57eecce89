//! Tokens that are used, renewed and refused, against an authorization server that is played.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{ORIGIN, Played, Stage, rotating, secret};
use credentials::{Client, Endpoints, Flow, Live, Secret, Store, Wanted, unix_now};
use std::time::Duration;
use zeroize::Zeroizing;

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_it_ends_and_kept_before_it_is_used() {
    let stage = Stage::new(1000, rotating());
    let live = stage.live();
    let found = live.find(&stage.wanted()).await.unwrap();
    assert_eq!((found.secret.as_str(), found.mark.as_str()), ("access1", "m1"));
    assert_eq!(stage.played.asked(), 0);
    assert!(!format!("{found:?} {live:?} {:?}", stage.client).contains("access1"));

    stage.connect("m1", 20, secret(1));
    let found = live.find(&stage.wanted()).await.unwrap();
    assert_eq!((found.secret.as_str(), found.mark.as_str()), ("access2", "m1"));
    let asked = stage.played.asked.lock().unwrap()[0].clone();
    for part in ["POST /token", "grant_type=refresh_token", "resource=https%3A%2F%2Fapi.example%2Fv1"] {
        assert!(asked.contains(part), "{asked}");
    }
    let (about, kept) = stage.kept();
    assert_eq!(kept, secret(2));
    assert!(about.renewed.is_some() && about.mark == "m1" && about.expires > Some(unix_now() + 3000));
    // Another process finds it; this one asks no more.
    assert_eq!(stage.live().find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    assert_eq!(stage.played.asked(), 1);
    // Another account is another mark, at once.
    stage.connect("m2", 1000, secret(9));
    assert_eq!(live.mark(&stage.wanted()).as_deref(), Some("m2"));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access9");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_one_renews() {
    let stage = Stage::new(-5, rotating());
    let lives = [stage.live(), stage.live(), stage.live()];
    let mut all = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (live, client) = (lives[n % 3].clone(), stage.client.clone());
        all.spawn(async move {
            let wanted = Wanted {
                account: "a",
                mode: "sandbox",
                origin: ORIGIN,
                kind: "oauth",
                client: Some(&client),
            };
            live.find(&wanted).await.map(|f| f.secret.to_string())
        });
    }
    while let Some(one) = all.join_next().await {
        assert_eq!(one.unwrap().unwrap(), "access2");
    }
    assert_eq!(stage.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_may_go_away() {
    let stage = Stage::new(-5, rotating());
    let live = stage.live();
    let wanted = stage.wanted();
    assert!(tokio::time::timeout(Duration::from_millis(30), live.find(&wanted)).await.is_err());
    for _ in 0..100 {
        if stage.kept().1 == secret(2) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(stage.kept().1, secret(2));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    assert_eq!(stage.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_good_is_kept_and_told() {
    let stage = Stage::new(-5, |_| {
        (400, r#"{"error":"invalid_grant","error_description":"SECRET refresh1"}"#.into())
    });
    let live = stage.live();
    live.check(&stage.wanted()).unwrap();
    for _ in 0..2 {
        let told = live.find(&stage.wanted()).await.unwrap_err();
        assert!(told.contains("invalid_grant") && told.contains("auth connect a"), "{told}");
        assert!(!told.contains("SECRET"), "{told}");
    }
    assert_eq!(stage.played.asked(), 1);
    assert!(live.check(&stage.wanted()).unwrap_err().contains("invalid_grant"));
    // The token is not thrown away: the server may have been wrong.
    assert_eq!(stage.kept().1, secret(1));
    stage.connect("m2", 1000, secret(5));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access5");
    // It is over for every process, also for one whose token would be good yet.
    let (one, other) = (stage.live(), stage.live());
    let ticket = one.find(&stage.wanted()).await.unwrap().ticket.unwrap();
    other.find(&stage.wanted()).await.unwrap();
    assert!(one.refused(&stage.wanted(), ticket));
    for live in [&one, &other] {
        let told = live.find(&stage.wanted()).await.unwrap_err();
        assert!(told.contains("invalid_grant"), "{told}");
    }
    assert_eq!(stage.played.asked(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_token_changes_nothing() {
    let long = format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, "x".repeat(9000));
    let bad: Vec<(u16, String, &str)> = vec![
        (500, "<html>SECRET</html>".into(), "answered 500"),
        (503, String::new(), "answered 503"),
        (200, "SECRET".into(), "not one of a token endpoint"),
        (200, "{}".into(), "not one of a token endpoint"),
        (302, String::new(), "redirects"),
        (200, "y".repeat(300 << 10), "longer than 256 KiB"),
        (200, long, "longer than 8 KiB"),
        (200, r#"{"access_token":"t","token_type":"mac"}"#.into(), "not a bearer token"),
        (200, r#"{"access_token":"a\nb","token_type":"bearer"}"#.into(), "can't be sent"),
        (400, r#"{"error":"temporarily_unavailable"}"#.into(), "temporarily_unavailable"),
    ];
    for (status, body, why) in bad {
        let stage = Stage::new(-5, move |_| (status, body.clone()));
        let told = stage.live().find(&stage.wanted()).await.unwrap_err();
        assert!(told.contains(why) && told.contains("try again"), "{status} {why}: {told}");
        assert!(!told.contains("SECRET"), "{told}");
        assert_eq!(stage.kept().1, secret(1));
        stage.played.play(rotating());
        // Another process, so that it does not rest first.
        assert_eq!(stage.live().find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    }
    // A token that is good for a little yet goes on being used, and the server is not asked all the time.
    let stage = Stage::new(30, |_| (500, String::new()));
    let live = stage.live();
    for _ in 0..5 {
        assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access1");
    }
    assert_eq!(stage.played.asked(), 1);
    // Refused for the client, not for the token: nothing is kept of it.
    let stage = Stage::new(-5, |_| (401, r#"{"error":"invalid_client"}"#.into()));
    assert!(stage.live().find(&stage.wanted()).await.unwrap_err().contains("invalid_client"));
    assert_eq!(stage.kept().0.refused, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_can_t_be_kept_is_not_used_until_it_is() {
    let stage = Stage::new(-5, rotating());
    let live = stage.live();
    let lock = stage.store.folder().join("store.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let told = live.find(&stage.wanted()).await.unwrap_err();
    assert!(told.contains("store.lock") && !told.contains("access2"), "{told}");
    assert_eq!(stage.kept().1, secret(1));
    std::fs::remove_dir(&lock).unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    assert_eq!(stage.kept().1, secret(2));
    assert_eq!(stage.played.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_renewed_once() {
    let stage = Stage::new(1000, rotating());
    let live = stage.live();
    let first = live.find(&stage.wanted()).await.unwrap();
    assert!(live.refused(&stage.wanted(), first.ticket.unwrap()));
    let second = live.find(&stage.wanted()).await.unwrap();
    assert_eq!((second.secret.as_str(), second.mark.as_str()), ("access2", "m1"));
    // It is not the token's fault.
    assert!(!live.refused(&stage.wanted(), second.ticket.unwrap()));
    assert_eq!(live.find(&stage.wanted()).await.unwrap().secret.as_str(), "access2");
    assert_eq!(stage.played.asked(), 1);
    // One that can't be renewed is the provider's to refuse.
    stage.connect("m3", 1000, Secret { refresh: None, ..secret(7) });
    let third = live.find(&stage.wanted()).await.unwrap();
    assert!(!stage.live().refused(&stage.wanted(), third.ticket.unwrap()));
    stage.connect("m3", -5, Secret { refresh: None, ..secret(7) });
    assert!(live.find(&stage.wanted()).await.unwrap_err().contains("has ended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_for_another_place_is_not_found() {
    let stage = Stage::new(1000, rotating());
    let live = stage.live();
    let client = Client { id: "another".into(), ..stage.client.clone() };
    let issuer = Client {
        endpoints: Endpoints::Discover { issuer: "https://evil.example".into() },
        ..stage.client.clone()
    };
    for (wanted, why) in [
        (Wanted { mode: "production", ..stage.wanted() }, "not connected for production"),
        (Wanted { account: "b", ..stage.wanted() }, "not connected"),
        (Wanted { origin: "https://evil.example", ..stage.wanted() }, "another address"),
        (Wanted { client: Some(&issuer), ..stage.wanted() }, "another address or issuer"),
        (Wanted { client: Some(&client), ..stage.wanted() }, "another kind or client"),
        (Wanted { client: None, kind: "bearer", ..stage.wanted() }, "another address or issuer"),
    ] {
        let told = live.find(&wanted).await.unwrap_err();
        assert!(told.contains(why), "{told}");
        assert!(live.check(&wanted).is_err() && live.mark(&wanted).is_none());
    }
    assert_eq!(stage.played.asked(), 0);
    // Whatever is wrong with the store is told.
    std::fs::write(stage.store.file(), "{").unwrap();
    assert!(live.find(&stage.wanted()).await.unwrap_err().contains("damaged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_s_own_token_is_kept_nowhere() {
    let mut n = 0;
    let played = Played::new(move |body| {
        if !body.contains("grant_type=client_credentials") || !body.contains("scope=read") {
            return (400, r#"{"error":"invalid_request"}"#.into());
        }
        n += 1;
        (200, format!(r#"{{"access_token":"own{n}","token_type":"bearer","expires_in":3600}}"#))
    });
    let home = tempfile::tempdir().unwrap();
    let live = Live::new(Ok(Store::at(home.path().join("none"))));
    let client = Client {
        flow: Flow::ClientCredentials,
        secret: Some(Zeroizing::new("s:ecret".into())),
        ..played.client()
    };
    let wanted =
        Wanted { account: "a", mode: "sandbox", origin: ORIGIN, kind: "oauth", client: Some(&client) };
    live.check(&wanted).unwrap();
    let found = live.find(&wanted).await.unwrap();
    assert_eq!(found.secret.as_str(), "own1");
    assert_eq!(live.find(&wanted).await.unwrap().secret.as_str(), "own1");
    assert_eq!(live.mark(&wanted), Some(found.mark.clone()));
    // RFC 6749, section 2.3.1: each encoded before they are joined; `client:s%3Aecret` in base64.
    let asked = played.asked.lock().unwrap()[0].clone();
    assert!(asked.contains("Basic Y2xpZW50OnMlM0FlY3JldA=="), "{asked}");
    assert!(live.refused(&wanted, found.ticket.unwrap()));
    assert_eq!(live.find(&wanted).await.unwrap().secret.as_str(), "own2");
    // Another secret of the client is the same account.
    let other = Client { secret: Some(Zeroizing::new("other".into())), ..client.clone() };
    assert_eq!(live.mark(&Wanted { client: Some(&other), ..wanted }), Some(found.mark));
    assert!(!home.path().join("none").exists());
    let told = client_refused(&played, &client).await;
    assert!(told.contains("invalid_client") && !told.contains("s:ecret"), "{told}");
}

async fn client_refused(played: &Played, client: &Client) -> String {
    played.play(|_| (401, r#"{"error":"invalid_client"}"#.into()));
    credentials::client_credentials(client).await.unwrap_err().to_string()
}
