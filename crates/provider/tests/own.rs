//! Credentials that each principal has of its own: whose goes out, and what happens when it is another or gone.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{key, parse};
use counterfoil_provider::{
    ConfigCredentials, HttpExecutor, Integration, Own, OwnCredentials, ReadOutcome, Whose, owned,
};
use credentials::{Client, Ticket};
use ledger::{Executor, Intent, Looked, Millis, Sent};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A server that remembers the credential of each request.
async fn server() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let at = common::server(move |head| {
        let auth = head.lines().find_map(|l| l.strip_prefix("authorization: ")).unwrap_or("none");
        all.lock().unwrap().push(auth.to_owned());
        (200, r#"{"data":[]}"#.to_owned())
    });
    (at.await, seen)
}

/// What principals have given, by principal and origin.
#[derive(Default)]
struct Given(Mutex<HashMap<(String, String), String>>);

impl Given {
    fn put(&self, i: &Integration, principal: &str, secret: Option<&str>) -> String {
        let account = i.method("m").unwrap().own_account().unwrap();
        let key = (principal.to_owned(), account.origin.clone());
        match secret {
            Some(secret) => {
                self.0.lock().unwrap().insert(key, secret.to_owned());
                account.mark(secret).unwrap()
            }
            None => {
                self.0.lock().unwrap().remove(&key);
                String::new()
            }
        }
    }
}

struct Kept(Arc<Given>, Integration);

#[async_trait::async_trait]
impl OwnCredentials for Kept {
    async fn find(&self, whose: &Whose<'_>, client: Option<&Client>) -> Result<Option<Own>, String> {
        assert!(client.is_none());
        assert_eq!((whose.account, whose.mode), ("acme", "sandbox"));
        let key = (whose.principal.to_owned(), whose.origin.to_owned());
        let secret = self.0.0.lock().unwrap().get(&key).cloned();
        let account = self.1.method("m").unwrap().own_account().unwrap();
        Ok(secret.map(|s| Own { mark: account.mark(&s).unwrap(), secret: s.into(), ticket: None }))
    }
}

fn api(at: SocketAddr) -> Integration {
    parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"http://{at}/v1\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[auth]\nkind = \"bearer\"\nper = \"principal\"\n\
         [methods.m]\nhttp = \"POST /m\"\nlookup = {{ http = \"GET /m\", items = \"/data\", match = {{ \"/k\" = \"{{key}}\" }} }}\n\
         [methods.r]\nhttp = \"GET /r\""
    ))
    .unwrap()
}

fn executor(i: &Integration, given: &Arc<Given>) -> HttpExecutor {
    let credentials = ConfigCredentials::load_with(std::slice::from_ref(i), |_| None).unwrap();
    assert!(credentials.missing().is_empty());
    HttpExecutor::new(Arc::new(credentials.with_own(Arc::new(Kept(given.clone(), i.clone())))))
}

fn intent(i: &Integration) -> Intent {
    let m = i.method("m").unwrap();
    m.intent("{}", &m.recovery(None).unwrap()).unwrap()
}

async fn send(e: &HttpExecutor, intent: &Intent, replay: bool) -> Sent {
    e.send(intent, &key(), replay, Millis(3000)).await
}

#[tokio::test]
async fn each_principal_acts_under_its_own() {
    let (at, seen) = server().await;
    let (i, given) = (api(at), Arc::<Given>::default());
    let e = executor(&i, &given);
    let alice = owned(intent(&i), "alice", &given.put(&i, "alice", Some("a-secret"))).unwrap();
    let bob = owned(intent(&i), "bob", &given.put(&i, "bob", Some("b-secret"))).unwrap();
    for (intent, replay) in [(&alice, false), (&bob, false), (&alice, true)] {
        assert!(matches!(send(&e, intent, replay).await, Sent::Applied(_)));
    }
    let r = i.method("r").unwrap();
    let read = e.read_as(r, Some("bob"), "{}", Millis(3000)).await.unwrap();
    assert!(matches!(read, ReadOutcome::Answered(_)));
    assert!(matches!(e.look_up(&alice, &key(), Millis(3000)).await, Looked::NotFound));
    let sent = seen.lock().unwrap().clone();
    assert_eq!(
        sent,
        ["Bearer a-secret", "Bearer b-secret", "Bearer a-secret", "Bearer b-secret", "Bearer a-secret"]
    );
    // Nothing of it is recorded.
    for intent in [&alice, &bob] {
        assert!(!String::from_utf8_lossy(&intent.body).contains("secret"));
    }
}

