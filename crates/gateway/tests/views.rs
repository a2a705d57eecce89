//! Fewer tools at a path and for a principal: what is listed, what can be called, what is the same everywhere, and who hears
//! of which change.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{
    Count, Echo, PATH, Served, Stream, World, catalog, offer, serve_catalog, settings, tool, watched,
};
use counterfoil_gateway::{Body, Catalog, LegacySessions, Offer, View, ViewBy};
use ledger::memory::MemoryStore;
use ledger::store::Attention;
use ledger::{Millis, SystemEnv, Time};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const BILLING: &[(&str, &str)] = &[(PATH, "/mcp/billing")];
const ANN: (&str, &str) = ("Authorization", "Bearer cfk_ann");
const BEN: (&str, &str) = ("Authorization", "Bearer cfk_ben");
const QUIET: Duration = Duration::from_millis(150);

fn view(name: &str, by: ViewBy, tools: &[&str]) -> View {
    View { name: name.into(), by, tools: tools.iter().map(|t| format!("native.{t}").into()).collect() }
}

fn at(path: &str) -> ViewBy {
    ViewBy::Path(path.into())
}

fn of(all: &[&str]) -> ViewBy {
    ViewBy::Principals(all.iter().map(|p| (*p).to_owned()).collect())
}

/// `pay` and `refund` change something, `echo` and `look` read.
fn tools(count: &Arc<Count>) -> Offer {
    let mut o = watched();
    o.tools = vec![
        tool("echo", None, Body::Read(Arc::new(Echo))),
        tool("look", None, Body::Read(Arc::new(Echo))),
        tool("pay", None, Body::Mutating(count.clone())),
        tool("refund", None, Body::Mutating(count.clone())),
    ];
    o
}

struct Stage {
    world: World,
    count: Arc<Count>,
}

async fn stage(views: Vec<View>, auth: bool, sessions: LegacySessions) -> Stage {
    let count = Arc::new(Count::default());
    let env = Arc::new(SystemEnv);
    let store = Arc::new(MemoryStore::new(env.clone(), Time(1_700_000_000_000), Attention::default()));
    let paths = views.iter().filter_map(|v| match &v.by {
        ViewBy::Path(path) => Some(path.as_str().into()),
        ViewBy::Principals(_) => None,
    });
    let served = Served {
        store: store.clone(),
        env,
        paths: paths.collect(),
        catalog: catalog(tools(&count)).with_views(views),
        settings: counterfoil_gateway::GatewaySettings { legacy_sessions: sessions, ..settings() },
        auth,
        keeper: None,
        poll: Millis(500),
    };
    Stage { world: serve_catalog(store, served).await, count }
}

fn usual() -> Vec<View> {
    vec![
        view("billing", at("/mcp/billing"), &["pay", "look"]),
        view("reading", at("/mcp/reading"), &["echo", "look"]),
        view("ben's", of(&["ben"]), &["pay", "echo"]),
    ]
}

async fn names(w: &World, more: &[(&str, &str)]) -> Vec<String> {
    let reply = w.modern_with("tools/list", json!({}), json!({}), more).await;
    let list = reply.last()["result"]["tools"].as_array().unwrap_or_else(|| panic!("{:?}", reply.messages));
    list.iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
}

async fn call(w: &World, tool: &str, key: &str, more: &[(&str, &str)]) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "idempotencyKey": key });
    w.modern_with("tools/call", params, json!({}), more).await.last().clone()
}

