//! Views with the official clients of both eras, against the real binary and the real provider: what they see at a path and
//! as whom, one operation at all paths, and who hears of a change.

use anyhow::{Context, Result, ensure};
use counterfoil_tests::clients::{Kind, Order, Worker};
use counterfoil_tests::shell::{signal, until};
use counterfoil_tests::stand::{AMOUNT, Class, Gateway, Project, Sandbox};
use counterfoil_tests::wire::{META_KEY, Said};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const VIEWS: &str = r#"
[auth]
mode = "api-key"

[[view]]
name = "billing"
path = "/mcp/billing"
tools = ["key.*", "unique.refunds.create"]

[[view]]
name = "reading"
path = "/mcp/reading"
tools = ["natural.*"]

[[view]]
name = "support"
principals = ["bot"]
tools = ["unique.*", "natural.*"]
"#;

macro_rules! for_all {
    ($($client:ident $kind:ident),* $(,)?) => {
        $(mod $client {
            #[test]
            fn sees_its_view_and_no_more() -> anyhow::Result<()> {
                super::sees_its_view_and_no_more(super::Kind::$kind)
            }
            #[test]
            fn hears_of_its_own_list() -> anyhow::Result<()> {
                super::hears_of_its_own_list(super::Kind::$kind)
            }
        })*
    };
}

for_all! {
    typescript TypeScript,
    typescript_legacy TypeScriptLegacy,
    typescript_1 TypeScript1,
    python Python,
    python_1 Python1,
}

/// A provider, a gateway with views, a client, and the keys of two people.
struct Stage {
    sandbox: Sandbox,
    gateway: Gateway,
    worker: Worker,
    project: Project,
    ann: String,
    bot: String,
    _home: Project,
}

impl Stage {
    fn open(kind: Kind) -> Result<Stage> {
        let home = Project::empty()?;
        let sandbox =
            Sandbox::start(&home.path().join("provider"), &home.path().join("provider.log"), "127.0.0.1:0")?;
        let mut project = Project::with_classes_and(sandbox.addr, VIEWS)?;
        // Two of the clients hear of changes in a session only.
        project.server("legacy_sessions", "\"always\"")?;
        let key = |who: &str| -> Result<String> {
            let (code, made) = project.ask(&["api-keys", "create", "--principal", who])?;
            ensure!(code == 0, "{made}");
            Ok(format!("Bearer {}", made["key"].as_str().context("the key")?))
        };
        let (ann, bot) = (key("ann")?, key("bot")?);
        let gateway = project.gateway(None)?;
        let worker = Worker::start(kind, project.path())?;
        Ok(Stage { sandbox, gateway, worker, project, ann, bot, _home: home })
    }

    fn url(&self, view: &str) -> String {
        format!("{}{view}", self.gateway.url)
    }

    fn names(&mut self, view: &str, auth: &str) -> Result<Vec<String>> {
        let url = self.url(view);
        let client = format!("{view} {auth}");
        let listed = self.worker.list(&order(&client, &url, auth))?;
        let tools = listed["tools"].as_array().context("tools")?;
        Ok(tools.iter().filter_map(|t| t["name"].as_str()).map(str::to_owned).collect())
    }

    fn call(&mut self, view: &str, auth: &str, class: Class, object: &str) -> Result<Said> {
        let url = self.url(view);
        let client = format!("{view} {auth}");
        let meta = json!({ META_KEY: format!("k-{object}") });
        self.worker.call(&order(&client, &url, auth), &class.tool(), &class.arguments(object), &meta)
    }
}

fn order<'a>(client: &'a str, url: &'a str, auth: &'a str) -> Order<'a> {
    Order { client, url, auth: Some(auth), timeout: Duration::from_secs(20), abort_after: None }
}

fn tools(classes: &[Class]) -> Vec<String> {
    let status = ["operation_status".to_owned()];
    classes.iter().map(|c| c.tool()).chain(status).collect()
}

fn operation(said: &Said) -> Result<&Value> {
    match said {
        Said::Result { operation, is_error: false, .. } => Ok(operation),
        other => anyhow::bail!("a result was expected, not {} ({other:?})", other.brief()),
    }
}

