//! The gateway over real HTTP, between a client of the modern era and the sandbox provider.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil_gateway as gateway;
use gateway::catalog::ListSettings;
use gateway::service::server_info;
use gateway::{ApiKeys, Catalog, Gateway, GatewayParts, GatewaySettings, Metrics, Offer, ToolSettings};
use http::{HeaderMap, HeaderValue};
use ledger::memory::MemoryStore;
use ledger::store::{ApiKey, Attention};
use ledger::{Ledger, Millis, Settings, Store, SystemEnv, Time, Unkeyed};
use mcp::client::{CallOptions, ClientConfig, McpClient};
use mcp::json::{Limits, Raw, RawObject};
use mcp::server::{HttpConfig, ServeLimits};
use provider::{ConfigCredentials, Format, HttpExecutor, Integration, Mode, Overrides};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

struct World {
    url: String,
    addr: SocketAddr,
    gateway: Gateway,
    store: Arc<MemoryStore>,
    sandbox: SocketAddr,
    executor: Arc<HttpExecutor>,
    integrations: Vec<Integration>,
    stop: CancellationToken,
    _running: sandbox::Running,
    _dir: tempfile::TempDir,
}

fn catalog(
    integrations: &[Integration],
    executor: &Arc<HttpExecutor>,
    ledger: &Arc<Ledger>,
    tune: &dyn Fn(&str, &mut ToolSettings),
) -> Catalog {
    let mut tools = Vec::new();
    for i in integrations {
        for m in i.methods() {
            let mut s = ToolSettings::default();
            tune(m.canonical_id(), &mut s);
            let over = Overrides { send_timeout: Some(Millis(700)), ..Overrides::default() };
            tools.push(gateway::http_tool::tool(m, &over, s, executor).unwrap());
        }
    }
    tools.push(gateway::status::tool(ledger.clone()));
    Catalog::build(
        Offer { tools, ..Offer::default() },
        &ListSettings { ttl: Millis::secs(300), public: true, server_info: server_info("test", "1") },
    )
    .unwrap()
}