#[tokio::test]
async fn each_sees_its_part() {
    let Stage { world: w, .. } = stage(usual(), true, LegacySessions::Auto).await;
    let billing = |who| [BILLING[0], who];
    let reading = |who| [(PATH, "/mcp/reading"), who];
    assert_eq!(names(&w, &[ANN]).await, ["echo", "look", "pay", "refund"]);
    assert_eq!(names(&w, &billing(ANN)).await, ["look", "pay"]);
    assert_eq!(names(&w, &reading(ANN)).await, ["echo", "look"]);
    // Who has a view has it everywhere: at another one's path, what both have.
    assert_eq!(names(&w, &[BEN]).await, ["echo", "pay"]);
    assert_eq!(names(&w, &billing(BEN)).await, ["pay"]);
    assert_eq!(names(&w, &reading(BEN)).await, ["echo"]);
    // The principal is asked for there as everywhere.
    assert_eq!(w.modern_with("tools/list", json!({}), json!({}), BILLING).await.status, 401);
    let foreign = [BILLING[0], ANN, ("Origin", "https://elsewhere.example")];
    assert_eq!(w.modern_with("tools/list", json!({}), json!({}), &foreign).await.status, 403);
    // There is no path beside those.
    assert_eq!(w.http("POST", &[(PATH, "/mcp/billing/"), ANN], "{}").await.status, 404);
    // What is said around the tools is the same: how long it may be kept, whose it is, and all that is no tool.
    for method in ["resources/list", "resources/templates/list", "prompts/list", "server/discover"] {
        let everywhere = w.modern_with(method, json!({}), json!({}), &[ANN]).await.last().clone();
        let there = w.modern_with(method, json!({}), json!({}), &billing(BEN)).await.last().clone();
        assert_eq!(everywhere, there, "{method}");
    }
    let list = w.modern_with("tools/list", json!({}), json!({}), &billing(ANN)).await.last().clone();
    assert_eq!(list["result"]["ttlMs"], 300_000);
    assert_eq!(list["result"]["cacheScope"], "public", "as without a view");
    // Made once: the very same bytes again.
    let again = w.modern_with("tools/list", json!({}), json!({}), &billing(ANN)).await.last().clone();
    assert_eq!(list, again);
    // The legacy era sees the same tools.
    let legacy = w.legacy_with(None, "tools/list", json!({}), &billing(BEN)).await.last().clone();
    let legacy: Vec<&Value> =
        legacy["result"]["tools"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert_eq!(legacy, [&json!("pay")]);
}

#[tokio::test]
async fn what_is_not_in_a_view_is_not_there() {
    let Stage { world: w, count } = stage(usual(), false, LegacySessions::Auto).await;
    let unknown = |tool: &str, reply: &Value| {
        let said = reply.to_string().replace(tool, "X");
        assert!(said.contains("unknown tool"), "{said}");
        said
    };
    for tool in ["refund", "echo"] {
        let hidden = unknown(tool, &call(&w, tool, "k-1", BILLING).await);
        let missing = unknown("zebra", &call(&w, "zebra", "k-1", BILLING).await);
        assert_eq!(hidden, missing, "nothing tells that it is served elsewhere");
        let legacy = |name: &'static str| {
            let w = &w;
            async move {
                let params = json!({ "name": name, "arguments": {} });
                w.legacy_with(None, "tools/call", params, BILLING).await.last().to_string().replace(name, "X")
            }
        };
        assert_eq!(legacy(tool).await, legacy("zebra").await);
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    assert!(call(&w, "look", "k-2", BILLING).await["result"]["structuredContent"].is_object());
}

#[tokio::test]
async fn an_operation_is_the_same_at_each_path() {
    let Stage { world: w, count } = stage(usual(), false, LegacySessions::Auto).await;
    let first = call(&w, "pay", "k-1", BILLING).await;
    assert_eq!(first["result"]["content"][0]["text"], "1", "{first}");
    // The same key without the view, and at a path that does not show the tool: what was opened is answered.
    for more in [&[][..], &[(PATH, "/mcp/reading")]] {
        let again = call(&w, "pay", "k-1", more).await;
        let about = &again["result"]["_meta"]["dev.counterfoil/operation"];
        assert_eq!(again["result"]["content"][0]["text"], "1", "{again}");
        assert_eq!(about["replayed"], true, "{again}");
        let was = &first["result"]["_meta"]["dev.counterfoil/operation"]["id"];
        assert_eq!(&about["id"], was);
    }
    // A new key opens nothing there.
    let fresh = call(&w, "pay", "k-2", &[(PATH, "/mcp/reading")]).await;
    assert!(fresh.to_string().contains("unknown tool"), "{fresh}");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    // The operators see all tools.
    assert_eq!(w.operator("/v1/status").await["tools"], 4);
}

#[tokio::test]
async fn a_session_belongs_to_its_path() {
    let Stage { world: w, .. } = stage(usual(), false, LegacySessions::Always).await;
    let open = |more: &'static [(&'static str, &'static str)]| {
        let w = &w;
        async move { w.initialize(json!({}), more).await.1.unwrap() }
    };
    let (main, billing) = (open(&[]).await, open(BILLING).await);
    let reading: &[(&str, &str)] = &[(PATH, "/mcp/reading")];
    for (session, own) in [(&main, &[][..]), (&billing, BILLING)] {
        for path in [&[][..], BILLING, reading] {
            let reply = w.legacy_with(Some(session), "tools/list", json!({}), path).await;
            assert_eq!(reply.status, if path == own { 200 } else { 404 }, "{path:?}: {:?}", reply.messages);
        }
    }
    let delete = |path: &'static [(&'static str, &'static str)]| {
        let (w, billing) = (&w, &billing);
        async move {
            let own = [("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", billing.as_str())];
            w.http("DELETE", &[&own[..], path].concat(), "").await.status
        }
    };
    assert_eq!(delete(&[]).await, 404, "another path can't end it");
    assert_eq!(delete(BILLING).await, 204);
    assert_eq!(w.legacy_with(Some(&billing), "tools/list", json!({}), BILLING).await.status, 404);
}

async fn acknowledged(w: &World, more: &[(&str, &str)]) -> Stream {
    let mut s = w.listen_with(json!({ "toolsListChanged": true }), more).await;
    assert_eq!(s.next().await["method"], "notifications/subscriptions/acknowledged");
    s
}

async fn hears(s: &mut Stream) -> bool {
    match s.within(QUIET).await {
        Some(m) => {
            assert_eq!(m["method"], "notifications/tools/list_changed", "{m}");
            true
        }
        None => false,
    }
}

