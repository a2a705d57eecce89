//! A user's session from an API's description to one effect: import, connect a credential, serve, list, call, lose the
//! answer, call again. And what was recorded stays as it is, whatever is imported, read anew or started since.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "user_session/door.rs"]
mod door;

use anyhow::{Context, Result, bail, ensure};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::process::project;
use counterfoil_tests::shell::{counterfoil, signal, until};
use counterfoil_tests::stand::{AMOUNT, Class, Gateway, Project, Sandbox, payment};
use counterfoil_tests::wire::{META_KEY, Said};
use door::Door;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

/// The credential. It is nowhere but in its store, which is encrypted.
const CANARY: &str = "CANARY_5e1f77_of_the_shop";
const TOOL: &str = "shop_refunds_create";
const LIMIT: Duration = Duration::from_secs(8);

struct User {
    project: Project,
    sandbox: Sandbox,
    door: Door,
    home: Project,
}

impl User {
    /// A provider behind its door, and an empty folder.
    fn begin() -> Result<User> {
        let home = Project::empty()?;
        let log = home.path().join("provider.log");
        let sandbox = Sandbox::start(&home.path().join("provider"), &log, "127.0.0.1:0")?;
        let door = Door::before(sandbox.addr, CANARY)?;
        let mut project = Project::empty()?;
        let store = home.path().join("credentials").display().to_string();
        project.environment.push(("COUNTERFOIL_CREDENTIALS".into(), store));
        std::fs::copy(project_file("tests/tests/user_session/shop.yaml"), project.path().join("shop.yaml"))?;
        Ok(User { project, sandbox, door, home })
    }

    fn run(&self, args: &[&str]) -> Result<Value> {
        counterfoil(&self.project, &[args, &["--json"]].concat())?.exits(0)?.json()
    }

    fn import(&self) -> Result<Value> {
        let url = format!("http://{}", self.door.addr);
        Ok(self.run(&["import", "openapi", "shop.yaml", "--name", "shop", "--sandbox-url", &url])?["imported"][0].take())
    }

    fn manifest(&self, change: impl FnOnce(&str) -> String) -> Result<()> {
        let file = self.project.path().join("integrations/shop.toml");
        let text = std::fs::read_to_string(&file)?;
        let new = change(&text);
        ensure!(new != text, "nothing to change in\n{text}");
        Ok(std::fs::write(file, new)?)
    }

    /// Imports, names it in the configuration, and connects the credential.
    fn prepare(&self) -> Result<()> {
        let imported = self.import()?;
        ensure!(
            imported["report"]["methods"] == 4 && imported["report"]["skipped"] == json!([]),
            "{imported}"
        );
        let config = "[server]\nname = \"user\"\n\n[ledger]\nlease = \"500ms\"\n\n[[integration]]\nname = \"shop\"\nmanifest = \"integrations/shop.toml\"\n";
        std::fs::write(self.project.path().join("counterfoil.toml"), config)?;
        self.manifest(|text| text.replacen("\"${env:SHOP_TOKEN}\"", "\"store\"", 1))?;
        let mut command = self.project.command(&["auth", "connect", "shop", "--stdin", "--json"])?;
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input")?.write_all(format!("{CANARY}\n").as_bytes())?;
        let out = child.wait_with_output()?;
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(out.status.success(), "{said}");
        ensure!(!said.contains(CANARY), "it tells the secret: {said}");
        Ok(())
    }

    /// One effect of an order in both books, and every request for it was the same one.
    fn once(&self, order: &str) -> Result<()> {
        let (effects, refunded) = self.sandbox.count(Class::Key, order)?;
        ensure!((effects, refunded) == (1, AMOUNT), "{order}: {effects} effects, {refunded} refunded");
        let mut sent: Vec<_> =
            self.door.with(&format!("\"{order}\"")).into_iter().map(|v| (v.key, v.body)).collect();
        sent.dedup();
        ensure!(sent.len() == 1 && sent[0].0.is_some(), "{order} went out as {sent:?}");
        Ok(())
    }

    /// The secret is in no file of the project, the store or the provider.
    fn nothing_leaked(&self) -> Result<()> {
        for folder in [self.project.path(), self.home.path()] {
            let found = std::process::Command::new("grep").args(["-rlaF", CANARY]).arg(folder).output()?;
            ensure!(found.stdout.is_empty(), "the secret is in {}", String::from_utf8_lossy(&found.stdout));
        }
        Ok(())
    }
}

