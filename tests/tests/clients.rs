//! The official clients of both eras against the real binary and the real provider: each test is one for each client.
//! Effects are counted at the provider, in two books.

use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::process::{Process, fixture};
use counterfoil_tests::proxy::Proxy;
use counterfoil_tests::shell::{counterfoil, signal, until};
use counterfoil_tests::stand::{AMOUNT, Class, Gateway, Project, Sandbox};
use counterfoil_tests::wire::{META_KEY, Said};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// A send may wait for the provider: what ends it here is a kill or a caller that leaves, not the gateway's patience.
const PATIENT: &str =
    "\n[tools.\"key.refunds.create\"]\nsend_timeout = \"5s\"\ntimeout = \"20s\"\ninline_limit = \"15s\"\n";

macro_rules! for_all {
    ($($name:ident),* $(,)?) => {
        for_all!(@each [$($name)*] typescript TypeScript);
        for_all!(@each [$($name)*] typescript_pinned TypeScriptPinned);
        for_all!(@each [$($name)*] typescript_legacy TypeScriptLegacy);
        for_all!(@each [$($name)*] typescript_1 TypeScript1);
        for_all!(@each [$($name)*] python Python);
        for_all!(@each [$($name)*] python_pinned PythonPinned);
        for_all!(@each [$($name)*] python_1 Python1);
        for_all!(@each [$($name)*] rust Rust);
        for_all!(@each [$($name)*] rust_legacy RustLegacy);
    };
    (@each [$($name:ident)*] $client:ident $kind:ident) => {
        mod $client {
            $(#[test] fn $name() -> anyhow::Result<()> { super::$name(super::Kind::$kind) })*
        }
    };
}

for_all! {
    lists_calls_and_shows_typed_errors,
    a_killed_gateway_is_one_effect_with_a_key_and_without,
    an_api_key_opens_and_its_revocation_closes,
    a_client_that_leaves_finds_its_answer_with_a_key_and_without,
    hears_that_the_list_of_tools_has_changed,
    lists_and_reads_resources_and_prompts,
}

/// Provider, gateway and one client object.
struct Stage {
    kind: Kind,
    sandbox: Sandbox,
    gateway: Gateway,
    worker: Worker,
    auth: Option<String>,
    project: Project,
    /// The provider's folder.
    _home: Project,
}

impl Stage {
    fn open(kind: Kind, config: &str) -> Result<Stage> {
        let home = Project::empty()?;
        let sandbox =
            Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
        let project = Project::with_classes_and(sandbox.addr, config)?;
        Stage::of(kind, home, sandbox, project)
    }

    fn of(kind: Kind, home: Project, sandbox: Sandbox, mut project: Project) -> Result<Stage> {
        let gateway = project.gateway(None)?;
        let worker = Worker::start(kind, project.path())?;
        Ok(Stage { kind, sandbox, gateway, worker, auth: None, project, _home: home })
    }

    fn order(&self) -> Order<'static> {
        Order { client: "host", url: "", auth: None, timeout: Duration::from_secs(20), abort_after: None }
    }

    fn call_as(&mut self, order: &Order<'_>, arguments: &Value, meta: &Value) -> Result<Said> {
        let order = Order { url: &self.gateway.url, auth: self.auth.as_deref(), ..order.clone() };
        self.worker.call(&order, &Class::Key.tool(), arguments, meta)
    }

    fn call(&mut self, arguments: &Value, meta: &Value) -> Result<Said> {
        self.call_as(&self.order(), arguments, meta)
    }

    fn list(&mut self) -> Result<Value> {
        let order = Order { url: &self.gateway.url, auth: self.auth.as_deref(), ..self.order() };
        self.worker.list(&order)
    }

    /// Waits until the provider has applied an order's refund.
    fn applied(&self, order: &str) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(10);
        while self.sandbox.count(Class::Key, order)?.0 == 0 {
            ensure!(Instant::now() < until, "the refund never reached the provider");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The ledger's operations, newest first.
    fn operations(&self) -> Result<Vec<Value>> {
        let (_, mut listed) = self.project.ask(&["ops", "list"])?;
        serde_json::from_value(listed["operations"].take()).context("the list of operations")
    }

    /// One effect, in both books of the provider; and so many operations were ever opened, all of them completed.
    fn once(&self, order: &str, operations: usize) -> Result<()> {
        let (effects, refunded) = self.sandbox.count(Class::Key, order)?;
        ensure!((effects, refunded) == (1, AMOUNT), "{effects} effects, {refunded} refunded");
        let all = self.operations()?;
        ensure!(all.len() == operations && all.iter().all(|o| o["state"] == "completed"), "{all:#?}");
        Ok(())
    }

    /// Makes a call whose effect is applied and never answered, and kills the gateway under it. The same address
    /// serves again afterwards.
    fn call_and_kill(&mut self, order: &str, meta: &Value) -> Result<()> {
        self.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "apply_then_hang" }))?;
        let given = Order { url: &self.gateway.url, ..self.order() };
        let pending =
            self.worker.begin_call(&given, &Class::Key.tool(), &Class::Key.arguments(order), meta)?;
        self.applied(order)?;
        self.gateway.process.kill();
        let said = self.worker.end_call(pending)?;
        ensure!(matches!(said, Said::Lost(_)), "the gateway was killed, but: {}", said.brief());
        self.gateway = self.project.gateway(None)?;
        Ok(())
    }
}

