//! The example's counter, driven by raw HTTP and by the SDK's own client: however a call is repeated, it counts once.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
#[allow(dead_code)]
#[path = "../examples/counter.rs"]
mod counter;

use common::{Served, call, error, exchange, operation, post, result, serve, text};
use counter::Counter;
use counterfoil_rmcp::Durable;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ContentBlock, ProtocolVersion, RequestMetaObject,
    ServerResult,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, PeerRequestOptions, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

async fn counter() -> (Served<Arc<Durable<Counter>>>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let counter = Durable::sqlite(Counter::new(), folder.path().join("ledger")).unwrap();
    (serve(counter.read_only(["get_value"])).await, folder)
}

async fn stands(served: &Served<Arc<Durable<Counter>>>) -> String {
    text(&call("get_value", json!({})).send(served.address).await).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_counts_once_and_gives_the_stored_result_byte_for_byte() {
    let (served, _folder) = counter().await;
    let first = call("increment", json!({ "by": 3 })).key("k-1").send(served.address).await;
    assert_eq!(text(&first), "3");
    assert_eq!(operation(&first)["replayed"], false);
    let again = call("increment", json!({ "by": 3 })).key("\"k-1\"").send(served.address).await;
    assert_eq!(result(&again), result(&first));
    assert_eq!(operation(&again)["replayed"], true);
    assert_eq!(operation(&again)["joinedBy"], "key");
    // In the other carriers it is the same key.
    let asked = call("increment", json!({ "by": 3 })).meta("dev.counterfoil/idempotency-key", "k-1".into());
    assert_eq!(result(&asked.send(served.address).await), result(&first));
    let asked = call("increment", json!({ "by": 3, "idempotency_key": "k-1" }));
    assert_eq!(result(&asked.send(served.address).await), result(&first));
    assert_eq!(stands(&served).await, "3");
    // Another key is another call.
    let other = call("increment", json!({ "by": 3 })).key("k-2").send(served.address).await;
    assert_eq!(text(&other), "6");
    // The same key for something else runs nothing.
    let conflict = call("increment", json!({ "by": 4 })).key("k-1").send(served.address).await;
    assert_eq!(error(&conflict)["kind"], "key_conflict");
    assert_eq!(stands(&served).await, "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn carriers_that_disagree_run_nothing() {
    let (served, _folder) = counter().await;
    let asked = call("increment", json!({})).key("k-1").meta("dev.counterfoil/idempotency-key", "k-2".into());
    let answer = asked.send(served.address).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let asked = call("increment", json!({ "idempotency_key": 7 }));
    assert_eq!(error(&asked.send(served.address).await)["kind"], "bad_arguments");
    assert_eq!(stands(&served).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_a_repetition_is_told_of_the_first_and_can_say_what_is_meant() {
    let (served, _folder) = counter().await;
    let first = call("increment", json!({})).send(served.address).await;
    let twin = call("increment", json!({})).send(served.address).await;
    assert_eq!(error(&twin)["kind"], "twin");
    assert_eq!(error(&twin)["operationId"], operation(&first)["id"]);
    let key = |name: &str| json!({ "idempotency_key": error(&twin)[name] });
    let retried = call("increment", key("retryKey")).send(served.address).await;
    assert_eq!(result(&retried), result(&first));
    assert_eq!(stands(&served).await, "1");
    let second = call("increment", key("newKey")).send(served.address).await;
    assert_eq!(text(&second), "2");
    // Acknowledged, a call is history.
    let ack = json!([operation(&second)["ack"], operation(&first)["ack"]]);
    let third = call("increment", json!({})).meta("dev.counterfoil/ack", ack).send(served.address).await;
    assert_eq!(text(&third), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_and_a_retry_count_once() {
    let (served, _folder) = counter().await;
    let asked = call("increment", json!({ "by": 5 })).key("lost");
    asked.send_and_leave(served.address, async { tokio::task::yield_now().await }).await;
    let retried = asked.send(served.address).await;
    assert_eq!(text(&retried), "5");
    assert_eq!(stands(&served).await, "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_count_once() {
    let (served, _folder) = counter().await;
    let keyed = call("increment", json!({})).key("both");
    let (one, two) = tokio::join!(keyed.send(served.address), keyed.send(served.address));
    assert_eq!(result(&one), result(&two));
    let bare = call("increment", json!({ "by": 10 }));
    let (one, two) = tokio::join!(bare.send(served.address), bare.send(served.address));
    let told: Vec<_> = [&one, &two].into_iter().filter(|a| a["result"]["isError"] == true).collect();
    assert_eq!(told.len(), 1, "{one} {two}");
    assert_eq!(error(told[0])["kind"], "twin");
    assert_eq!(stands(&served).await, "11");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_gives_the_result_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Durable::sqlite(Counter::new(), folder.path().join("ledger")).unwrap();
    let served = serve(open()).await;
    let asked = call("increment", json!({ "by": 2 })).key("k");
    let first = asked.send(served.address).await;
    drop(served);
    let served =
        common::until(async || Durable::sqlite(Counter::new(), folder.path().join("ledger")).ok()).await;
    let served = serve(served).await;
    let again = asked.send(served.address).await;
    assert_eq!(result(&again), result(&first));
    assert_eq!(operation(&again)["replayed"], true);
    // The counter began anew, and did not count.
    assert_eq!(text(&call("increment", json!({})).send(served.address).await), "1");
}

async fn client(
    served: &Served<Arc<Durable<Counter>>>,
    lifecycle: ClientLifecycleMode,
) -> RunningService<RoleClient, ()> {
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", served.address));
    ().serve_with_lifecycle(transport, lifecycle).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_s_own_client_sees_the_key_argument_and_the_announcement_and_retries() {
    let (served, _folder) = counter().await;
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for lifecycle in [modern, ClientLifecycleMode::Initialize] {
        let client = client(&served, lifecycle).await;
        let announced = client.peer_info().map(|info| serde_json::to_value(&*info).unwrap()).unwrap();
        let announced = &announced["capabilities"];
        let places = ["extensions", "experimental"].map(|at| &announced[at]["dev.counterfoil/idempotency"]);
        assert!(places.iter().any(|said| said["argument"] == "idempotency_key"), "{announced}");

        let tools = client.list_all_tools().await.unwrap();
        let schema = |name: &str| &tools.iter().find(|t| t.name == name).unwrap().input_schema;
        assert_eq!(schema("increment")["properties"]["idempotency_key"]["type"], "string");
        assert!(!serde_json::to_string(schema("get_value")).unwrap().contains("idempotency_key"));

        let Value::Object(arguments) = json!({ "by": 100 }) else { unreachable!() };
        let params = CallToolRequestParams::new("increment").with_arguments(arguments);
        let counted = async |key: &str| -> CallToolResult {
            let mut meta = RequestMetaObject::new();
            meta.insert("dev.counterfoil/idempotency-key".into(), key.into());
            let request = CallToolRequest::new(params.clone()).into();
            let options = PeerRequestOptions::no_options().with_meta(meta);
            let handle = client.send_request_with_option(request, options).await.unwrap();
            match handle.await_response().await.unwrap() {
                ServerResult::CallToolResult(result) => result,
                other => panic!("{other:?}"),
            }
        };
        let first = counted("sdk").await;
        let again = counted("sdk").await;
        assert_eq!(first.content, again.content);
        assert_eq!(first.content, vec![ContentBlock::text("100")]);
        client.cancel().await.unwrap();
    }
    assert_eq!(stands(&served).await, "100");
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_announces_what_the_sdk_lets_through() {
    let (served, _folder) = counter().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": common::MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    let answer = exchange(served.address, &post("server/discover", None, &[], &body)).await;
    let said = &answer["result"]["capabilities"]["extensions"]["dev.counterfoil/idempotency"];
    assert_eq!(said["keyCarriers"], json!(["_meta", "header", "argument"]), "{answer}");
    assert_eq!(said["retentionMs"], 7 * 86_400_000);
    assert!(answer["result"]["capabilities"]["tools"].is_object());
}