#[tokio::test]
async fn who_sees_a_change_hears_of_it_and_nobody_else() {
    let Stage { world: w, count } = stage(usual(), true, LegacySessions::Always).await;
    let mut all = acknowledged(&w, &[ANN]).await;
    let mut billing = acknowledged(&w, &[BILLING[0], ANN]).await;
    let mut reading = acknowledged(&w, &[(PATH, "/mcp/reading"), ANN]).await;
    let mut ben = acknowledged(&w, &[BEN]).await;
    let mut both = acknowledged(&w, &[(PATH, "/mcp/reading"), BEN]).await;
    let (_, session) = w.initialize(json!({}), &[BILLING[0], ANN]).await;
    let session = session.unwrap();
    let headers =
        [("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", session.as_str()), BILLING[0], ANN];
    let mut legacy = w.stream("GET", &headers, "").await;
    let mut heard = async |catalog: Catalog| {
        w.gateway.reload(catalog);
        [
            hears(&mut all).await,
            hears(&mut billing).await,
            hears(&mut legacy).await,
            hears(&mut reading).await,
            hears(&mut ben).await,
            hears(&mut both).await,
        ]
    };
    let with = |o: Offer| catalog(o).with_views(usual());
    assert_eq!(heard(with(tools(&count))).await, [false; 6], "nothing changed");
    let change = |name: &str| {
        let mut o = tools(&count);
        o.tools.iter_mut().find(|t| t.0.name == name).unwrap().0.title = None;
        with(o)
    };
    assert_eq!(heard(change("refund")).await, [true, false, false, false, false, false]);
    assert_eq!(heard(with(tools(&count))).await, [true, false, false, false, false, false]);
    assert_eq!(heard(change("pay")).await, [true, true, true, false, true, true]);
    assert_eq!(heard(with(tools(&count))).await, [true, true, true, false, true, true]);
    assert_eq!(heard(change("look")).await, [true, true, true, true, false, true]);
    // A view that shows more: its own hear of it, though no tool changed.
    let mut wider = usual();
    wider[0].tools.insert("native.refund".into());
    assert_eq!(
        heard(catalog(tools(&count)).with_views(wider.clone())).await,
        [true, true, true, true, false, true],
        "look is as it was, and billing shows more"
    );
    assert_eq!(
        heard(catalog(tools(&count)).with_views(usual())).await,
        [false, true, true, false, false, false]
    );
    // Somebody else is given a view: everybody looks again.
    let mut others = usual();
    others[2].by = of(&["ann"]);
    assert_eq!(heard(catalog(tools(&count)).with_views(others)).await, [true; 6]);
    assert_eq!(names(&w, &[ANN]).await, ["echo", "pay"]);
    assert_eq!(names(&w, &[BEN]).await, ["echo", "look", "pay", "refund"]);
}

#[tokio::test]
async fn a_path_never_comes_to_show_more_because_nobody_speaks_of_it() {
    let Stage { world: w, count } = stage(usual(), false, LegacySessions::Auto).await;
    w.gateway.reload(catalog(tools(&count)));
    assert_eq!(names(&w, &[]).await.len(), 4);
    assert_eq!(names(&w, BILLING).await, ["look", "pay"]);
    w.gateway.reload(catalog(offer()).with_views(vec![view("money", at("/mcp/billing"), &["echo"])]));
    assert_eq!(names(&w, BILLING).await, ["echo"]);
}

#[tokio::test]
async fn views_are_part_of_what_replicas_compare() {
    let plain = stage(Vec::new(), false, LegacySessions::Auto).await;
    let viewed = stage(usual(), false, LegacySessions::Auto).await;
    let same = stage(usual(), false, LegacySessions::Auto).await;
    let mut other = usual();
    other[0].tools.remove("native.pay");
    let fewer = stage(other, false, LegacySessions::Auto).await;
    let digest = |s: &Stage| s.world.gateway.digest();
    assert_eq!(digest(&viewed), digest(&same));
    assert_ne!(digest(&viewed), digest(&plain));
    assert_ne!(digest(&viewed), digest(&fewer));
    let lists = viewed.world.gateway.tool_lists();
    let told: Vec<(Option<String>, usize)> =
        lists.iter().map(|l| (l.view.as_ref().map(|v| v.name.clone()), l.tools)).collect();
    let told: Vec<(Option<&str>, usize)> = told.iter().map(|(n, t)| (n.as_deref(), *t)).collect();
    assert_eq!(told, [(None, 4), (Some("billing"), 2), (Some("reading"), 2), (Some("ben's"), 2)]);
    assert!(lists[0].bytes > lists[1].bytes && lists[1].bytes > 100);
}

#[tokio::test]
async fn a_path_without_a_view_is_not_served() {
    let Stage { world: w, .. } = stage(usual(), false, LegacySessions::Auto).await;
    let with = |views: Vec<Arc<str>>| mcp::server::HttpConfig { views, ..mcp::server::HttpConfig::default() };
    for (views, words) in [
        (vec!["/elsewhere".into()], "there is no view"),
        (vec!["/mcp/billing".into(), "/mcp/billing".into()], "twice"),
        (vec!["/mcp".into()], "there is no view"),
        (vec!["mcp".into()], "there is no view"),
    ] {
        let refused = w.gateway.app(with(views)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains(words), "{refused}");
    }
}