fn sees_its_view_and_no_more(kind: Kind) -> Result<()> {
    let mut s = Stage::open(kind)?;
    let (ann, bot) = (s.ann.clone(), s.bot.clone());
    for (view, who, classes) in [
        ("/billing", &ann, &[Class::Key, Class::Unique][..]),
        ("/reading", &ann, &[Class::Natural]),
        ("", &bot, &[Class::Unique, Class::Natural]),
        ("/billing", &bot, &[Class::Unique]),
        ("/reading", &bot, &[Class::Natural]),
    ] {
        let seen = s.names(view, who)?;
        ensure!(seen == tools(classes), "{view}: {seen:?}");
    }
    ensure!(s.names("", &ann)?.len() == Class::ALL.len() + 2, "all of them, without a view");
    // Called where it is shown; asked for again without the view, and where it isn't: the same operation.
    let first = s.call("/billing", &ann, Class::Key, "one")?;
    let id = operation(&first)?["id"].clone();
    for view in ["", "/reading"] {
        let again = s.call(view, &ann, Class::Key, "one")?;
        let same = operation(&again)?;
        ensure!(same["id"] == id && same["replayed"] == json!(true), "{view}: {again:?}");
    }
    ensure!(s.sandbox.count(Class::Key, "one")? == (1, AMOUNT), "one effect");
    // What isn't shown opens nothing: an error of the protocol, or one that the client makes of its own list.
    for (view, who) in [("/reading", &ann), ("", &bot)] {
        let refused = s.call(view, who, Class::Key, "two")?;
        ensure!(matches!(refused, Said::Rpc { .. } | Said::Lost(_)), "{view}: {refused:?}");
    }
    ensure!(s.sandbox.count(Class::Key, "two")?.0 == 0, "nothing happened");
    let (_, doctor) = s.project.ask(&["doctor"])?;
    let lists: Vec<&str> = doctor["findings"]
        .as_array()
        .context("findings")?
        .iter()
        .filter(|f| f["about"] == "lists")
        .filter_map(|f| f["what"].as_str())
        .collect();
    ensure!(lists.len() == 4 && lists[1].contains("in the view billing at /mcp/billing"), "{lists:?}");
    Ok(())
}

fn hears_of_its_own_list(kind: Kind) -> Result<()> {
    let mut s = Stage::open(kind)?;
    let ann = s.ann.clone();
    let (billing, reading) = (s.url("/billing"), s.url("/reading"));
    s.names("/billing", &ann)?;
    s.names("/reading", &ann)?;
    let orders = [order("/billing of ann", &billing, &ann), order("/reading of ann", &reading, &ann)];
    for order in &orders {
        s.worker.subscribe(order)?;
    }
    let manifest = s.project.path().join("integrations/key.toml");
    let mut heard = false;
    // A GET stream is opened in its own time; a change from before it is not told, and another comes.
    for methods in [["create", "second"].as_slice(), &["create"], &["create", "second"]] {
        std::fs::write(&manifest, Class::Key.manifest_of(s.sandbox.addr, methods))?;
        signal(&s.gateway, "HUP")?;
        let end = Instant::now() + Duration::from_secs(3);
        while !heard && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            heard = !s.worker.seen(&orders[0])?.is_empty();
        }
        if heard {
            break;
        }
    }
    ensure!(heard, "billing shows a tool more, and its client did not hear of it");
    ensure!(s.worker.seen(&orders[1])?.is_empty(), "the other view did not change");
    std::fs::write(&manifest, Class::Key.manifest_of(s.sandbox.addr, &["create", "third"]))?;
    signal(&s.gateway, "HUP")?;
    let third = Class::Key.tool_of("third");
    until("the new tool is listed in its view", || {
        // A client may keep a list for as long as it was told; a new one has none.
        s.worker.forget("another")?;
        let listed = s.worker.list(&order("another", &billing, &ann))?;
        Ok(listed["tools"].as_array().is_some_and(|all| all.iter().any(|t| t["name"] == json!(third))))
    })?;
    ensure!(s.names("/reading", &ann)? == tools(&[Class::Natural]), "and in no other");
    Ok(())
}
