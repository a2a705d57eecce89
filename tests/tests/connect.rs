//! Credentials that callers have of their own: asked for by a page, given by who was asked and nobody else, sent with that
//! caller's calls and seen nowhere.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "connect/answers.rs"]
mod answers;
#[allow(dead_code, reason = "it plays for the tests of the user's own credentials, too")]
#[path = "auth_connect/authority.rs"]
mod authority;
#[path = "connect/browser.rs"]
mod browser;
#[path = "connect/ear.rs"]
mod ear;
#[path = "connect/oauth.rs"]
mod oauth;
#[path = "connect/person.rs"]
mod person;
#[allow(dead_code, reason = "as the authority")]
#[path = "auth_connect/stage.rs"]
mod stage;
#[allow(dead_code, reason = "as the authority")]
#[path = "auth_connect/wrong.rs"]
mod wrong;

use anyhow::{Context, Result, bail, ensure};
use browser::{Browser, Form};
use counterfoil_tests::bad_input::book::{book, misquotes};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::cluster::{self, Cluster};
use counterfoil_tests::http;
use counterfoil_tests::stand::{Class, Gateway, Project, Sandbox};
use counterfoil_tests::wire::{self, Call, Era, META_KEY, Said};
use ear::Ear;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The tool of the integration under test, and what its users' credentials begin with.
const TOOL: &str = "key_refunds_create";
const CANARY: &str = "CANARY_7c41f0";
const SECONDS: Duration = Duration::from_secs(20);

fn secret(principal: &str) -> String {
    format!("{CANARY}_{principal}")
}

/// A provider that hears who is speaking, and a project whose callers have credentials of their own for it.
struct Stage {
    sandbox: Sandbox,
    ear: Ear,
    project: Project,
    keys: HashMap<String, String>,
    _home: Project,
}

impl Stage {
    fn open(more: &str) -> Result<Stage> {
        let home = Project::empty()?;
        let sandbox =
            Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
        let ear = Ear::before(sandbox.addr)?;
        let project = Project::with_classes_and(ear.addr, more)?;
        let file = project.path().join("integrations/key.toml");
        let manifest = std::fs::read_to_string(&file)?;
        let auth = "[auth]\nkind = \"bearer\"\nper = \"principal\"\n\n[execution_policy.idempotency]\n";
        let read =
            "\n[methods.\"refunds.list\"]\nhttp = \"GET /v1/refunds\"\nparams = { payment = \"query\" }\n";
        std::fs::write(&file, manifest.replacen("[execution_policy.idempotency]\n", auth, 1) + read)?;
        Ok(Stage { sandbox, ear, project, keys: HashMap::new(), _home: home })
    }

    fn people(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            let make = || self.project.ask(&["api-keys", "create", "--principal", name]);
            // A replica that the machine held up for longer than its lease says so, and that trying again is safe.
            let (code, made) =
                (0..10).map(|_| make()).find(|m| !matches!(m, Ok((5, _)))).context("keys")??;
            ensure!(code == 0, "{made}");
            let key = made["key"].as_str().context("the key")?.to_owned();
            self.keys.insert((*name).to_owned(), key);
        }
        Ok(())
    }

    fn bearer(&self, principal: &str) -> String {
        format!("Bearer {}", self.keys[principal])
    }

    /// One effect, in both books, and it was sent as this principal's.
    fn once(&self, order: &str, principal: &str) -> Result<()> {
        let (effects, refunded) = self.sandbox.count(Class::Key, order)?;
        ensure!(
            (effects, refunded) == (1, counterfoil_tests::stand::AMOUNT),
            "{order}: {effects} {refunded}"
        );
        let heard = self.ear.of(order);
        ensure!(!heard.is_empty(), "nothing was sent for {order}");
        let own = format!("Bearer {}", secret(principal));
        ensure!(heard.iter().all(|h| *h == own), "{order} of {principal} went out as {heard:?}");
        Ok(())
    }
}

/// A call by hand, of a client that can't be asked anything.
fn plain(at: SocketAddr, tool: &str, arguments: Value, auth: Option<String>) -> Said {
    let call = Call { auth, ..Call::new(tool, arguments) };
    wire::call(at, SECONDS, &call)
}

/// The link that the error of such a client holds.
fn link(said: &Said) -> Result<String> {
    let Said::Error { kind, error, text } = said else { bail!("{said:?}") };
    ensure!(kind == "credential_required", "{error}");
    let advice = error["advice"].as_str().unwrap_or_default();
    ensure!(text.contains(advice), "{text}");
    let link = advice.split_whitespace().find(|w| w.starts_with("http")).context("no link")?;
    Ok(link.to_owned())
}

