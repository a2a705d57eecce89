//! The configuration: what is taken, what is refused and with which words and place; the schema agrees with the parser.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "config/refused.rs"]
mod refused;

use counterfoil::config::{At, Auth, BusConfig, Config, ConfigError, LegacySessions};
use counterfoil::run::{Core, Use};
use gateway::approval::{Approval, Decimal};
use gateway::tool::Mode;
use ledger::{Millis, Strategy, Unkeyed};
use mcp::Eras;
use refused::BAD;
use serde_json::Value;
use std::path::Path;

const NO_ENV: [(&str, &str); 0] = [];

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("counterfoil.toml"), text, NO_ENV)
}

fn schema() -> jsonschema::Validator {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/counterfoil.schema.json");
    let text = std::fs::read_to_string(file).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    jsonschema::meta::validate(&schema).expect("the schema is a schema");
    jsonschema::validator_for(&schema).unwrap()
}

fn as_json(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
}

/// Whole and right.
const FULL: &str = r#"
[server]
name = "billing"
mode = "production"
listen = "0.0.0.0:8600"
path = "/mcp/v1"
public_url = "https://mcp.example.com"
allowed_hosts = ["mcp.example.com", "mcp.internal:8443"]
allowed_origins = ["https://app.example.com"]
max_body = "512KiB"
eras = "modern"
eras_by_host = { "MCP.internal" = "legacy", "mcp.example.com" = "modern", "[::1]" = "both" }
eras_by_principal = { Billing = "legacy", "billing bot" = "both" }
legacy_sessions = "always"
legacy_session_idle = "12h"
shutdown_delay = "3s"
shutdown_limit = "20s"
[ledger]
url = "sqlite:data/ledger.db"
lease = "5s"
retention = "30d"
[auth]
mode = "api-key"
[lists]
ttl = "0s"
[defaults]
header_name = "Idempotency-Key"
unkeyed = "reject"
guard_window = "10m"
send_timeout = "5s"
timeout = "30s"
leg = "1m"
inline_limit = "20s"
mode = "task"
approval = "always"
[[integration]]
name = "payments"
manifest = "integrations/payments.toml"
[tools."payments.refunds.create"]
name = "refund"
recovery = "lookup"
header_name = "X-Key"
unkeyed = "new"
key_from = ["order_id", "line"]
inject_key = false
guard_window = "1m"
send_timeout = "2s"
timeout = "10s"
inline_limit = "5s"
retention = "60d"
leg = "1s"
approval = { over = { amount = 10_000, "a b" = -0.5 } }
mode = "inline"
[tools."payments.payments.create"]
unkeyed = "reserve"
approval = "never"
mode = "auto"
"#;