fn project_file(path: &str) -> std::path::PathBuf {
    project().join(path)
}

fn refund(order: &str) -> Value {
    json!({ "payment": payment(order), "amount": AMOUNT, "order_id": order })
}

/// A call of the official client, again as long as there is no answer or one that says to come again.
fn call(worker: &mut Worker, gateway: &Gateway, order: &str, lost: &mut usize) -> Result<Said> {
    let at = Order { client: "host", url: &gateway.url, auth: None, timeout: LIMIT, abort_after: None };
    for _ in 0..20 {
        match worker.call(&at, TOOL, &refund(order), &json!({ META_KEY: order }))? {
            Said::Lost(_) => *lost += 1,
            Said::Error { kind, .. } if kind == "still_running" || kind == "unavailable" => {}
            said => return Ok(said),
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    bail!("no answer for {order}")
}

fn operation(said: &Said) -> Result<(&str, &Value, bool)> {
    let Said::Result { operation, stored, is_error: false, .. } = said else { bail!("{said:?}") };
    Ok((stored, &operation["id"], operation["replayed"] == true))
}

#[test]
fn from_a_description_to_one_effect() -> Result<()> {
    let mut user = User::begin()?;
    user.prepare()?;
    let mut gateway = user.project.gateway(None)?;
    let mut worker = Worker::start(Kind::TypeScript, user.project.path())?;
    let at = Order { client: "host", url: &gateway.url, auth: None, timeout: LIMIT, abort_after: None };
    let listed = worker.list(&at)?;
    let names: Vec<&str> =
        listed["tools"].as_array().context("tools")?.iter().filter_map(|t| t["name"].as_str()).collect();
    ensure!(
        names.iter().filter(|n| n.starts_with("shop_")).count() == 4 && names.contains(&TOOL),
        "{names:?}"
    );
    let tool =
        listed["tools"].as_array().and_then(|t| t.iter().find(|t| t["name"] == TOOL)).context("the tool")?;
    ensure!(
        tool["inputSchema"]["properties"].get("Idempotency-Key").is_none(),
        "the carrier is the gateway's: {tool}"
    );

    // The provider acts, and its answer is lost on the way to the gateway: nobody notices.
    user.sandbox.rule(&json!({ "on": "POST /v1/refunds", "do": "apply_then_cut" }))?;
    let mut lost = 0;
    let first = call(&mut worker, &gateway, "lost_answer", &mut lost)?;
    let (stored, id, replayed) = operation(&first)?;
    ensure!(!replayed && lost == 0);
    user.once("lost_answer")?;
    ensure!(user.door.with("lost_answer").len() == 2, "it was sent again under the same key");
    let again = call(&mut worker, &gateway, "lost_answer", &mut lost)?;
    ensure!(operation(&again)? == (stored, id, true), "{again:?}");
    user.once("lost_answer")?;

    // The gateway is killed with the provider's effect made and the answer not written; the client calls again.
    gateway.process.kill();
    drop(gateway);
    let mut doomed = user.project.gateway(Some("send.after"))?;
    let at = Order { client: "host", url: &doomed.url, auth: None, timeout: LIMIT, abort_after: None };
    let killed = worker.call(&at, TOOL, &refund("killed"), &json!({ META_KEY: "killed" }))?;
    ensure!(matches!(killed, Said::Lost(_)), "{killed:?}");
    ensure!(doomed.process.wait(LIMIT).is_some(), "it was not killed");
    drop(doomed);
    let gateway = user.project.gateway(None)?;
    let mut lost = 0;
    let said = call(&mut worker, &gateway, "killed", &mut lost)?;
    let (stored, id, _) = operation(&said)?;
    user.once("killed")?;
    let again = call(&mut worker, &gateway, "killed", &mut lost)?;
    ensure!(operation(&again)? == (stored, id, true), "{again:?}");
    user.once("killed")?;
    ensure!(user.door.all().iter().all(|v| v.admitted), "each request had its credential");

    // What a user looks at afterwards.
    let id = id.as_str().context("an id")?;
    let shown = user.run(&["ops", "show", id])?;
    ensure!(shown.to_string().contains("shop.refunds.create"), "{shown}");
    let info = user.run(&["info", "shop.refunds.create"])?;
    ensure!(info["safety"]["recovery"] == json!({ "value": "key", "from": "description" }), "{info}");
    let safety = user.run(&["methods", "--safety"])?;
    let of = |id: &str| {
        let all = safety["methods"].as_array().into_iter().flatten();
        all.clone().find(|m| m["id"] == id).cloned().with_context(|| format!("{id} in {safety}"))
    };
    let refunds = of("shop.refunds.create")?;
    ensure!(
        refunds["effect"]["value"] == "mutating" && refunds["keyCarrier"]["from"] == "description",
        "{refunds}"
    );
    ensure!(refunds["undecided"] == false && of("shop.messages.send")?["undecided"] == true, "{safety}");
    ensure!(of("shop.payments.get")?["effect"]["value"] == "read", "{safety}");
    let status = user.run(&["auth", "status"])?;
    ensure!(status["connected"][0]["account"] == "shop" && status["missing"] == json!([]), "{status}");
    for told in [&shown, &info, &safety, &status] {
        ensure!(!told.to_string().contains(CANARY), "{told}");
    }
    user.nothing_leaked()
}

/// An operation that is open while its method is imported anew from a changed description, its gateway reads everything
/// again, is killed and started: it goes out as it was recorded, under its key.
#[test]
fn what_is_recorded_outlives_import_reload_and_restart() -> Result<()> {
    let mut user = User::begin()?;
    user.prepare()?;
    let mut gateway = user.project.gateway(None)?;
    let mut worker = Worker::start(Kind::TypeScript, user.project.path())?;
    // It answers nothing for now: the operation stays open.
    user.sandbox.rule(&json!({ "on": "POST /v1/refunds", "do": "hang", "times": 1000 }))?;
    let at = Order { client: "host", url: &gateway.url, auth: None, timeout: LIMIT, abort_after: None };
    let pending = worker.begin_call(&at, TOOL, &refund("open"), &json!({ META_KEY: "open" }))?;
    until("it was sent", || Ok(!user.door.with("\"open\"").is_empty()))?;
    let recorded = user.door.with("\"open\"")[0].clone();
    let plan = |user: &User| -> Result<Value> {
        let all = user.run(&["ops", "list"])?;
        let id =
            all["operations"][0]["id"].as_str().with_context(|| format!("no operation in {all}"))?.to_owned();
        let shown = user.run(&["ops", "show", &id])?;
        Ok(shown["effects"].clone())
    };
    let before = plan(&user)?;

    // The provider changes its API: another path, another field, a new parameter.
    let file = user.project.path().join("shop.yaml");
    let changed = std::fs::read_to_string(&file)?.replace("/v1/refunds:", "/natural/v1/refunds:").replace(
        "order_id: { type: string }",
        "order_id: { type: string }\n              reason: { type: string, default: other }",
    );
    std::fs::write(&file, changed)?;
    let imported = user.import()?;
    ensure!(imported["report"]["changes"]["changed"].to_string().contains("refunds.create"), "{imported}");
    signal(&gateway, "HUP")?;
    until("the new schema is served", || Ok(worker_list(&gateway)?.to_string().contains("\"reason\"")))?;
    gateway.process.kill();
    drop(gateway);
    let cut = worker.end_call(pending)?;
    ensure!(matches!(cut, Said::Lost(_)), "{cut:?}");
    user.sandbox.disarm()?;
    let gateway = user.project.gateway(None)?;
    let mut lost = 0;
    let said = call(&mut worker, &gateway, "open", &mut lost)?;
    operation(&said)?;
    user.once("open")?;
    for sent in user.door.with("\"open\"") {
        ensure!(
            (&sent.line, &sent.key, &sent.body) == (&recorded.line, &recorded.key, &recorded.body),
            "{recorded:?}, then {sent:?}"
        );
    }
    let after = plan(&user)?;
    let effect = |plan: &Value, name: &str| plan[0][name].clone();
    for name in ["key", "intent", "strategy", "intendedAt"] {
        ensure!(!effect(&before, name).is_null(), "{name} is not told: {before}");
        ensure!(effect(&before, name) == effect(&after, name), "{name}: {before} is now {after}");
    }
    user.nothing_leaked()
}

/// The tools, asked for by hand: the client is waiting for its call.
fn worker_list(gateway: &Gateway) -> Result<Value> {
    Ok(counterfoil_tests::wire::ask(gateway.addr, "tools/list", None, json!({}))?)
}
