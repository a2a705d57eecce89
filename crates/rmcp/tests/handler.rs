//! A handler written by hand, with everything that a handler may do: leave its caller waiting, refuse, ask, panic, take too
//! long. It says nothing of its tools but by listing them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{Served, call, error, operation, result, serve, text, until};
use counterfoil_rmcp::ledger::memory::MemoryStore;
use counterfoil_rmcp::ledger::store::{Attention, Query};
use counterfoil_rmcp::ledger::{Execution, Receipt, SystemEnv, Time, Verdict};
use counterfoil_rmcp::{Durable, Found, Ledgered, META_EFFECT_KEY, Recovery};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

#[derive(Clone)]
struct Work {
    ran: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    /// One permit lets one run of `slow` end.
    gate: Arc<Semaphore>,
    seen: Arc<Mutex<Vec<(Ledgered, Value)>>>,
}

impl Work {
    fn new() -> Work {
        Work {
            ran: Arc::default(),
            ended: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            seen: Arc::default(),
        }
    }
    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }
    async fn has_begun(&self, runs: usize) {
        until(async || (self.ran() >= runs).then_some(())).await;
    }
}

const TOOLS: [&str; 6] = ["slow", "refuses", "asks", "panics", "panics_once", "reads"];

impl ServerHandler for Work {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let Value::Object(schema) = json!({ "type": "object" }) else { unreachable!() };
        let schema = Arc::new(schema);
        let tools = TOOLS.map(|name| {
            Tool::new(name, name, schema.clone())
                .with_annotations(ToolAnnotations::new().read_only(name == "reads"))
        });
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(ledgered) = context.extensions.get::<Ledgered>() {
            let of_meta = context.meta.get(META_EFFECT_KEY).cloned().unwrap_or_default();
            self.seen.lock().unwrap().push((ledgered.clone(), of_meta));
        }
        let run = self.ran.fetch_add(1, Ordering::SeqCst) + 1;
        let said = |text: String| Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        let answer = match &*request.name {
            "slow" => {
                self.gate.acquire().await.unwrap().forget();
                said(format!("run {run} of {}", json!(request.arguments)))
            }
            "refuses" => Err(ErrorData::invalid_params(format!("run {run} refused"), None)),
            "asks" => match &request.input_responses {
                None => Ok(InputRequiredResult::from_request_state("half way").into()),
                Some(given) => said(format!("run {run} with {}", json!(given))),
            },
            "panics_once" if run > 1 => said(format!("run {run}")),
            "panics" | "panics_once" => panic!("as it was asked to"),
            _ => said(format!("run {run}")),
        };
        self.ended.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

fn durable(work: &Work) -> Durable<Work> {
    let store = MemoryStore::new(Arc::new(SystemEnv), Time(1_700_000_000_000), Attention::default());
    Durable::new(work.clone(), Arc::new(store))
}

async fn states(served: &Served<Arc<Durable<Work>>>) -> Vec<Execution> {
    let all = served.durable.ledger().list(&Query { limit: 100, ..Query::default() }).await.unwrap();
    all.into_iter().map(|op| op.execution).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_leaves_in_the_middle_gets_the_result_when_it_comes_again() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    let asked = call("slow", json!({ "n": 1 }));
    asked.send_and_leave(served.address, work.has_begun(1)).await;
    // The handler is not cancelled, and ends without anybody there.
    until(async || {
        let all = served.durable.ledger().list(&Query { limit: 10, ..Query::default() }).await.unwrap();
        all[0].caller.gone.then_some(())
    })
    .await;
    work.gate.add_permits(1);
    let again = asked.send(served.address).await;
    assert_eq!(text(&again), r#"run 1 of {"n":1}"#);
    assert_eq!(operation(&again)["joinedBy"], "fingerprint");
    assert_eq!((work.ran(), work.ended.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_one_key_at_once_share_one_run() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    let asked = call("slow", json!({})).key("k");
    let release = async {
        work.has_begun(1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        work.gate.add_permits(5);
    };
    let (one, two, three, ()) = tokio::join!(
        asked.send(served.address),
        asked.send(served.address),
        asked.send(served.address),
        release
    );
    assert_eq!((result(&one), result(&two)), (result(&two), result(&three)));
    assert_eq!(work.ran(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_a_result_unless_the_author_says_that_nothing_ran() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    let asked = call("refuses", json!({})).key("k");
    for _ in 0..2 {
        let answer = asked.send(served.address).await;
        assert_eq!(answer["error"]["message"], "run 1 refused", "{answer}");
        assert_eq!(answer["error"]["code"], -32602);
    }
    assert_eq!(states(&served).await, [Execution::Completed]);

    let work = Work::new();
    let served = serve(durable(&work).errors_mean_nothing_ran()).await;
    for run in 1..=2 {
        let answer = asked.send(served.address).await;
        assert_eq!(answer["error"]["message"], format!("run {run} refused"), "{answer}");
    }
    assert!(matches!(states(&served).await[..], [Execution::Failed { .. }]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_ask_and_then_runs_once_with_the_answer() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    let asked = call("asks", json!({}));
    let question = asked.send(served.address).await;
    assert_eq!(question["result"]["resultType"], "input_required", "{question}");
    let mut answered = call("asks", json!({}));
    answered.input = Some(json!({ "sure": { "action": "accept" } }));
    answered.state = question["result"]["requestState"].as_str().map(str::to_owned);
    let first = answered.send(served.address).await;
    assert_eq!(text(&first), r#"run 2 with {"sure":{"action":"accept"}}"#);
    // Sent again, the answer is no second call.
    assert_eq!(error(&answered.send(served.address).await)["kind"], "twin");
    assert_eq!(work.ran(), 2);
    assert_eq!(states(&served).await, [Execution::Completed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_and_a_run_past_its_limit_are_in_doubt() {
    for (tool, why) in [("panics", "failed unexpectedly"), ("slow", "time limit")] {
        let work = Work::new();
        let served = serve(durable(&work).time_limit(Duration::from_millis(300))).await;
        let asked = call(tool, json!({})).key("k");
        for _ in 0..2 {
            let answer = asked.send(served.address).await;
            assert_eq!(error(&answer)["kind"], "in_doubt", "{answer}");
            assert!(text(&answer).contains(why), "{answer}");
        }
        // What took too long was dropped.
        work.gate.add_permits(1);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!((work.ran(), work.ended.load(Ordering::SeqCst)), (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_s_word_ends_a_doubt() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    let asked = call("panics_once", json!({})).key("k");
    let doubt = asked.send(served.address).await;
    let id = error(&doubt)["operationId"].as_str().unwrap().parse().unwrap();
    served.durable.ledger().decide(id, "ann".into(), Verdict::NotApplied).await.unwrap();
    // It did not happen: the same call, made again, runs.
    assert_eq!(text(&asked.send(served.address).await), "run 2");

    let asked = call("panics", json!({})).key("k");
    let doubt = asked.send(served.address).await;
    let id = error(&doubt)["operationId"].as_str().unwrap().parse().unwrap();
    let word = Verdict::Applied(Receipt(b"{}".to_vec()));
    served.durable.ledger().decide(id, "ann".into(), word).await.unwrap();
    assert!(text(&asked.send(served.address).await).contains("as an operator found"));
    assert_eq!(work.ran(), 3);
}

/// A handler around a durable one that has no patience.
struct Impatient(Durable<Work>);

impl ServerHandler for Impatient {
    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let answer =
            tokio::time::timeout(Duration::from_millis(100), self.0.call_tool(request, context)).await;
        answer.unwrap_or_else(|_| Err(ErrorData::internal_error("no patience", None)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_where_whoever_wraps_it_drops_the_call() {
    let work = Work::new();
    let served = common::serve_as_is(Arc::new(Impatient(durable(&work).start()))).await;
    let asked = call("slow", json!({})).key("k");
    let answer = asked.send(served.address).await;
    assert_eq!(answer["error"]["message"], "no patience", "{answer}");
    work.gate.add_permits(1);
    until(async || (work.ended.load(Ordering::SeqCst) == 1).then_some(())).await;
    assert_eq!(text(&asked.send(served.address).await), "run 1 of {}");
    assert_eq!(work.ran(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_recovery_named_a_handler_is_run_again_and_told_so() {
    for recovery in [Recovery::Key { retained_for: None }, Recovery::Natural] {
        let work = Work::new();
        let served = serve(durable(&work).recovery("panics_once", recovery)).await;
        let asked = call("panics_once", json!({})).key("k").meta(META_EFFECT_KEY, "made up".into());
        let answer = asked.send(served.address).await;
        assert_eq!(text(&answer), "run 2");
        let seen = work.seen.lock().unwrap().clone();
        let [(first, of_meta), (second, again)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(first.effect_key, second.effect_key);
        assert_eq!([of_meta, again], [first.effect_key.as_str(); 2]);
        assert_eq!((first.replay, first.has_caller), (false, true));
        assert_eq!((second.replay, second.has_caller), (true, false));
        assert_eq!(operation(&answer)["id"], second.operation.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_look_up_finds_is_the_result() {
    let work = Work::new();
    let find = |what: counterfoil_rmcp::LookUp| async move {
        let text = format!("found {} by {}", what.tool, what.effect_key);
        Found::Happened(Box::new(CallToolResult::success(vec![ContentBlock::text(text)])))
    };
    let served = serve(durable(&work).recovery("panics", Recovery::lookup(find))).await;
    let answer = call("panics", json!({})).send(served.address).await;
    let key = work.seen.lock().unwrap()[0].0.effect_key.clone();
    assert_eq!(text(&answer), format!("found panics by {key}"));
    assert_eq!(work.ran(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn principals_share_nothing_and_nobody_in_particular_is_refused() {
    let work = Work::new();
    work.gate.add_permits(10);
    let who =
        |parts: Option<&http::request::Parts>| parts?.headers.get("x-user")?.to_str().ok().map(str::to_owned);
    let served = serve(durable(&work).principal(who)).await;
    let of = |user: &str| call("slow", json!({})).key("k").header("X-User", user);
    let ann = of("ann").send(served.address).await;
    let bob = of("bob").send(served.address).await;
    assert_ne!(operation(&ann)["id"], operation(&bob)["id"]);
    // The id of another's operation is as good as one that may still be on its way.
    let stolen = call("slow", json!({})).key(operation(&ann)["id"].as_str().unwrap()).header("X-User", "bob");
    assert_eq!(error(&stolen.send(served.address).await)["kind"], "admission_unknown");
    let nobody = call("slow", json!({})).key("k").send(served.address).await;
    assert!(nobody["error"]["message"].as_str().unwrap().contains("nothing ran"), "{nobody}");
    assert_eq!(work.ran(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_are_believed_only_where_the_author_says_so() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    assert_eq!(text(&call("reads", json!({})).send(served.address).await), "run 1");
    assert_eq!(error(&call("reads", json!({})).send(served.address).await)["kind"], "twin");
    let work = Work::new();
    let served = serve(durable(&work).trust_annotations()).await;
    for run in 1..=2 {
        let answer =
            call("reads", json!({})).meta(META_EFFECT_KEY, "made up".into()).send(served.address).await;
        assert_eq!(text(&answer), format!("run {run}"));
    }
    assert!(work.seen.lock().unwrap().is_empty());
    assert!(states(&served).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_tool_leaves_nothing_behind() {
    let work = Work::new();
    let served = serve(durable(&work)).await;
    let answer = call("sl0w", json!({})).key("k").send(served.address).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(states(&served).await.is_empty());
    assert_eq!(work.ran(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_most_at_once_a_new_call_is_told_to_come_again() {
    let work = Work::new();
    let served = serve(durable(&work).most_at_once(1)).await;
    let first = call("slow", json!({ "n": 1 }));
    let second = async {
        work.has_begun(1).await;
        let told = call("slow", json!({ "n": 2 })).send(served.address).await;
        work.gate.add_permits(1);
        told
    };
    let (first, told) = tokio::join!(first.send(served.address), second);
    assert_eq!(error(&told)["kind"], "unavailable");
    assert_eq!(text(&first), r#"run 1 of {"n":1}"#);
    assert_eq!(states(&served).await.len(), 1);
}