#[tokio::test]
async fn without_one_and_for_nobody_nothing_is_sent() {
    let (at, seen) = server().await;
    let (i, given) = (api(at), Arc::<Given>::default());
    let e = executor(&i, &given);
    let mark = given.put(&i, "alice", Some("a-secret"));
    given.put(&i, "alice", None);
    let alice = owned(intent(&i), "alice", &mark).unwrap();
    for replay in [false, true] {
        // Of a replay too: it is no other account, and may be given again.
        match send(&e, &alice, replay).await {
            Sent::NotSent { why } => assert!(why.contains("has not given"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(e.look_up(&alice, &key(), Millis(3000)).await, Looked::Unknown { .. }));
    // A request that names no principal, and a read of one who has none.
    assert!(matches!(send(&e, &intent(&i), false).await, Sent::NotSent { .. }));
    for principal in [None, Some("alice")] {
        let read = e.read_as(i.method("r").unwrap(), principal, "{}", Millis(3000)).await.unwrap();
        assert!(matches!(read, ReadOutcome::Unavailable { .. }));
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_was_sent_under_one_is_not_sent_under_another() {
    let (at, seen) = server().await;
    let (i, given) = (api(at), Arc::<Given>::default());
    let e = executor(&i, &given);
    let alice = owned(intent(&i), "alice", &given.put(&i, "alice", Some("a-secret"))).unwrap();
    given.put(&i, "alice", Some("another"));
    match send(&e, &alice, true).await {
        Sent::Withheld { why } => assert!(why.contains("has been changed"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(send(&e, &alice, false).await, Sent::NotSent { .. }));
    assert!(matches!(e.look_up(&alice, &key(), Millis(3000)).await, Looked::Unknown { .. }));
    assert!(seen.lock().unwrap().is_empty());
    // Put back, it goes on.
    given.put(&i, "alice", Some("a-secret"));
    assert!(matches!(send(&e, &alice, true).await, Sent::Applied(_)));
}

#[tokio::test]
async fn a_secret_stays_with_the_origin_that_its_owner_was_told() {
    let (old, _) = server().await;
    let (new, seen) = server().await;
    let (before, after, given) = (api(old), api(new), Arc::<Given>::default());
    let mark = given.put(&before, "alice", Some("a-secret"));
    let e = executor(&after, &given);
    let alice = owned(intent(&after), "alice", &mark).unwrap();
    assert!(matches!(send(&e, &alice, false).await, Sent::NotSent { .. }));
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn manifests_say_whose_it_is() {
    let with = |auth: &str| {
        parse(&format!(
            "name = \"p\"\nbase_url = {{ sandbox = \"https://a.example\", production = \"https://a.example\" }}\n[auth]\n{auth}\n[methods.m]\nhttp = \"POST /m\""
        ))
    };
    let account = |auth: &str| with(auth).unwrap().method("m").unwrap().own_account();
    let bearer = account("kind = \"bearer\"\nper = \"principal\"").unwrap();
    assert_eq!((bearer.origin.as_str(), bearer.account.as_str()), ("https://a.example", "p"));
    assert!(bearer.mark("a\nb").is_err());
    assert!(account("kind = \"bearer\"\nsecret = \"${env:K}\"").is_none());
    assert!(
        account("kind = \"basic\"\nusername = \"org\"\nper = \"principal\"")
            .unwrap()
            .wanted()
            .contains("org")
    );
    assert!(
        account("kind = \"header\"\nheader = \"X-Key\"\nper = \"principal\"")
            .unwrap()
            .wanted()
            .contains("x-key")
    );
    for (auth, why) in [
        ("kind = \"bearer\"\nper = \"principal\"\nsecret = \"${env:K}\"", "gives its own secret"),
        ("kind = \"bearer\"\nper = \"principal\"\nrotates = true", "rotates"),
        ("kind = \"none\"\nper = \"principal\"", "takes nothing else"),
        ("kind = \"bearer\"\nper = \"team\"", "principal"),
    ] {
        let e = with(auth).unwrap_err().to_string();
        assert!(e.contains(why), "{auth}: {e}");
    }
    let oauth = |more: &str| {
        format!(
            "kind = \"oauth\"\nissuer = {{ sandbox = \"https://as.example\", production = \"https://as.example\" }}\nclient_id = \"c\"\nper = \"principal\"\n{more}"
        )
    };
    let own = account(&oauth("client_secret = \"${env:NO_SUCH_VARIABLE}\"")).unwrap();
    assert_eq!((own.identity(), own.kind().as_str()), (Some(("https://as.example", "c")), "oauth"));
    assert!(own.client().unwrap_err().contains("NO_SUCH_VARIABLE"));
    let public = account(&oauth("")).unwrap();
    assert_eq!(public.client().unwrap().map(|c| (c.id.as_str(), c.secret.is_none())), Some(("c", true)));
    assert!(bearer.identity().is_none() && bearer.client().unwrap().is_none());
    assert_eq!(public.leads_to(), Some(("https://as.example".to_owned(), "c")));
    let told = "kind = \"oauth\"\nauthorize_url = { sandbox = \"https://people.example/in\" }\ntoken_url = { sandbox = \"https://as.example/token\" }\nclient_id = \"c\"\nper = \"principal\"";
    let told = account(told).unwrap();
    assert_eq!(told.leads_to(), Some(("https://people.example".to_owned(), "c")));
    assert_eq!(told.identity(), Some(("https://as.example/token", "c")));
    for (more, why) in [
        ("flow = \"client_credentials\"", "leave `per` out, or `flow`"),
        ("flow = \"client_credentials\"\nclient_secret = \"${env:K}\"", "leave `per` out, or `flow`"),
        ("client_secret = \"store\"", "${env:NAME}"),
        ("rotates = true", "rotates"),
        ("secret = \"${env:K}\"", "client_secret"),
    ] {
        let e = with(&oauth(more)).unwrap_err().to_string();
        assert!(e.contains(why), "{more}: {e}");
    }
}

/// A token that is refused goes out no more where another one is to be had.
#[tokio::test]
async fn a_principals_refused_token_is_replaced_as_an_operators_is() {
    /// A token, and another one after it was refused.
    #[derive(Default)]
    struct Tokens(Mutex<bool>);

    #[async_trait::async_trait]
    impl OwnCredentials for Tokens {
        async fn find(&self, whose: &Whose<'_>, client: Option<&Client>) -> Result<Option<Own>, String> {
            assert_eq!((whose.principal, client.map(|c| c.id.as_str())), ("alice", Some("c")));
            let secret = if *self.0.lock().unwrap() { "second" } else { "first" };
            let ticket = Some(Ticket::of(secret));
            Ok(Some(Own { secret: secret.to_owned().into(), mark: "mark".into(), ticket }))
        }
        fn refused(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
            assert_eq!(whose.principal, "alice");
            let first = ticket == Ticket::of("first");
            *self.0.lock().unwrap() |= first;
            first
        }
    }

    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let at = common::server(move |head| {
        let auth = head.lines().find_map(|l| l.strip_prefix("authorization: Bearer ")).unwrap_or("none");
        all.lock().unwrap().push(auth.to_owned());
        if auth == "first" { (401, "{}".into()) } else { (200, r#"{"data":[]}"#.into()) }
    });
    let i = parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"http://{}\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[auth]\nkind = \"oauth\"\nissuer = {{ sandbox = \"https://as.example\" }}\nclient_id = \"c\"\nper = \"principal\"\n[methods.m]\nhttp = \"POST /m\"\n[methods.r]\nhttp = \"GET /r\"",
        at.await
    ))
    .unwrap();
    let executor = || {
        let credentials = ConfigCredentials::load_with(std::slice::from_ref(&i), |_| None).unwrap();
        assert!(credentials.missing().is_empty());
        HttpExecutor::new(Arc::new(credentials.with_own(Arc::new(Tokens::default()))))
    };
    let alice = owned(intent(&i), "alice", "mark").unwrap();
    // A first send whose refusal is definite was not applied; a replay's says nothing. Both have the next one afterwards.
    let e = executor();
    assert!(matches!(send(&e, &alice, false).await, Sent::NotApplied { .. }));
    assert!(matches!(send(&e, &alice, false).await, Sent::Applied(_)));
    let e = executor();
    assert!(matches!(send(&e, &alice, true).await, Sent::Unknown { .. }));
    assert!(matches!(send(&e, &alice, true).await, Sent::Applied(_)));
    // A read is asked once more.
    let read = executor().read_as(i.method("r").unwrap(), Some("alice"), "{}", Millis(3000)).await.unwrap();
    assert!(matches!(read, ReadOutcome::Answered(r) if r.status == 200));
    assert_eq!(*seen.lock().unwrap(), ["first", "second", "first", "second", "first", "second"]);
    // What was recorded under another connection is not sent.
    let other = owned(intent(&i), "alice", "another").unwrap();
    assert!(matches!(send(&executor(), &other, true).await, Sent::Withheld { .. }));
    assert_eq!(seen.lock().unwrap().len(), 6);
}