#[test]
fn a_whole_file_is_taken_as_it_is_written() {
    let c = parse(FULL).unwrap();
    assert_eq!(c.server.name, "billing");
    assert_eq!(c.mode, provider::Mode::Production);
    assert_eq!(c.server.listen.to_string(), "0.0.0.0:8600");
    assert_eq!(c.server.max_body, 512 << 10);
    assert_eq!(c.server.eras, Eras::Modern);
    let hosts = [("mcp.internal", Eras::Legacy), ("mcp.example.com", Eras::Modern), ("[::1]", Eras::Both)];
    assert_eq!(c.server.eras_by_host, hosts.map(|(h, e)| (h.to_owned(), e)));
    // A principal is the same in one spelling only.
    let principals = [("Billing", Eras::Legacy), ("billing bot", Eras::Both)];
    assert_eq!(c.server.eras_by_principal, principals.map(|(p, e)| (p.to_owned(), e)));
    assert!(c.server.serves_legacy());
    assert_eq!(c.server.legacy_sessions, LegacySessions::Always);
    assert_eq!(c.server.legacy_session_idle, Millis(12 * 3_600_000));
    assert_eq!((c.server.shutdown_delay, c.server.shutdown_limit), (Millis(3000), Millis(20_000)));
    assert_eq!(c.ledger.file(), Some(Path::new("data/ledger.db")));
    assert_eq!((c.ledger.lease, c.ledger.retention), (Millis(5000), Millis(30 * 86_400_000)));
    assert_eq!(c.auth, Auth::ApiKey);
    assert_eq!(c.lists_ttl, Millis(0));
    assert_eq!(c.defaults.unkeyed.as_ref().unwrap().value, Unkeyed::Reject);
    assert_eq!(c.integrations[0].manifest, Path::new("integrations/payments.toml"));
    let t = &c.tools[0];
    assert_eq!(t.id, "payments.refunds.create");
    assert_eq!(t.recovery.as_ref().unwrap().value, Strategy::Lookup);
    assert_eq!(t.recovery.as_ref().unwrap().at, At::Line(41, 12));
    assert_eq!(t.key_from.as_ref().unwrap().value, ["order_id", "line"]);
    assert_eq!(t.timeout.as_ref().unwrap().value, Millis(10_000));
    let d = &c.defaults;
    assert_eq!(
        (d.leg.as_ref().unwrap().value, t.leg.as_ref().unwrap().value),
        (Millis(60_000), Millis(1000))
    );
    let modes = [&d.mode, &t.mode, &c.tools[1].mode].map(|m| m.as_ref().unwrap().value);
    assert_eq!(modes, [Mode::Task, Mode::Inline, Mode::Auto]);
    let limit = |text: &str| Decimal::parse(text).unwrap();
    let over = Approval::Over(vec![("amount".into(), limit("10000")), ("a b".into(), limit("-0.5"))]);
    let approvals =
        [&d.approval, &t.approval, &c.tools[1].approval].map(|a| a.as_ref().unwrap().value.clone());
    assert_eq!(approvals, [Approval::Always, over, Approval::Never]);
    assert_eq!(c.tools[1].unkeyed.as_ref().unwrap().value, Unkeyed::Reserve);
    assert!(c.sandbox.is_none());
}

#[test]
fn defaults_are_those_of_the_reference() {
    let c = parse("").unwrap();
    assert_eq!(c.server.listen.to_string(), "127.0.0.1:8600");
    assert_eq!((c.server.path.as_str(), c.server.max_body), ("/mcp", 4 << 20));
    assert_eq!(c.ledger.file(), Some(Path::new(".counterfoil/ledger.db")));
    assert_eq!((c.ledger.lease, c.ledger.retention), (Millis(15_000), Millis(7 * 86_400_000)));
    assert_eq!((c.server.eras, c.server.eras_by_host.len()), (Eras::Both, 0));
    assert_eq!(c.server.legacy_sessions, LegacySessions::Auto);
    assert_eq!(c.server.legacy_session_idle, Millis(24 * 3_600_000));
    assert_eq!((c.server.shutdown_delay, c.server.shutdown_limit), (Millis(0), Millis(30_000)));
    assert_eq!((&c.bus, c.ledger.postgres()), (&BusConfig::Auto, None));
    assert_eq!((c.auth, c.lists_ttl, c.sandbox), (Auth::None, Millis(300_000), None));
    // Without a file it is the same, with the sandbox provider.
    let mut none = Config::sandbox_with_environment(NO_ENV).unwrap();
    assert_eq!(none, Config::sandbox(".counterfoil".as_ref()));
    assert_eq!(none.sandbox.unwrap().to_string(), "127.0.0.1:8690");
    none.sandbox = None;
    none.file = Some("counterfoil.toml".into());
    assert_eq!(none, c);
}

#[test]
fn relative_paths_start_from_the_file() {
    let text = "[[integration]]\nname = \"a\"\nmanifest = \"i/a.toml\"\n";
    let c = Config::parse(Path::new("/etc/cf/counterfoil.toml"), text, NO_ENV).unwrap();
    assert_eq!(c.ledger.file(), Some(Path::new("/etc/cf/.counterfoil/ledger.db")));
    assert_eq!(c.integrations[0].manifest, Path::new("/etc/cf/i/a.toml"));
}

/// A ledger that replicas share.
const POSTGRES: &str = r#"
[ledger]
url = "postgres://cf@db.example:5433/cf?sslmode=verify-full"
data = "run"
schema = "cf_1"
replica = "cf-0"
failover = "synchronous"
lease = "3s"
[bus]
url = "nats://nats.example:4222"
"#;

