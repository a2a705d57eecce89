//! Credentials from the user's store, and tokens of OAuth: which goes out, and what happens when it is another, gone or refused.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{key, parse};
use counterfoil_provider::{
    ConfigCredentials, Format, HttpExecutor, Integration, Mode, ReadOutcome, StoredAccount,
};
use credentials::{About, KeyAt, Live, Secret, Store, unix_now};
use ledger::{Executor, Intent, Millis, Sent};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use zeroize::Zeroizing;

const SOON: Millis = Millis(5000);

/// A provider that takes one token, and an authorization server that renews it. What was sent is kept.
async fn server(takes: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    server_and(takes, |_| ()).await
}

/// The same, and what happens meanwhile: it is told how many were asked.
async fn server_and(
    takes: &'static str,
    meanwhile: impl Fn(usize) + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let at = common::server(move |head| {
        let (status, body) = if head.starts_with("POST /token") {
            all.lock().unwrap().push("token".to_owned());
            let next =
                r#"{"access_token":"second","refresh_token":"r2","token_type":"bearer","expires_in":900}"#;
            (200, next)
        } else {
            let auth = head.lines().find_map(|l| l.strip_prefix("authorization: ")).unwrap_or("none");
            all.lock().unwrap().push(auth.to_owned());
            let good = takes.is_empty() || auth == format!("Bearer {takes}");
            if good { (200, r#"{"data":[]}"#) } else { (401, r#"{"error":"who are you"}"#) }
        };
        let asked = all.lock().unwrap().len();
        meanwhile(asked);
        (status, body.to_owned())
    });
    (at.await, seen)
}

fn api(at: SocketAddr, auth: &str) -> Integration {
    parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"http://{at}\"\npreset = \"stripe\"\n[auth]\n{auth}\n[methods.m]\nhttp = \"POST /m\"\n[methods.r]\nhttp = \"GET /r\""
    ))
    .unwrap()
}

struct Stage {
    _home: tempfile::TempDir,
    store: Store,
    i: Integration,
    executor: HttpExecutor,
    account: StoredAccount,
}

impl Stage {
    fn new(i: Integration) -> Stage {
        let home = tempfile::tempdir().unwrap();
        let store = Store::at(home.path().join("credentials"));
        let (executor, account) = (executor(&i, &store), i.stored().unwrap());
        Stage { _home: home, store, i, executor, account }
    }

    fn give(&self, mark: &str, secret: &Secret) {
        let client = self.account.client().unwrap();
        let about = About {
            account: "acme".into(),
            mode: "sandbox".into(),
            kind: self.account.kind(),
            origins: vec![self.account.origin.clone()],
            issuer: client.as_ref().map(|c| c.endpoints.identity().to_owned()),
            client: client.map(|c| c.id),
            mark: mark.into(),
            since: unix_now(),
            renewed: None,
            expires: None,
            renewable: secret.refresh.is_some(),
            scopes: vec![],
            refused: None,
        };
        self.store.connect(about, secret, KeyAt::File).unwrap();
    }

    fn give_key(&self, key: &str) {
        let secret = Secret { secret: Some(Zeroizing::new(key.into())), ..Secret::default() };
        self.give(&self.account.mark(key).unwrap(), &secret);
    }

    fn give_token(&self, mark: &str, access: &str) {
        let text = |t: &str| Some(Zeroizing::new(t.to_owned()));
        self.give(mark, &Secret { access: text(access), refresh: text("r1"), ..Secret::default() });
    }