/// The same call again, as long as a replica says that nothing ran and that this is safe.
fn again(mut call: impl FnMut() -> Result<Said>) -> Result<Said> {
    for _ in 0..20 {
        match call()? {
            Said::Error { kind, .. } if kind == "unavailable" => {
                std::thread::sleep(Duration::from_millis(300))
            }
            said => return Ok(said),
        }
    }
    bail!("unavailable all the time")
}

fn result(said: &Said) -> Result<()> {
    match said {
        Said::Result { is_error: false, .. } => Ok(()),
        other => bail!("{}: {other:?}", other.brief()),
    }
}

/// Whether a text is in any file below a folder.
fn found_below(folder: &Path, text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path())?;
                if bytes.windows(text.len()).any(|w| w == text.as_bytes()) {
                    found.push(entry.path().display().to_string());
                }
            }
        }
    }
    Ok(found)
}

/// Official clients of two people, at three replicas: each is asked once, each acts under its own credential.
#[test]
fn official_clients_are_sent_to_the_page_and_go_on_with_one_effect() -> Result<()> {
    let mut stage = Stage::open("\n[auth]\nmode = \"api-key\"\n")?;
    cluster::configure(&stage.project)?;
    let mut cluster = Cluster::start(&mut stage.project, 3)?;
    stage.people(&["alice", "bob", "carol"])?;
    let url = format!("http://{}/mcp", cluster.front);
    let browser = Browser::at(cluster.replicas[1].addr);
    for (kind, principal) in [(Kind::TypeScript, "alice"), (Kind::Python, "bob")] {
        let mut worker = Worker::start(kind, stage.project.path())?;
        let bearer = stage.bearer(principal);
        let order =
            Order { client: "host", url: &url, auth: Some(&bearer), timeout: SECONDS, abort_after: None };
        let mut call = |name: &str, asked: &mut Vec<String>| {
            let meta = json!({ META_KEY: name });
            worker.call_answering(&order, TOOL, &Class::Key.arguments(name), &meta, 2 * SECONDS, |question| {
                ensure!(question.params["mode"] == "url", "{question:?}");
                let url = question.params["url"].as_str().context("no address")?.to_owned();
                // Somebody else who got the link can't store anything, for whomever.
                ensure!(browser.get(&url)?.status == 200);
                let foreign = Form { key: &stage.keys["carol"], secret: &secret("carol") };
                ensure!(browser.post(&url, &foreign)?.status == 403);
                let own = Form { key: &stage.keys[principal], secret: &secret(principal) };
                if asked.is_empty() {
                    let done = browser.post(&url, &own)?;
                    ensure!(done.status == 200, "{}", done.text());
                }
                asked.push(url);
                Ok(json!({ "action": "accept" }))
            })
        };
        let (first, second) = (format!("{principal}_1"), format!("{principal}_2"));
        let mut asked = Vec::new();
        result(&again(|| call(&first, &mut asked))?).with_context(|| kind.name())?;
        ensure!(asked.len() == 1, "{}: {asked:?}", kind.name());
        stage.once(&first, principal)?;
        // The link is used up, at every replica.
        for replica in &cluster.replicas {
            let own = Form { key: &stage.keys[principal], secret: "another" };
            ensure!(Browser::at(replica.addr).post(&asked[0], &own)?.status == 404);
        }
        // The next call asks nobody; the same call is the same effect.
        for name in [&second, &first] {
            result(&again(|| call(name, &mut asked))?)?;
            ensure!(asked.len() == 1);
            stage.once(name, principal)?;
        }
    }
    // A client of the legacy era is told to come again.
    let mut worker = Worker::start(Kind::TypeScriptLegacy, stage.project.path())?;
    let bearer = stage.bearer("carol");
    let order = Order { client: "host", url: &url, auth: Some(&bearer), timeout: SECONDS, abort_after: None };
    let call = |worker: &mut Worker| {
        let meta = json!({ META_KEY: "carol_1" });
        let nobody = |_: &_| bail!("nobody is asked on a stream");
        worker.call_answering(&order, TOOL, &Class::Key.arguments("carol_1"), &meta, SECONDS, nobody)
    };
    let said = again(|| call(&mut worker))?;
    ensure!(matches!(said, Said::Rpc { code: -32042, .. }), "{said:?}");
    let by_hand = || Ok(plain(cluster.front, TOOL, Class::Key.arguments("carol_1"), Some(bearer.clone())));
    let link = link(&again(by_hand)?)?;
    let own = Form { key: &stage.keys["carol"], secret: &secret("carol") };
    ensure!(browser.post(&link, &own)?.status == 200);
    result(&again(|| call(&mut worker))?)?;
    stage.once("carol_1", "carol")?;
    ensure!(!cluster.lost_one(), "a replica ended");
    ensure!(found_below(stage.project.path(), CANARY)?.is_empty());
    Ok(())
}