async fn world(tune: &dyn Fn(&str, &mut ToolSettings), auth: bool) -> World {
    let dir = tempfile::tempdir().unwrap();
    let running =
        sandbox::Sandbox::start(sandbox::Config::new("127.0.0.1:0".parse().unwrap(), dir.path().join("s")))
            .await
            .unwrap();
    let sandbox = running.addr();
    let integrations: Vec<Integration> = provider::builtin::sandbox_manifests()
        .iter()
        .map(|(f, t)| {
            Integration::parse(f, t, Format::Toml, Mode::Sandbox)
                .unwrap()
                .with_base_url(&format!("http://{sandbox}"))
                .unwrap()
        })
        .collect();
    let executor = Arc::new(HttpExecutor::new(Arc::new(ConfigCredentials::load(&integrations).unwrap())));
    let env = Arc::new(SystemEnv);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(1_700_000_000_000), Attention::default()));
    let metrics = Arc::new(Metrics::default());
    let ledger = Ledger::new(store.clone(), env, Settings::default(), metrics.clone());
    let catalog = catalog(&integrations, &executor, &ledger, tune);
    let settings = GatewaySettings {
        name: "test".into(),
        version: "1".into(),
        mode: "sandbox".into(),
        instructions: None,
        list_ttl_ms: 300_000,
        public_lists: true,
        retention_ms: 604_800_000,
        max_in_flight: 100,
        legacy_sessions: gateway::LegacySessions::Auto,
        session_idle: gateway::sessions::SESSION_IDLE,
        single_use: false,
    };
    let gateway = Gateway::new(GatewayParts {
        ledger,
        catalog,
        executor: executor.clone(),
        settings,
        metrics,
        changes: gateway::Changes::default(),
        keeper: None,
        connections: Arc::default(),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut http = HttpConfig { port: Some(addr.port()), shutdown: stop.clone(), ..HttpConfig::default() };
    if auth {
        http.authenticator = Some(Arc::new(ApiKeys::new(store.clone())));
    }
    let app = gateway.app(http).unwrap();
    tokio::spawn(mcp::server::serve(listener, app, stop.clone(), ServeLimits::default()));
    tokio::spawn(gateway.ledger().clone().tend());
    gateway.set_ready();
    World {
        url: format!("http://{addr}/mcp"),
        addr,
        gateway,
        store,
        sandbox,
        executor,
        integrations,
        stop,
        _running: running,
        _dir: dir,
    }
}

fn client(w: &World) -> McpClient {
    McpClient::new(ClientConfig::new(&w.url, "test", "1")).unwrap()
}

fn args(v: &Value) -> RawObject {
    RawObject::parse(v.to_string(), &Limits::default()).unwrap()
}

fn meta(key: &str, v: &Value) -> (String, Raw) {
    (key.to_owned(), Raw::parse(v.to_string(), &Limits::default()).unwrap())
}

async fn call(c: &McpClient, tool: &str, a: Value, m: Vec<(String, Raw)>) -> Value {
    let options = CallOptions { meta: m, ..CallOptions::default() };
    let r = c.call_tool(tool, Some(&args(&a)), options).await.unwrap();
    serde_json::from_str(r.result.raw().as_str()).unwrap()
}

fn op(v: &Value) -> &Value {
    &v["_meta"]["dev.counterfoil/operation"]
}
fn err(v: &Value) -> &Value {
    &v["_meta"]["dev.counterfoil/error"]
}

async fn effects(w: &World, object: &str) -> u64 {
    let text = http_get(w.sandbox, &format!("/_sandbox/effects?object={object}&kind=refund")).await;
    let v: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    v["total"].as_u64().unwrap()
}

async fn http_get(addr: SocketAddr, path: &str) -> String {
    http(addr, &format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n")).await
}

async fn http(addr: SocketAddr, text: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut s = tokio::net::TcpStream::connect(addr).await.unwrap();
    s.write_all(text.as_bytes()).await.unwrap();
    let mut out = Vec::new();
    s.read_to_end(&mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

async fn arm(w: &World, rule: &str) {
    let r = http(w.sandbox, &format!("POST /_sandbox/rules HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{rule}", w.sandbox, rule.len())).await;
    assert!(r.starts_with("HTTP/1.1 2"), "{r}");
}

const REFUND: &str = "payments_refunds_create";

fn refund(payment: &str) -> Value {
    json!({ "payment": payment, "amount": 500 })
}

#[tokio::test]
async fn lists_are_ordered_and_say_how_long_they_last() {
    let w = world(&|_, _| {}, false).await;
    let c = client(&w);
    let d = c.discover().await.unwrap();
    let d: Value = serde_json::from_str(d.result.raw().as_str()).unwrap();
    assert_eq!(d["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(d["capabilities"]["tools"]["listChanged"], true);
    assert!(d["capabilities"]["extensions"]["dev.counterfoil/idempotency"]["keyCarriers"].is_array());
    assert_eq!(d["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
    assert_eq!((d["ttlMs"].as_i64(), d["cacheScope"].as_str()), (Some(300_000), Some("public")));
    let tools = c.list_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|t| t.name.as_str()).collect();
    assert!(names.contains(&REFUND) && names.last() == Some(&"operation_status"), "{names:?}");
    let refund = tools.iter().find(|t| t.name == REFUND).unwrap();
    assert!(refund.definition.raw().as_str().contains("idempotency_key"));
    let read = tools.iter().find(|t| t.name == "payments_payments_get").unwrap();
    assert!(!read.definition.raw().as_str().contains("idempotency_key"));
}

#[tokio::test]
async fn a_keyed_call_happens_once_and_is_replayed_byte_for_byte() {
    let w = world(&|_, _| {}, false).await;
    let c = client(&w);
    let key = meta("dev.counterfoil/idempotency-key", &json!("k-1"));
    let first = call(&c, REFUND, refund("pay_demo_1"), vec![key.clone()]).await;
    assert_eq!(first["isError"], false, "{first}");
    assert_eq!(op(&first)["replayed"], false);
    assert!(op(&first)["joinedBy"].is_null());
    let again = call(&c, REFUND, refund("pay_demo_1"), vec![key]).await;
    assert_eq!(op(&again)["replayed"], true);
    assert_eq!(op(&again)["joinedBy"], "key");
    assert_eq!(op(&again)["id"], op(&first)["id"]);
    assert_eq!(first["content"], again["content"]);
    assert_eq!(first["structuredContent"], again["structuredContent"]);
    // Every carrier names the same operation.
    for options in [
        CallOptions { params: vec![meta("idempotencyKey", &json!("k-1"))], ..CallOptions::default() },
        CallOptions {
            headers: HeaderMap::from_iter([(
                http::HeaderName::from_static("idempotency-key"),
                HeaderValue::from_static("\"k-1\""),
            )]),
            ..CallOptions::default()
        },
    ] {
        let r = c.call_tool(REFUND, Some(&args(&refund("pay_demo_1"))), options).await.unwrap();
        let v: Value = serde_json::from_str(r.result.raw().as_str()).unwrap();
        assert_eq!(op(&v)["id"], op(&first)["id"]);
    }
    let by_argument = call(
        &c,
        REFUND,
        json!({ "payment": "pay_demo_1", "amount": 500.0, "idempotency_key": op(&first)["id"] }),
        vec![],
    )
    .await;
    assert_eq!(op(&by_argument)["joinedBy"], "operation");
    assert_eq!(effects(&w, "pay_demo_1").await, 1);
    // Other arguments under the key: nothing runs.
    let other = call(
        &c,
        REFUND,
        json!({ "payment": "pay_demo_1", "amount": 501 }),
        vec![meta("dev.counterfoil/idempotency-key", &json!("k-1"))],
    )
    .await;
    assert_eq!(err(&other)["kind"], "key_conflict");
    assert_eq!(other["structuredContent"]["error"]["kind"], "key_conflict");
    assert_eq!(effects(&w, "pay_demo_1").await, 1);
}

#[tokio::test]
async fn a_lost_reply_of_the_provider_is_replayed_under_the_same_key() {
    let w = world(&|_, _| {}, false).await;
    arm(&w, r#"{"on":"POST /v1/refunds","do":"apply_then_cut","times":2}"#).await;
    let v = call(&client(&w), REFUND, refund("pay_demo_2"), vec![]).await;
    assert_eq!(v["isError"], false, "{v}");
    assert_eq!(effects(&w, "pay_demo_2").await, 1);
}

#[tokio::test]
async fn a_twin_is_told_and_may_be_either() {
    let w = world(&|_, _| {}, false).await;
    let c = client(&w);
    let first = call(&c, REFUND, refund("pay_demo_3"), vec![]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let twin = call(&c, REFUND, refund("pay_demo_3"), vec![]).await;
    assert_eq!(err(&twin)["kind"], "twin", "{twin}");
    assert_eq!(err(&twin)["operationId"], op(&first)["id"]);
    // A key that a model made up passes the same check.
    let mut invented = refund("pay_demo_3");
    invented["idempotency_key"] = json!("refund-pay-3");
    assert_eq!(err(&call(&c, REFUND, invented, vec![]).await)["kind"], "twin");
    let mut same = refund("pay_demo_3");
    same["idempotency_key"] = err(&twin)["retryKey"].clone();
    assert_eq!(op(&call(&c, REFUND, same, vec![]).await)["id"], op(&first)["id"]);
    assert_eq!(effects(&w, "pay_demo_3").await, 1);
    let mut second = refund("pay_demo_3");
    second["idempotency_key"] = err(&twin)["newKey"].clone();
    let second = call(&c, REFUND, second, vec![]).await;
    assert_ne!(op(&second)["id"], op(&first)["id"], "{second}");
    assert_eq!(effects(&w, "pay_demo_3").await, 2);
    // Acknowledged is history: the same arguments mean a new one.
    let acks = json!([op(&first)["ack"], op(&second)["ack"]]);
    let third = call(&c, REFUND, refund("pay_demo_3"), vec![meta("dev.counterfoil/ack", &acks)]).await;
    let records =
        w.gateway.ledger().list(&ledger::store::Query { limit: 10, ..Default::default() }).await.unwrap();
    assert!(err(&third).is_null(), "{third} {records:#?} {acks}");
    assert_eq!(effects(&w, "pay_demo_3").await, 3);
}

#[tokio::test]
async fn a_caller_that_leaves_finds_its_answer_again() {
    let w = world(&|_, _| {}, false).await;
    arm(&w, r#"{"on":"POST /v1/refunds","do":"delay","delay_ms":300,"times":1}"#).await;
    let options = CallOptions { timeout: Some(Duration::from_millis(100)), ..CallOptions::default() };
    let c = client(&w);
    assert!(c.call_tool(REFUND, Some(&args(&refund("pay_demo_4"))), options).await.is_err());
    let v = call(&c, REFUND, refund("pay_demo_4"), vec![]).await;
    assert_eq!(op(&v)["joinedBy"], "fingerprint", "{v}");
    assert_eq!(v["isError"], false);
    assert_eq!(effects(&w, "pay_demo_4").await, 1);
}

#[tokio::test]
async fn policies_and_bad_arguments() {
    let w = world(
        &|id, s| {
            if id == "payments.refunds.create" {
                s.unkeyed = Unkeyed::Reject;
            }
            if id == "mail.messages.send" {
                s.unkeyed = Unkeyed::New;
                s.key_from = vec![];
            }
            if id == "payments.payments.create" {
                s.key_from = vec!["order_id".into()];
            }
        },
        false,
    )
    .await;
    let c = client(&w);
    let v = call(&c, REFUND, refund("pay_demo_5"), vec![]).await;
    assert_eq!(err(&v)["kind"], "key_required");
    let mut with = refund("pay_demo_5");
    with["idempotency_key"] = err(&v)["newKey"].clone();
    assert_eq!(call(&c, REFUND, with, vec![]).await["isError"], false);
    let v = call(&c, REFUND, json!({ "payment": 5, "extra": true, "idempotency_key": "a" }), vec![]).await;
    assert_eq!(err(&v)["kind"], "bad_arguments");
    assert_eq!(effects(&w, "pay_demo_5").await, 1);
    let p = json!({ "amount": 100, "currency": "eur", "order_id": "o-1" });
    let one = call(&c, "payments_payments_create", p.clone(), vec![]).await;
    let two = call(&c, "payments_payments_create", p, vec![]).await;
    assert_eq!(op(&one)["id"], op(&two)["id"], "{one} {two}");
    let mail = json!({ "to": "a@example.com", "subject": "s", "body": "b" });
    let one = call(&c, "mail_messages_send", mail.clone(), vec![]).await;
    let two = call(&c, "mail_messages_send", mail, vec![]).await;
    assert_ne!(op(&one)["id"], op(&two)["id"], "{one} {two}");
    let e = c.call_tool("no_such_tool", None, CallOptions::default()).await.unwrap_err();
    assert!(e.to_string().contains("unknown tool"), "{e}");
    let disagree = CallOptions {
        meta: vec![meta("dev.counterfoil/idempotency-key", &json!("x"))],
        params: vec![meta("idempotencyKey", &json!("y"))],
        ..CallOptions::default()
    };
    let e = c.call_tool(REFUND, Some(&args(&refund("pay_demo_5"))), disagree).await.unwrap_err();
    assert!(e.to_string().contains("disagree"), "{e}");
}

#[tokio::test]
async fn status_answers_whether_it_landed() {
    let w = world(&|_, _| {}, false).await;
    let c = client(&w);
    let v = call(&c, REFUND, refund("pay_demo_6"), vec![]).await;
    let s = call(&c, "operation_status", json!({ "id": op(&v)["id"] }), vec![]).await;
    assert_eq!(s["structuredContent"]["landed"], "yes", "{s}");
    let s = call(&c, "operation_status", json!({}), vec![]).await;
    assert_eq!(s["structuredContent"]["operations"].as_array().unwrap().len(), 1);
    let s = call(&c, "operation_status", json!({ "id": "op_00000000000000000000000000" }), vec![]).await;
    assert_eq!(s["structuredContent"]["state"], "unknown");
}

#[tokio::test]
async fn api_keys_name_principals_who_cannot_see_each_other() {
    let w = world(&|_, _| {}, true).await;
    for (id, principal) in [("a", "ann"), ("b", "ben")] {
        let hash = gateway::principal::hash(&format!("cfk_{id}"));
        w.store
            .put_api_key(ApiKey {
                id: id.into(),
                principal: principal.into(),
                hash,
                created_at: Time(0),
                revoked_at: None,
                note: String::new(),
            })
            .await
            .unwrap();
    }
    let as_ = |key: &str| {
        McpClient::new(ClientConfig { bearer: Some(key.into()), ..ClientConfig::new(&w.url, "t", "1") })
            .unwrap()
    };
    assert!(client(&w).discover().await.is_err());
    assert!(as_("cfk_x").discover().await.is_err());
    let (ann, ben) = (as_("cfk_a"), as_("cfk_b"));
    let key = || vec![meta("dev.counterfoil/idempotency-key", &json!("same"))];
    let a = call(&ann, REFUND, refund("pay_demo_7"), key()).await;
    let b = call(&ben, REFUND, refund("pay_demo_7"), key()).await;
    assert_ne!(op(&a)["id"], op(&b)["id"]);
    let s = call(&ben, "operation_status", json!({ "id": op(&a)["id"] }), vec![]).await;
    assert_eq!(s["structuredContent"]["state"], "unknown");
    let mut stolen = refund("pay_demo_7");
    stolen["idempotency_key"] = op(&a)["id"].clone();
    // As an id of this minute that is not here: it might still be on its way.
    assert_eq!(err(&call(&ben, REFUND, stolen, vec![]).await)["kind"], "admission_unknown");
    assert_eq!(effects(&w, "pay_demo_7").await, 2);
}

#[tokio::test]
async fn listeners_hear_of_changed_lists_and_an_end() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let w = world(&|_, _| {}, false).await;
    let body = json!({ "jsonrpc": "2.0", "id": "s-1", "method": "subscriptions/listen", "params": {
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} },
        "notifications": { "toolsListChanged": true, "promptsListChanged": true } } })
    .to_string();
    let mut s = tokio::net::TcpStream::connect(w.addr).await.unwrap();
    s.write_all(
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
            w.addr,
            body.len()
        )
        .as_bytes(),
    )
    .await
    .unwrap();
    let mut lines = BufReader::new(s).lines();
    let mut next = async || loop {
        let line =
            tokio::time::timeout(Duration::from_secs(5), lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some(data) = line.strip_prefix("data: ").or_else(|| line.strip_prefix("data:")) {
            return serde_json::from_str::<Value>(data).unwrap();
        }
    };
    let ack = next().await;
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(ack["params"]["notifications"], json!({ "toolsListChanged": true }));
    w.gateway.reload(catalog(&w.integrations, &w.executor, w.gateway.ledger(), &|_, _| {}));
    w.gateway.reload(catalog(&w.integrations[..1], &w.executor, w.gateway.ledger(), &|_, _| {}));
    let changed = next().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s-1");
    w.stop.cancel();
    let end = next().await;
    assert_eq!(end["id"], "s-1");
    assert_eq!(end["result"]["resultType"], "complete");
}

#[tokio::test]
async fn machines_see_states_and_readiness() {
    let w = world(&|_, _| {}, false).await;
    call(&client(&w), REFUND, refund("pay_demo_8"), vec![]).await;
    let m = http_get(w.addr, "/metrics").await;
    for line in [
        "counterfoil_operations{state=\"completed\"} 1",
        "counterfoil_sends_total{word=\"applied\"} 1",
        "counterfoil_operations_opened_total 1",
        "counterfoil_operations{state=\"in_doubt\"} 0",
    ] {
        assert!(m.contains(line), "{line} not in {m}");
    }
    assert!(http_get(w.addr, "/readyz").await.contains("200"));
    w.gateway.drain();
    assert!(http_get(w.addr, "/readyz").await.contains("503"));
    assert!(http_get(w.addr, "/healthz").await.contains("200"));
}