#[test]
fn a_ledger_in_postgresql() {
    let c = parse(POSTGRES).unwrap();
    let p = c.ledger.postgres().unwrap();
    assert_eq!(p.url.expose(), "postgres://cf@db.example:5433/cf?sslmode=verify-full");
    assert_eq!(p.url.shown(), "postgres://db.example:5433/cf");
    assert_eq!((p.schema.as_str(), p.replica.as_deref()), ("cf_1", Some("cf-0")));
    assert!(p.synchronous_standby);
    assert_eq!((c.ledger.directory(), c.ledger.file()), (Path::new("run"), None));
    assert_eq!(c.ledger.lease, Millis(3000));
    let BusConfig::Nats(nats) = &c.bus else { panic!("{:?}", c.bus) };
    assert_eq!(nats.expose(), "nats://nats.example:4222");
    // A balancer is given time to notice, where others can take the calls.
    assert_eq!(c.server.shutdown_delay, Millis(5000));

    let mut c = parse("[ledger]\nurl = \"postgresql://h/db\"\n").unwrap();
    let p = c.ledger.postgres().unwrap();
    assert_eq!(
        (p.schema.as_str(), p.replica.as_deref(), p.synchronous_standby),
        ("counterfoil", None, false)
    );
    assert_eq!((c.ledger.directory(), &c.bus), (Path::new(".counterfoil"), &BusConfig::Auto));
    c.set_data("elsewhere".as_ref());
    assert_eq!(c.ledger.directory(), Path::new("elsewhere"));
}

#[test]
fn a_databases_password_is_named_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pw"), "hunter2 @/%\n").unwrap();
    let file = dir.path().join("c.toml");
    let url = "postgres://cf:hunter2%20%40%2F%25@db/cf";
    let read = |text: &str| Config::parse(&file, text, [("PW", "hunter2 @/%"), ("URL", url)]);
    for text in [
        "[ledger]\nurl = \"${env:URL}\"\n",
        "[ledger]\nurl = \"postgres://cf@db/cf\"\npassword = \"${env:PW}\"\n",
        "[ledger]\nurl = \"postgres://cf@db/cf\"\npassword = \"${file:pw}\"\n",
    ] {
        let c = read(text).unwrap();
        assert_eq!(c.ledger.postgres().unwrap().url.expose(), url, "{text}");
        assert!(!format!("{c:?}").contains("hunter2"));
    }
    let both = read("[ledger]\nurl = \"${env:URL}\"\npassword = \"${env:PW}\"\n").unwrap_err().to_string();
    assert!(both.contains("c.toml:3:12: password: the url has one already"), "{both}");
    let socket = read("[ledger]\nurl = \"postgresql:///cf?host=/run/pg\"\npassword = \"${env:PW}\"\n");
    let socket = socket.unwrap().ledger.postgres().unwrap().url.expose().to_owned();
    assert_eq!(socket, "postgresql:///cf?host=/run/pg&password=hunter2%20%40%2F%25");
    // In the environment it is where it belongs; in messages it isn't.
    let over = |text: &str, value: &str| {
        Config::parse(&file, text, [("COUNTERFOIL__LEDGER__URL", value)]).map_err(|e| e.to_string())
    };
    assert_eq!(over("", url).unwrap().ledger.postgres().unwrap().url.expose(), url);
    for bad in [
        "postgres://cf:hunter2@:1/cf",
        "postgres://cf:hunter2@db",
        "postgres://cf:hunter2@db:x/cf",
        "pg://cf:hunter2@db/cf",
    ] {
        let e = over("", bad).unwrap_err();
        assert!(
            e.starts_with("environment variable COUNTERFOIL__LEDGER__URL: ") && !e.contains("hunter2"),
            "{e}"
        );
    }
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_words() {
    for (text, place, words, _) in BAD {
        let e = parse(text).expect_err(text);
        let all = e.to_string();
        let wanted = format!("counterfoil.toml:{place}");
        let found = all.lines().any(|l| l.starts_with(&wanted) && l.contains(words));
        assert!(found, "{text:?}\nwanted {wanted} … {words}\ngot {all}");
    }
}