/// A user who says no, and one who is slow.
#[test]
fn a_call_waits_for_the_page_and_takes_no_for_an_answer() -> Result<()> {
    let mut stage = Stage::open("\n[auth]\nmode = \"api-key\"\n")?;
    stage.project.edit(|text| text.replacen("[defaults]\n", "[defaults]\nleg = \"1s\"\n", 1))?;
    let gateway = stage.project.gateway(None)?;
    stage.people(&["alice"])?;
    let browser = Browser::at(gateway.addr);
    let bearer = stage.bearer("alice");
    let order =
        Order { client: "host", url: &gateway.url, auth: Some(&bearer), timeout: SECONDS, abort_after: None };
    let mut worker = Worker::start(Kind::TypeScript, stage.project.path())?;
    let mut times = 0;
    let said =
        worker.call_answering(&order, TOOL, &Class::Key.arguments("no"), &json!({}), SECONDS, |_| {
            times += 1;
            Ok(json!({ "action": "decline" }))
        })?;
    ensure!(times == 1, "asked {times} times");
    link(&said)?;
    // The user says yes, and is at the page for longer than one leg of the call.
    let (keys, slow) = (stage.keys.clone(), browser.clone());
    let mut at_page = None;
    let said =
        worker.call_answering(&order, TOOL, &Class::Key.arguments("slow"), &json!({}), SECONDS, |q| {
            ensure!(at_page.is_none(), "asked again while the user was at the page");
            let url = q.params["url"].as_str().context("no address")?.to_owned();
            let (key, slow) = (keys["alice"].clone(), slow.clone());
            at_page = Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2500));
                slow.post(&url, &Form { key: &key, secret: &secret("alice") })
            }));
            Ok(json!({ "action": "accept" }))
        })?;
    result(&said)?;
    ensure!(at_page.context("nobody was asked")?.join().unwrap()?.status == 200);
    stage.once("slow", "alice")?;
    ensure!(stage.sandbox.count(Class::Key, "no")? == (0, 0));
    Ok(())
}