fn keyed(key: &str) -> Value {
    json!({ META_KEY: key })
}

/// The stored result, and the operation of the answer.
fn result(said: Said) -> Result<(String, Value)> {
    match said {
        Said::Result { stored, operation, is_error: false, .. } => Ok((stored, operation)),
        other => bail!("a result was expected, not {} ({other:?})", other.brief()),
    }
}

/// The error object and its sentence.
fn error(said: Said, wanted: &str) -> Result<(Value, String)> {
    match said {
        Said::Error { kind, error, text } if kind == wanted => Ok((error, text)),
        other => bail!("{wanted} was expected, not {} ({other:?})", other.brief()),
    }
}

fn member(value: &Value, name: &str) -> Result<String> {
    value[name].as_str().map(str::to_owned).with_context(|| format!("there is no {name} in {value}"))
}

fn lists_calls_and_shows_typed_errors(kind: Kind) -> Result<()> {
    let mut s = Stage::open(kind, PATIENT)?;
    lists_and_calls(&mut s).context("list and call")?;
    a_lost_reply_is_one_effect(&mut s).context("a lost reply")?;
    a_twin_shows_its_keys(&mut s).context("a twin")?;
    a_key_of_other_arguments_is_refused(&mut s).context("a key of other arguments")
}

fn lists_and_calls(s: &mut Stage) -> Result<()> {
    let listed = s.list()?;
    ensure!(listed["protocolVersion"] == s.kind.revision(), "{}", listed["protocolVersion"]);
    let tools = listed["tools"].as_array().context("no tools")?;
    for class in Class::ALL {
        ensure!(tools.iter().any(|t| t["name"] == json!(class.tool())), "{} is not listed", class.tool());
    }
    let tool = tools.iter().find(|t| t["name"] == json!(Class::Key.tool())).context("the tool is missing")?;
    ensure!(tool["inputSchema"]["properties"]["idempotency_key"]["type"] == "string", "{tool}");
    ensure!(tool["inputSchema"]["required"] == json!(["payment", "amount"]), "{tool}");
    let said = s.call(&Class::Key.arguments("one"), &json!({}))?;
    let Said::Result { value, operation, .. } = &said else { bail!("{said:?}") };
    let content = &value["structuredContent"];
    ensure!(content["object"] == "refund" && content["amount"] == AMOUNT, "{value}");
    ensure!(operation["replayed"] == json!(false) && operation["attempt"] == 1, "{operation}");
    s.once("one", 1)
}