    fn intent(&self) -> Intent {
        let m = self.i.method("m").unwrap();
        m.intent(r#"{"a":1}"#, &m.recovery(None).unwrap()).unwrap()
    }

    async fn send(&self, intent: &Intent, replay: bool) -> Sent {
        self.executor.send(intent, &key(), replay, SOON).await
    }
}

fn executor(i: &Integration, store: &Store) -> HttpExecutor {
    let all =
        ConfigCredentials::load_with(std::slice::from_ref(i), |_| Some("client secret".into())).unwrap();
    HttpExecutor::new(Arc::new(all.with_store(&Live::new(Ok(store.clone())))))
}

#[tokio::test]
async fn a_whole_list_is_asked_for_under_it_too() {
    let (at, seen) = server("").await;
    let i = parse(&format!(
        "name = \"p\"\naccount = \"acme\"\nbase_url = \"http://{at}\"\npreset = \"square\"\nexecution_policy.idempotency.mode = \"dynamic\"\n[auth]\nkind = \"bearer\"\n[methods.m]\nhttp = \"POST /m\"\nlookup = {{ http = \"GET /m\", items = \"/data\", match = {{ \"/k\" = \"{{key}}\" }} }}"
    ))
    .unwrap();
    let stage = Stage::new(i);
    stage.give_key("sk-one");
    let listing = stage.i.method("m").unwrap().listing().unwrap();
    let listed = stage.executor.list(&listing, 1, SOON).await.unwrap();
    assert!(listed.whole && listed.objects == 0);
    assert_eq!(*seen.lock().unwrap(), ["Bearer sk-one"]);
}

#[tokio::test]
async fn what_is_connected_counts_from_the_next_request_on() {
    let (at, seen) = server("").await;
    let stage = Stage::new(api(at, "kind = \"bearer\""));
    // Recorded without one: nothing is sent; then the first send goes out under whichever is there.
    let early = stage.intent();
    let sent = stage.send(&early, false).await;
    let Sent::NotSent { why } = sent else { panic!("{sent:?}") };
    assert!(why.contains("auth connect acme") && why.contains("sandbox"), "{why}");
    stage.give_key("sk-one");
    assert!(matches!(stage.send(&early, false).await, Sent::Applied(_)));
    // Nobody knows under which it went out, so it is not sent again.
    assert!(matches!(stage.send(&early, true).await, Sent::Withheld { .. }));

    let intent = stage.intent();
    assert!(!String::from_utf8_lossy(&intent.body).contains("sk-one"));
    assert!(matches!(stage.send(&intent, false).await, Sent::Applied(_)));
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
    stage.give_key("sk-two");
    let Sent::Withheld { why } = stage.send(&intent, true).await else { panic!("sent under another") };
    assert!(why.contains("another credential of account \"acme\""), "{why}");
    assert!(matches!(stage.send(&intent, false).await, Sent::NotSent { .. }));
    assert!(matches!(stage.send(&stage.intent(), false).await, Sent::Applied(_)));
    // Put back, it goes on.
    stage.give_key("sk-one");
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
    // Gone is not another.
    stage.store.forget("acme", "sandbox").unwrap();
    assert!(matches!(stage.send(&intent, true).await, Sent::NotSent { .. }));
    assert_eq!(
        *seen.lock().unwrap(),
        ["Bearer sk-one", "Bearer sk-one", "Bearer sk-one", "Bearer sk-two", "Bearer sk-one"]
    );
}

#[tokio::test]
async fn moved_from_a_variable_it_is_the_same_credential() {
    let (at, _) = server("").await;
    let named = api(at, "kind = \"bearer\"\nsecret = \"${env:K}\"");
    let m = named.method("m").unwrap();
    let _all = ConfigCredentials::load_with(std::slice::from_ref(&named), |_| Some("sk-one".into())).unwrap();
    let intent = m.intent(r#"{"a":1}"#, &m.recovery(None).unwrap()).unwrap();
    let stage = Stage::new(api(at, "kind = \"bearer\"\nsecret = \"store\""));
    stage.give_key("sk-one");
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
}

#[tokio::test]
async fn where_it_rotates_any_of_the_account_will_do() {
    let (at, _) = server("").await;
    let before = Stage::new(api(at, "kind = \"bearer\""));
    before.give_key("sk-one");
    let intent = before.intent();
    let stage = Stage::new(api(at, "kind = \"bearer\"\nrotates = true"));
    stage.give_key("sk-two");
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
    let own = stage.intent();
    stage.give_key("sk-three");
    assert!(matches!(stage.send(&own, true).await, Sent::Applied(_)));
}

const OAUTH: &str = "kind = \"oauth\"\nclient_id = \"c\"\nauthorize_url = \"http://127.0.0.1:1/a\"";

fn oauth(at: SocketAddr) -> Stage {
    Stage::new(api(at, &format!("{OAUTH}\ntoken_url = \"http://{at}/token\"")))
}

#[tokio::test]
async fn a_renewed_token_is_the_same_account() {
    let (at, seen) = server("second").await;
    let stage = oauth(at);
    stage.give_token("m1", "first");
    let intent = stage.intent();
    // The provider says who it doesn't know, and that is definite: it is sent again, as a first send.
    let sent = stage.send(&intent, false).await;
    let Sent::NotApplied { why, .. } = sent else { panic!("{sent:?}") };
    assert!(why.contains("renewed"), "{why}");
    assert!(matches!(stage.send(&intent, false).await, Sent::Applied(_)));
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
    assert_eq!(*seen.lock().unwrap(), ["Bearer first", "token", "Bearer second", "Bearer second"]);
    // Another account is not.
    stage.give_token("m2", "second");
    assert!(matches!(stage.send(&intent, true).await, Sent::Withheld { .. }));
    // The account that was recorded, connected again.
    stage.give_token("m1", "second");
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
}

#[tokio::test]
async fn a_refused_replay_says_nothing_and_the_next_has_another_token() {
    let (at, seen) = server("second").await;
    let stage = oauth(at);
    stage.give_token("m1", "first");
    let intent = stage.intent();
    assert!(matches!(stage.send(&intent, true).await, Sent::Unknown { stored: false, .. }));
    assert!(matches!(stage.send(&intent, true).await, Sent::Applied(_)));
    assert_eq!(*seen.lock().unwrap(), ["Bearer first", "token", "Bearer second"]);
}

#[tokio::test]
async fn a_provider_that_refuses_every_token_is_believed() {
    let (at, seen) = server("never").await;
    let stage = oauth(at);
    stage.give_token("m1", "first");
    let intent = stage.intent();
    assert!(matches!(stage.send(&intent, false).await, Sent::NotApplied { .. }));
    assert!(matches!(stage.send(&intent, false).await, Sent::Refused(_)));
    assert_eq!(seen.lock().unwrap().iter().filter(|s| *s == "token").count(), 1);
}

#[tokio::test]
async fn a_read_is_asked_again_once() {
    let (at, seen) = server("second").await;
    let stage = oauth(at);
    stage.give_token("m1", "first");
    let read = || stage.executor.read(stage.i.method("r").unwrap(), "{}", SOON);
    let ReadOutcome::Answered(answer) = read().await.unwrap() else { panic!("no answer") };
    assert_eq!(answer.status, 200);
    assert_eq!(*seen.lock().unwrap(), ["Bearer first", "token", "Bearer second"]);
    let (at, seen) = server("never").await;
    let stage = oauth(at);
    stage.give_token("m1", "first");
    let read = stage.executor.read(stage.i.method("r").unwrap(), "{}", SOON).await.unwrap();
    let ReadOutcome::Answered(answer) = read else { panic!("no answer") };
    assert_eq!(answer.status, 401);
    assert_eq!(*seen.lock().unwrap(), ["Bearer first", "token", "Bearer second"]);
}

#[tokio::test]
async fn a_read_ends_though_there_is_always_another_token() {
    // Another process connects anew with every question.
    let connects = Arc::new(OnceLock::<Stage>::new());
    let stage = connects.clone();
    let (at, seen) = server_and("never", move |asked| {
        if let Some(stage) = stage.get() {
            stage.give_token("m1", &format!("token{asked}"));
        }
    })
    .await;
    let stage = connects.get_or_init(|| oauth(at));
    stage.give_token("m1", "token0");
    let read = stage.executor.read(stage.i.method("r").unwrap(), "{}", SOON).await.unwrap();
    let ReadOutcome::Answered(answer) = read else { panic!("no answer") };
    assert_eq!(answer.status, 401);
    assert_eq!(*seen.lock().unwrap(), ["Bearer token0", "Bearer token1"]);
}

#[tokio::test]
async fn missing_ones_are_told_at_the_start() {
    let (at, _) = server("").await;
    let stage = Stage::new(api(at, "kind = \"bearer\""));
    let all = || {
        let all = ConfigCredentials::load_with(std::slice::from_ref(&stage.i), |_| None).unwrap();
        all.with_store(&Live::new(Ok(stage.store.clone()))).missing()
    };
    assert!(all()[0].to_string().contains("auth connect acme"));
    stage.give_key("sk-one");
    assert!(all().is_empty());
    let told = all;
    std::fs::write(stage.store.file(), "{").unwrap();
    assert!(told()[0].to_string().contains("damaged"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let with = |auth: &str| {
        parse(&format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[auth]\n{auth}\n[methods.m]\nhttp = \"GET /a\""
        ))
    };
    let i = with("kind = \"header\"\nheader = \"X-Key\"\nsecret = \"store\"").unwrap();
    assert_eq!(i.stored().unwrap().kind(), "header x-key");
    let by_mode = "kind = \"bearer\"\nsecret = { sandbox = \"store\", production = \"${env:P}\" }";
    assert!(with(by_mode).unwrap().stored().is_some());
    let issuer = "kind = \"oauth\"\nclient_id = \"c\"\nissuer = { sandbox = \"https://as.example\" }";
    for good in [
        issuer.to_owned(),
        format!("{issuer}\nscopes = [\"a\", \"b:c\"]\nclient_secret = \"store\"\nresource = \"https://api.example\""),
        format!("{issuer}\nflow = \"client_credentials\"\nclient_secret = \"${{env:S}}\""),
        format!("{issuer}\nflow = \"client_credentials\"\nclient_auth = \"client_secret_post\""),
        "kind = \"oauth\"\nclient_id = \"c\"\nflow = \"client_credentials\"\ntoken_url = { sandbox = \"https://as.example/t\" }".into(),
    ] {
        let account = with(&good).unwrap().stored().unwrap();
        assert_eq!(account.kind(), "oauth");
    }
    for (auth, why) in [
        ("kind = \"bearer\"\nissuer = \"https://as.example\"", "`issuer` belongs to auth kind"),
        ("kind = \"bearer\"\nsecret = { production = \"store\" }", "no `secret` for sandbox"),
        ("kind = \"bearer\"\nsecret = \"sk_live\"", "never written here"),
        ("kind = \"bearer\"\nclient_id = \"c\"", "`client_id` belongs"),
        ("kind = \"oauth\"\nissuer = \"https://as.example\"", "needs `client_id`"),
        ("kind = \"oauth\"\nclient_id = \"c\"", "no authorization server"),
        ("kind = \"oauth\"\nclient_id = \"c\"\ntoken_url = \"https://as.example/t\"", "go together"),
        (
            "kind = \"oauth\"\nclient_id = \"c\"\nissuer = \"https://as.example\"\ntoken_url = \"https://as.example/t\"",
            "go together",
        ),
        ("kind = \"oauth\"\nclient_id = \"c\"\nissuer = \"http://as.example\"", "must be https"),
        (&format!("{issuer}\nper = \"principal\"\nflow = \"client_credentials\""), "leave `per` out"),
        (&format!("{issuer}\nper = \"principal\"\nclient_secret = \"store\""), "name it"),
        (&format!("{issuer}\nsecret = \"${{env:K}}\""), "has no `secret`"),
        (&format!("{issuer}\nrotates = true"), "leave `rotates` out"),
        (&format!("{issuer}\nusername = \"u\""), "don't belong"),
        (&format!("{issuer}\nclient_secret = \"hunter2\""), "never written here"),
        (&format!("{issuer}\nscopes = [\"a b\"]"), "is not a scope"),
        (&format!("{issuer}\nflow = \"implicit\""), "client_credentials"),
        (&format!("{issuer}\nscope = \"a\""), "scopes"),
        (&format!("{issuer}\nclient_auth = \"client_secret_post\""), "there is none"),
        (&format!("{issuer}\nclient_secret = \"store\"\nclient_auth = \"post\""), "client_secret_post"),
        ("kind = \"bearer\"\nclient_auth = \"client_secret_post\"", "`client_auth` belongs"),
    ] {
        let e = with(auth).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(why) && !e.contains("hunter2") && !e.contains("sk_live"), "{auth}: {e}");
    }
    // Tokens come and go, and such keys are each token's own.
    let e = parse(&format!(
        "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\npreset = \"modern_treasury\"\n[auth]\n{issuer}\n[methods.m]\nhttp = \"POST /a\""
    ));
    assert!(e.unwrap_err().to_string().contains("scoped by API key"));
}

/// `[auth]` of a manifest whose own address is there in both modes.
fn asked_at(auth: &str, mode: Mode) -> Result<Integration, counterfoil_provider::ConfigError> {
    let text = format!(
        "name = \"p\"\nbase_url = {{ sandbox = \"https://sandbox.example\", production = \"https://api.example\" }}\n[auth]\nkind = \"oauth\"\n{auth}\n[methods.m]\nhttp = \"POST /a\"\n[methods.r]\nhttp = \"GET /r\""
    );
    Integration::parse("p.toml", &text, Format::Toml, mode)
}

#[tokio::test]
async fn sandbox_mode_asks_no_authorization_server_of_production() {
    let credentials = "client_id = \"c\"\nflow = \"client_credentials\"\nclient_secret = \"${env:S}\"";
    let code = "client_id = \"c\"\nauthorize_url = \"https://login.example/in\"";
    for (auth, field) in [
        (format!("{credentials}\ntoken_url = \"https://login.example/token\""), "token_url"),
        (format!("{credentials}\nissuer = \"https://login.example\""), "issuer"),
        (format!("{credentials}\nissuer = {{ production = \"https://login.example\" }}"), "issuer"),
        (
            format!(
                "{code}\ntoken_url = {{ sandbox = \"https://sandbox.example/t\", production = \"https://login.example/t\" }}"
            ),
            "authorize_url",
        ),
        (
            "per = \"principal\"\nissuer = \"https://login.example\"\nclient_id = { production = \"c\" }"
                .to_owned(),
            "issuer",
        ),
    ] {
        let i = asked_at(&auth, Mode::Sandbox).unwrap();
        let why = i.closed().unwrap().to_string();
        for part in ["nothing was sent", "sandbox mode", "authorization server", field, "in [auth]"] {
            assert!(why.contains(part), "{auth}: {why}");
        }
        // Nothing of production's is known there, and nothing is wanted.
        assert!(i.stored().is_none() && i.own_account().is_none() && !i.authenticates(), "{auth}");
        assert!(!format!("{i:?}").contains("login.example"), "{i:?}");
        let all = ConfigCredentials::load_with(std::slice::from_ref(&i), |_| None).unwrap();
        assert!(all.missing().is_empty(), "{:?}", all.missing());
        let m = i.method("m").unwrap();
        assert_eq!(m.intent("{}", &m.recovery(None).unwrap()).unwrap_err().to_string(), why);
        // In production it is as it was.
        let i = asked_at(&auth, Mode::Production).unwrap();
        assert!(i.closed().is_none() && i.authenticates(), "{auth}");
    }
    // A mistake is found in either mode.
    let e = asked_at("client_id = \"c\"\ntoken_url = \"https://login.example/token\"", Mode::Sandbox);
    assert!(e.unwrap_err().to_string().contains("go together"));
    for open in [
        format!("{credentials}\ntoken_url = \"http://127.0.0.1:1/token\""),
        format!(
            "{credentials}\ntoken_url = {{ sandbox = \"https://login.example/t\", production = \"https://login.example/t\" }}"
        ),
        // The issuer of production alone: the sandbox's server names none.
        format!(
            "{credentials}\nissuer = {{ production = \"https://login.example\" }}\ntoken_url = {{ sandbox = \"https://login.example/t\", production = \"https://login.example/t\" }}"
        ),
    ] {
        assert_eq!(asked_at(&open, Mode::Sandbox).unwrap().closed(), None, "{open}");
    }
}

#[test]
fn what_is_closed_in_a_mode_wants_no_credential_there() {
    let of = |name: &str, base: &str, auth: &str, mode| {
        let text = format!(
            "name = \"{name}\"\naccount = \"acme\"\nbase_url = {base}\n[auth]\n{auth}\n[methods.m]\nhttp = \"POST /a\""
        );
        Integration::parse("p.toml", &text, Format::Toml, mode).unwrap()
    };
    let missing = |all: &[Integration]| {
        let all = ConfigCredentials::load_with(all, |_| None).unwrap();
        all.missing().iter().map(|e| e.account.clone()).collect::<Vec<_>>()
    };
    let one = "\"https://api.example\"";
    for auth in [
        "kind = \"bearer\"\nsecret = \"${env:K}\"",
        "kind = \"bearer\"",
        "kind = \"bearer\"\nsecret = { production = \"${env:K}\" }",
    ] {
        assert!(missing(&[of("a", one, auth, Mode::Sandbox)]).is_empty(), "{auth}");
        assert_eq!(missing(&[of("a", one, auth, Mode::Production)]), ["acme"], "{auth}");
    }
    // Another integration uses the account, and is not closed, whichever comes first.
    let env = "kind = \"bearer\"\nsecret = \"${env:K}\"";
    let (closed, open) =
        (of("a", one, env, Mode::Sandbox), of("b", "\"http://127.0.0.1:1\"", env, Mode::Sandbox));
    assert_eq!(missing(&[closed.clone(), open.clone()]), ["acme"]);
    assert_eq!(missing(&[open.clone(), closed.clone()]), ["acme"]);
    let all = ConfigCredentials::load_with(&[closed, open], |_| Some("k".into())).unwrap();
    use counterfoil_provider::Credentials as _;
    assert!(!all.proof("acme", "sandbox").unwrap().is_none());
}

#[tokio::test]
async fn sandbox_mode_reaches_no_production_host() {
    let manifest = |base: &str, mode| {
        let text = format!(
            "name = \"p\"\nbase_url = {base}\n[methods.m]\nhttp = \"POST /a\"\n[methods.r]\nhttp = \"GET /r\""
        );
        Integration::parse("p.toml", &text, Format::Toml, mode)
    };
    for base in ["\"https://api.example\"", "{ production = \"https://api.example\" }"] {
        assert_eq!(manifest(base, Mode::Production).unwrap().base_url(), "https://api.example");
        let i = manifest(base, Mode::Sandbox).unwrap();
        assert!(i.closed().is_some() && !i.base_url().contains("api.example"), "{base}");
        let m = i.method("m").unwrap();
        let executor =
            HttpExecutor::new(Arc::new(ConfigCredentials::load(std::slice::from_ref(&i)).unwrap()));
        let refused = [
            m.intent("{}", &m.recovery(None).unwrap()).unwrap_err().to_string(),
            executor.read(i.method("r").unwrap(), "{}", SOON).await.unwrap_err().to_string(),
        ];
        for why in refused {
            for part in ["nothing was sent", "sandbox mode", "base_url"] {
                assert!(why.contains(part), "{why}");
            }
        }
    }
    for open in [
        "\"http://127.0.0.1:1\"",
        "{ sandbox = \"https://api.example\", production = \"https://api.example\" }",
    ] {
        assert_eq!(manifest(open, Mode::Sandbox).unwrap().closed(), None);
    }
    let e = manifest("{ sandbox = \"https://sandbox.example\" }", Mode::Production).unwrap_err().to_string();
    assert!(e.contains("no base_url for production"), "{e}");
}