/// Everything else that the page refuses, and where the secret isn't afterwards.
#[test]
fn the_page_takes_one_secret_of_the_one_who_was_asked() -> Result<()> {
    let mut stage = Stage::open("\n[auth]\nmode = \"api-key\"\n")?;
    let Gateway { addr, process, .. } = &mut stage.project.gateway(None)?;
    stage.people(&["alice", "bob"])?;
    let browser = Browser::at(*addr);
    let call =
        |who: &str, order: &str| plain(*addr, TOOL, Class::Key.arguments(order), Some(stage.bearer(who)));
    let asked = || link(&call("alice", "one"));

    let said = call("alice", "one");
    let cause = "the tool acts under a credential of the caller's own, there is none yet, and this client can't be sent to a page (or said no)";
    let (Said::Error { text, .. }, book) = (&said, book()?) else { bail!("{said:?}") };
    let entry = book.get(cause).context("no row in the book")?;
    ensure!(misquotes(entry, text).is_none(), "{:?}", misquotes(entry, text));

    // What is shown, and how.
    let first = asked()?;
    let shown = browser.get(&first)?;
    let text = shown.text();
    for told in [
        "torture",
        "key, http://127.0.0.1",
        "alice",
        "Refund a payment.",
        "bearer token",
        "key.refunds.create",
    ] {
        ensure!(text.contains(told), "{told}: {text}");
    }
    ensure!(!text.contains("<script") && !text.contains("http-equiv") && !first.contains("alice"));
    for (name, value) in [
        ("content-security-policy", "default-src 'none'; style-src 'sha256-"),
        ("content-security-policy", "frame-ancestors 'none'"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        ensure!(shown.header(name).is_some_and(|v| v.contains(value)), "{name}: {:?}", shown.headers);
    }

    // Not from the page itself; not for this server; not a form; too large.
    let own = Form { key: &stage.keys["alice"], secret: &secret("alice") };
    for headers in [
        vec![],
        vec![("Origin", "null")],
        vec![("Origin", "https://evil.example")],
        vec![("Sec-Fetch-Site", "cross-site"), ("Origin", "null")],
        vec![("Sec-Fetch-Site", "same-site"), ("Origin", "null")],
        vec![("Sec-Fetch-Site", "same-origin"), ("Origin", "https://evil.example")],
        vec![("Sec-Fetch-Site", "same-origin"), ("Host", "evil.example")],
    ] {
        let reply = browser.send(&first, &headers, &own.body())?;
        ensure!(reply.status == 403, "{headers:?}: {}", reply.status);
    }
    let large = format!("secret={}", "a".repeat(33 << 10));
    ensure!(browser.send(&first, &[("Sec-Fetch-Site", "same-origin")], &large)?.status == 400);
    for bad in [Form { secret: "", ..own }, Form { secret: "a\u{7f}b", ..own }] {
        ensure!(browser.post(&first, &bad)?.status == 400);
    }

    // Unknown, cut, used up and of another purpose look the same.
    let (head, _) = first.split_at(first.len() - 40);
    let unknown = browser.get(&format!("http://{addr}/connect/v4.local.AAAA"))?;
    ensure!(unknown.status == 404);
    ensure!(browser.get(head)?.body == unknown.body);
    let tried = asked()?;
    for (n, wrong) in ["", "cfk_nobody", &stage.keys["bob"], "a\nb", &stage.keys["bob"]].iter().enumerate() {
        let reply = browser.post(&tried, &Form { key: wrong, ..own })?;
        ensure!(reply.status == if n < 4 { 403 } else { 404 }, "{n}: {}", reply.status);
    }
    let spent = browser.post(&tried, &own)?;
    ensure!(spent.status == 404 && spent.body == unknown.body);
    ensure!(browser.get(&tried)?.body == unknown.body);
    link(&call("alice", "one"))?;

    // The right one, once, whoever is first.
    let replies: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..6).map(|_| scope.spawn(|| browser.post(&first, &own).unwrap().status)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    ensure!(replies.iter().filter(|s| **s == 200).count() == 1, "{replies:?}");
    ensure!(browser.post(&first, &own)?.body == unknown.body);
    result(&call("alice", "one"))?;
    stage.once("one", "alice")?;
    // A read acts under it, too; somebody else has none of it.
    let list = |who: &str| {
        let about = json!({ "payment": counterfoil_tests::stand::payment("one") });
        plain(*addr, "key_refunds_list", about, Some(stage.bearer(who)))
    };
    result(&list("alice"))?;
    link(&list("bob"))?;
    link(&call("bob", "two"))?;
    let legacy = Call { auth: Some(stage.bearer("bob")), ..Call::new(TOOL, Class::Key.arguments("two")) };
    link(&wire::call(*addr, SECONDS, &legacy.of(Era::Legacy(Some("2025-11-25")))))?;

    // Who has one is told, and it can be forgotten.
    let (code, status) = stage.project.ask(&["auth", "status"])?;
    let all = status["credentials"].as_array().context("credentials")?;
    ensure!(code == 0 && all.len() == 1 && all[0]["principal"] == "alice", "{status}");
    ensure!(stage.project.ask(&["auth", "forget", "nothing", "--principal", "alice"])?.0 != 0);
    let (code, gone) = stage.project.ask(&["auth", "forget", "key", "--principal", "alice"])?;
    ensure!(code == 0 && gone["forgotten"] == true, "{gone}");
    link(&call("alice", "three"))?;
    // What was done stays answered.
    let again = Call { auth: Some(stage.bearer("alice")), ..Call::new(TOOL, Class::Key.arguments("one")) };
    let known = wire::call(*addr, SECONDS, &again);
    ensure!(matches!(&known, Said::Error { kind, .. } if kind == "twin"), "{known:?}");

    // Nowhere in files, log or operators' answers.
    let (_, ops) = stage.project.ask(&["ops", "list"])?;
    let id = ops["operations"][0]["id"].as_str().context("an operation")?.to_owned();
    let (_, whole) = stage.project.ask(&["ops", "show", &id])?;
    ensure!(!format!("{ops}{whole}{status}").contains(CANARY));
    let metrics = http::json(*addr, "GET", "/metrics", None)?.text();
    ensure!(!metrics.contains(CANARY));
    process.terminate()?;
    let found = found_below(stage.project.path(), CANARY)?;
    ensure!(found.is_empty(), "{found:?}");
    // The search finds what is there.
    ensure!(!found_below(stage.project.path(), "key.refunds.create")?.is_empty());
    Ok(())
}

/// On this machine alone nobody is asked who he is; anywhere else such a manifest is refused.
#[test]
fn without_authentication_it_is_this_machines_only() -> Result<()> {
    let mut stage = Stage::open("")?;
    let gateway = stage.project.gateway(None)?;
    let browser = Browser::at(gateway.addr);
    let asked = link(&plain(gateway.addr, TOOL, Class::Key.arguments("mine"), None))?;
    let shown = browser.get(&asked)?.text();
    ensure!(shown.contains("anonymous") && !shown.contains("name=\"key\""), "{shown}");
    ensure!(browser.post(&asked, &Form { key: "", secret: &secret("anonymous") })?.status == 200);
    result(&plain(gateway.addr, TOOL, Class::Key.arguments("mine"), None))?;
    stage.once("mine", "anonymous")?;
    drop(gateway);
    stage.project.server("public_url", "\"https://mcp.example.com/mcp\"")?;
    let refused = stage.project.run(&["methods"])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(2) && said.contains("everybody is the same principal"), "{said}");
    Ok(())
}