fn a_lost_reply_is_one_effect(s: &mut Stage) -> Result<()> {
    s.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "apply_then_cut" }))?;
    let (first, operation) = result(s.call(&Class::Key.arguments("lost"), &keyed("k-lost"))?)?;
    s.once("lost", 2)?;
    let (_, op) = s.project.ask(&["ops", "show", &member(&operation, "id")?])?;
    ensure!(op["effects"][0]["sends"] == 2 && op["effects"][0]["state"] == "applied", "{op}");
    // The same call again is answered from the ledger.
    let (again, replayed) = result(s.call(&Class::Key.arguments("lost"), &keyed("k-lost"))?)?;
    ensure!(again == first, "{first}\n{again}");
    ensure!(replayed["replayed"] == json!(true) && replayed["id"] == operation["id"], "{replayed}");
    s.once("lost", 2)
}

fn a_twin_shows_its_keys(s: &mut Stage) -> Result<()> {
    let (first, operation) = result(s.call(&Class::Key.arguments("twin"), &json!({}))?)?;
    let (twin, text) = error(s.call(&Class::Key.arguments("twin"), &json!({}))?, "twin")?;
    let (retry, new) = (member(&twin, "retryKey")?, member(&twin, "newKey")?);
    // What a model reads holds both, and names them.
    ensure!(text.contains(&format!("retryKey: {retry}")), "{text}");
    ensure!(text.contains(&format!("newKey: {new}")), "{text}");
    s.once("twin", 3)?;
    // A model knows arguments only.
    let mut arguments = Class::Key.arguments("twin");
    arguments["idempotency_key"] = json!(retry);
    let (again, same) = result(s.call(&arguments, &json!({}))?)?;
    ensure!(first == again && operation["id"] == same["id"], "{first}\n{again}");
    s.once("twin", 3)?;
    arguments["idempotency_key"] = json!(new);
    let (second, other) = result(s.call(&arguments, &json!({}))?)?;
    ensure!(second != first && other["id"] != operation["id"], "{first}\n{second}");
    let (third, _) = result(s.call(&arguments, &json!({}))?)?;
    ensure!(second == third, "{second}\n{third}");
    let counts = s.sandbox.count(Class::Key, "twin")?;
    ensure!(counts == (2, 2 * AMOUNT), "a second one was wanted, once: {counts:?}");
    Ok(())
}

fn a_key_of_other_arguments_is_refused(s: &mut Stage) -> Result<()> {
    result(s.call(&Class::Key.arguments("mine"), &keyed("k-1"))?)?;
    let mut others = Class::Key.arguments("mine");
    others["amount"] = json!(AMOUNT + 1);
    let (conflict, text) = error(s.call(&others, &keyed("k-1"))?, "key_conflict")?;
    let new = member(&conflict, "newKey")?;
    ensure!(text.contains("nothing ran") && text.contains(&format!("newKey: {new}")), "{text}");
    s.once("mine", 5)?;
    result(s.call(&others, &keyed(&new))?)?;
    let counts = s.sandbox.count(Class::Key, "mine")?;
    ensure!(counts == (2, 2 * AMOUNT + 1), "{counts:?}");
    Ok(())
}

fn a_killed_gateway_is_one_effect_with_a_key_and_without(kind: Kind) -> Result<()> {
    let mut s = Stage::open(kind, PATIENT)?;
    s.call_and_kill("keyed", &keyed("k-killed"))?;
    let (first, operation) = result(s.call(&Class::Key.arguments("keyed"), &keyed("k-killed"))?)?;
    let (again, same) = result(s.call(&Class::Key.arguments("keyed"), &keyed("k-killed"))?)?;
    ensure!(first == again && operation["id"] == same["id"], "{first}\n{again}");
    s.once("keyed", 1)?;

    s.call_and_kill("bare", &json!({}))?;
    // Nothing was delivered, so the same call is the same operation.
    let (first, operation) = result(s.call(&Class::Key.arguments("bare"), &json!({}))?)?;
    // Its answer is delivered now: to have it again takes the key of the refusal.
    let (twin, _) = error(s.call(&Class::Key.arguments("bare"), &json!({}))?, "twin")?;
    ensure!(twin["operationId"] == operation["id"], "{twin} {operation}");
    let retry = keyed(&member(&twin, "retryKey")?);
    let (again, same) = result(s.call(&Class::Key.arguments("bare"), &retry)?)?;
    ensure!(first == again && operation["id"] == same["id"], "{first}\n{again}");
    s.once("bare", 2)
}