#[test]
fn every_fault_is_told_at_once_in_the_order_of_the_file() {
    let e = parse("[server]\nlistn = 1\nname = \"\"\n[auth]\nmode = \"x\"\n").unwrap_err();
    let lines: Vec<_> = e.problems.iter().map(|p| p.at.clone()).collect();
    assert_eq!(lines, [At::Line(2, 1), At::Line(3, 8), At::Line(5, 8)]);
}

#[test]
fn the_schema_agrees_with_the_parser() {
    let schema = schema();
    let good = [
        FULL,
        "",
        "[sandbox]\nlisten = \"127.0.0.1:0\"\n",
        "[server]\nlisten = \"[::1]:8600\"\n",
        "[server]\nlisten = \"localhost:8600\"\n",
        "[defaults]\nmode = \"inline\"\n",
        "[bus]\nurl = \"auto\"\n",
        POSTGRES,
        "[server]\neras = \"modern\"\n[server.eras_by_host]\nlocalhost = \"legacy\"\n\"127.0.0.1\" = \"both\"\n",
        "[server]\nlegacy_sessions = \"never\"\n",
        "[server]\neras = \"legacy\"\nlegacy_sessions = \"platform\"\n",
    ];
    for text in good {
        parse(text).expect(text);
        assert!(
            schema.is_valid(&as_json(text)),
            "{text}: {:?}",
            schema.iter_errors(&as_json(text)).map(|e| e.to_string()).collect::<Vec<_>>()
        );
    }
    for (text, _, _, by_schema) in BAD {
        if let Ok(table) = toml::from_str::<toml::Table>(text) {
            let valid = schema.is_valid(&serde_json::to_value(table).unwrap());
            assert_eq!(!valid, *by_schema, "{text}");
        }
    }
}

#[tokio::test]
async fn what_a_reload_can_not_change_is_named() {
    let old = parse("[sandbox]\n").unwrap();
    let core = Core::open(old.clone(), Use::Catalog).await.unwrap();
    assert!(core.reload(&old).unwrap().is_empty());
    for (text, named) in [
        ("public_url = \"https://mcp.example.com\"", "[server] public_url"),
        ("eras = \"legacy\"", "[server] eras"),
        ("eras_by_host = { localhost = \"modern\" }", "[server] eras_by_host"),
        ("legacy_sessions = \"never\"", "[server] legacy_sessions"),
        ("legacy_session_idle = \"1h\"", "[server] legacy_session_idle"),
        ("[seal]\nstate_ttl = \"1h\"", "[seal]"),
        ("[seal]\nsingle_use = true", "[seal]"),
    ] {
        let new = parse(&format!("[sandbox]\n[server]\n{text}\n")).unwrap();
        assert_eq!(core.reload(&new).unwrap(), [named]);
    }
}

#[test]
fn secrets_are_named_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hook"), "https://h.example/hook?t=s3cret\n").unwrap();
    let file = dir.path().join("c.toml");
    let read = |text: &str| Config::parse(&file, text, [("HOOK", "https://h.example/hook?t=s3cret")]);
    for text in ["[alerts]\nwebhook = \"${env:HOOK}\"\n", "[alerts]\nwebhook = \"${file:hook}\"\n"] {
        let c = read(text).unwrap();
        assert_eq!(c.webhook.as_ref().unwrap().url(), "https://h.example/hook?t=s3cret");
        assert!(!format!("{c:?}").contains("s3cret"));
    }
    assert!(
        read("[alerts]\nwebhook = \"${file:none}\"\n").unwrap_err().to_string().contains("can't be read")
    );
}