fn an_api_key_opens_and_its_revocation_closes(kind: Kind) -> Result<()> {
    let mut s = Stage::open(kind, &format!("\n[auth]\nmode = \"api-key\"\n{PATIENT}"))?;
    let arguments = Class::Key.arguments("paid");
    let refused = |said: Said| match said {
        Said::Rpc { .. } | Said::Lost(_) => Ok(()),
        other => bail!("a refusal was expected, not {}", other.brief()),
    };
    refused(s.call(&arguments, &keyed("k-1"))?)?;
    ensure!(s.sandbox.count(Class::Key, "paid")?.0 == 0, "a call without an API key had an effect");
    let made = counterfoil(&s.project, &["api-keys", "create", "--principal", "agent", "--json"])?;
    let made = made.exits(0)?.json()?;
    s.auth = Some(format!("Bearer {}", member(&made, "key")?));
    result(s.call(&arguments, &keyed("k-1"))?)?;
    s.once("paid", 1)?;
    let (_, listed) = s.project.ask(&["ops", "list", "--principal", "agent"])?;
    ensure!(listed["operations"].as_array().is_some_and(|o| o.len() == 1), "{listed}");
    counterfoil(&s.project, &["api-keys", "revoke", &member(&made, "id")?])?.exits(0)?;
    refused(s.call(&arguments, &keyed("k-1"))?)?;
    refused(s.call(&Class::Key.arguments("other"), &keyed("k-2"))?)?;
    ensure!(s.sandbox.count(Class::Key, "other")?.0 == 0, "a revoked API key had an effect");
    Ok(())
}

fn a_client_that_leaves_finds_its_answer_with_a_key_and_without(kind: Kind) -> Result<()> {
    let mut s = Stage::open(kind, PATIENT)?;
    // In between, to see what a client says when it leaves.
    let proxy = Proxy::start(s.gateway.addr)?;
    s.gateway.url = proxy.url();
    // Connected before the clock runs.
    s.list()?;
    let impatient = Order { timeout: Duration::from_millis(800), ..s.order() };
    goes_on(&mut s, "timeout", &impatient, &keyed("k-slow"), 1).context("the client's own limit")?;
    s.list()?;
    proxy.forget();
    let leaving = Order { abort_after: Some(Duration::from_millis(800)), ..s.order() };
    goes_on(&mut s, "abort", &leaving, &json!({}), 2).context("the caller cancels")?;
    // In the legacy era a message cancels, in the modern one the end of the connection.
    let said = proxy.requests().iter().any(|r| r == "POST notifications/cancelled");
    ensure!(said == kind.is_legacy(), "{:?}", proxy.requests());
    Ok(())
}

/// The provider takes its time, and the client is gone before the answer: the operation goes on, and the same call
/// joins it.
fn goes_on(s: &mut Stage, name: &str, order: &Order<'_>, meta: &Value, operations: usize) -> Result<()> {
    s.sandbox.rule(&json!({ "on": Class::Key.on(), "do": "delay", "delay_ms": 3000 }))?;
    let arguments = Class::Key.arguments(name);
    let said = s.call_as(order, &arguments, meta)?;
    ensure!(matches!(said, Said::Lost(_)), "the client should have left: {}", said.brief());
    ensure!(s.sandbox.count(Class::Key, name)?.0 == 0, "the provider was faster than the client");
    let all = s.operations()?;
    ensure!(all.len() == operations && all[0]["state"] == "running", "it should go on: {all:#?}");
    result(s.call(&arguments, meta)?)?;
    s.once(name, operations)?;
    let op = s.operations()?.swap_remove(0);
    ensure!(op["attempt"] == 1 && op["effects"][0]["sends"] == 1 && op["joined"] == 1, "{op}");
    Ok(())
}

/// Where clients hear of it: `subscriptions/listen`, or the GET stream of the legacy era. Two of them open that only
/// where the server minted a session, so without one they find the new list when they ask for it.
fn hears_that_the_list_of_tools_has_changed(kind: Kind) -> Result<()> {
    hears(kind, "auto", !kind.hears_by_session()).context("no session is minted")?;
    if kind.is_legacy() { hears(kind, "always", true).context("a session is minted") } else { Ok(()) }
}

fn hears(kind: Kind, sessions: &str, wanted: bool) -> Result<()> {
    let home = Project::empty()?;
    let sandbox =
        Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
    let project = Project::with_classes(sandbox.addr)?;
    project.server("legacy_sessions", &json!(sessions).to_string())?;
    let mut s = Stage::of(kind, home, sandbox, project)?;
    s.list()?;
    let url = s.gateway.url.clone();
    let order = Order { url: &url, ..s.order() };
    s.worker.subscribe(&order)?;
    let manifest = s.project.path().join("integrations/key.toml");
    let reload = |methods: &[&str]| -> Result<()> {
        std::fs::write(&manifest, Class::Key.manifest_of(s.sandbox.addr, methods))?;
        signal(&s.gateway, "HUP")
    };
    // A GET stream is opened in its own time; a change from before it is not told, and another comes.
    let mut heard = false;
    for methods in [["create", "second"].as_slice(), &["create"], &["create", "second"]] {
        reload(methods)?;
        let end = Instant::now() + Duration::from_millis(if wanted { 3000 } else { 700 });
        while !heard && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            heard = !s.worker.seen(&order)?.is_empty();
        }
        if heard || !wanted {
            break;
        }
    }
    ensure!(heard == wanted, "heard of the change: {heard}");
    reload(&["create", "third"])?;
    let third = json!(Class::Key.tool_of("third"));
    until("the new tool is listed", || {
        // A client may keep a list for as long as it was told; a new one has none.
        s.worker.forget("another")?;
        let order = Order { client: "another", ..order.clone() };
        let listed = s.worker.list(&order)?;
        Ok(listed["tools"].as_array().is_some_and(|tools| tools.iter().any(|t| t["name"] == third)))
    })
}

/// Of a server that has some: the one that the conformance suite judges.
fn lists_and_reads_resources_and_prompts(kind: Kind) -> Result<()> {
    let home = Project::empty()?;
    let mut server = Process::start(&mut Command::new(fixture()?), &home.path().join("fixture.log"))?;
    let url = member(&server.ready()?, "url")?;
    let mut worker = Worker::start(kind, home.path())?;
    let order =
        Order { client: "host", url: &url, auth: None, timeout: Duration::from_secs(20), abort_after: None };
    let got = worker.resources(&order)?;
    let content = |uri: &str| {
        let all = got["contents"].as_array().into_iter().flatten();
        all.into_iter().find(|c| c["uri"] == json!(uri)).cloned().unwrap_or_default()
    };
    let listed = got["resources"].as_array().context("resources")?;
    for uri in ["test://static-text", "test://static-binary", "test://watched-resource"] {
        ensure!(listed.iter().any(|r| r["uri"] == json!(uri)), "{uri} is not listed: {got}");
        ensure!(content(uri)["text"].is_string() || content(uri)["blob"].is_string(), "{uri}: {got}");
    }
    ensure!(content("test://static-text")["text"].as_str().is_some_and(|t| !t.is_empty()), "{got}");
    ensure!(
        content("test://static-binary")["blob"].as_str().is_some_and(|b| b.starts_with("iVBOR")),
        "{got}"
    );
    let prompts = worker.prompts(&order)?;
    let names = prompts["prompts"].as_array().context("prompts")?;
    ensure!(names.iter().any(|p| p["name"] == "test_simple_prompt"), "{prompts}");
    Ok(())
}