#[test]
fn a_master_key_is_named_and_never_shown() {
    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("master"), format!("{KEY}\n")).unwrap();
    let file = dir.path().join("c.toml");
    let read = |text: &str, name: &str, value: &str| Config::parse(&file, text, [(name, value)]);
    assert_eq!(parse("").unwrap().seal, counterfoil::config::SealConfig::default());
    for (text, name) in [
        ("[seal]\nkeys = \"ledger\"\nmaster = \"${env:MASTER}\"\nstate_ttl = \"5m\"\n", "MASTER"),
        ("[seal]\nmaster = \"${file:master}\"\n", "MASTER"),
        ("", "COUNTERFOIL__SEAL__MASTER"),
    ] {
        let c = read(text, name, KEY).unwrap_or_else(|e| panic!("{e}"));
        let id = c.seal.master.as_ref().unwrap().id().to_string();
        assert!(id.starts_with("mk-") && format!("{c:?}").contains(&id), "{c:?}");
        assert!(!format!("{c:?}").contains(&KEY[..43]));
        let wrong = "c3cret".repeat(9);
        for (text, value) in [(text, &*wrong), (text, "")] {
            if text.contains("file:") {
                continue;
            }
            let e = read(text, name, value).unwrap_err().to_string();
            assert!(e.contains("master") && !e.contains("c3cret"), "{e}");
        }
    }
}

#[test]
fn the_environment_overrides() {
    let text = "[server]\nlisten = \"127.0.0.1:1\"\n";
    let with =
        |vars: &[(&str, &str)]| Config::parse(Path::new("c.toml"), text, vars.iter().map(|(k, v)| (*k, *v)));
    let c = with(&[
        ("COUNTERFOIL__SERVER__LISTEN", "127.0.0.1:2"),
        ("COUNTERFOIL__SERVER__ALLOWED_HOSTS", "a.example, b.example"),
        ("COUNTERFOIL__SERVER__ERAS", "modern"),
        ("COUNTERFOIL__SERVER__ERAS_BY_HOST", "A.example=legacy, localhost = both"),
        ("COUNTERFOIL__SERVER__LEGACY_SESSIONS", "auto"),
        ("COUNTERFOIL__SERVER__LEGACY_SESSION_IDLE", "5m"),
        ("COUNTERFOIL__LEDGER__RETENTION", "1d"),
        ("COUNTERFOIL_FAILPOINT", "x"),
        ("OTHER", "y"),
    ])
    .unwrap();
    assert_eq!(c.server.listen.port(), 2);
    assert_eq!(c.server.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(c.server.eras, Eras::Modern);
    let hosts = [("a.example", Eras::Legacy), ("localhost", Eras::Both)];
    assert_eq!(c.server.eras_by_host, hosts.map(|(h, e)| (h.to_owned(), e)));
    assert_eq!(c.server.legacy_session_idle, Millis(300_000));
    assert_eq!(c.ledger.retention, Millis(86_400_000));
    for (name, value, words) in [
        ("COUNTERFOIL__SERVER__LISTN", "x", "did you mean \"listen\"?"),
        ("COUNTERFOIL__SERVERS__LISTEN", "x", "did you mean COUNTERFOIL__SERVER__LISTEN?"),
        ("COUNTERFOIL__LISTEN", "x", "must be COUNTERFOIL__SECTION__KEY"),
        ("COUNTERFOIL__SERVER__LISTEN", "x", "is not an address"),
        ("COUNTERFOIL__SERVER__LISTEN", "0.0.0.0:1", "can be reached from other machines"),
        ("COUNTERFOIL__SERVER__ERAS", "old", "eras: \"old\" is unknown"),
        ("COUNTERFOIL__SERVER__ERAS_BY_HOST", "localhost", "\"localhost\" has no value; write KEY=VALUE"),
        ("COUNTERFOIL__SERVER__ERAS_BY_HOST", "a.example=both", "requests for \"a.example\" are refused"),
        ("COUNTERFOIL__SERVER__ERAS_BY_HOST", "localhost=", "eras_by_host: \"\" is unknown"),
        ("COUNTERFOIL__SERVER__LEGACY_SESSIONS", "yes", "legacy_sessions: \"yes\" is unknown"),
        ("COUNTERFOIL__SERVER__LEGACY_SESSION_IDLE", "1s", "outside 5m to 30d"),
        ("COUNTERFOIL__TOOLS__A", "x", "no section [tools] that the environment can set"),
    ] {
        let e = with(&[(name, value)]).unwrap_err().to_string();
        assert!(e.starts_with(&format!("environment variable {name}: ")) && e.contains(words), "{name}: {e}");
    }
}
