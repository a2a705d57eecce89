//! The examples and the templates of `init`: they are right, and what they show as a default is one.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil::config::Config;
use counterfoil::run::{Core, Use};
use serde_json::Value;
use std::path::{Path, PathBuf};
use toml::Table;

const NO_ENV: [(&str, &str); 0] = [];
const SANDBOX: &str = include_str!("../src/cli/templates/sandbox.toml");
const PRODUCTION: &str = include_str!("../src/cli/templates/production.toml");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema() -> Value {
    let text = std::fs::read_to_string(root().join("schema/counterfoil.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn refused_by_schema(text: &str) -> Vec<String> {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let json = serde_json::to_value(text.parse::<Table>().unwrap()).unwrap();
    schema.iter_errors(&json).map(|e| e.to_string()).collect()
}

#[test]
fn the_examples_are_right() {
    let mut seen = 0;
    for dir in std::fs::read_dir(root().join("examples")).unwrap() {
        let file = dir.unwrap().path().join("counterfoil.toml");
        if !file.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let config = Config::parse(&file, &text, NO_ENV).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(refused_by_schema(&text), Vec::<String>::new(), "{}", file.display());
        counterfoil::run::load(&config, config.sandbox).unwrap_or_else(|e| panic!("{e}"));
        seen += 1;
    }
    assert!(seen >= 3, "only {seen} examples");
    let sandbox = std::fs::read_to_string(root().join("examples/sandbox/counterfoil.toml")).unwrap();
    assert_eq!(sandbox.split_once('\n').unwrap().1, SANDBOX, "it is what `init` writes");
}

#[test]
fn the_configuration_of_replicas_is_right() {
    let file = root().join("deploy/counterfoil.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let environment = [
        (
            "COUNTERFOIL_LEDGER",
            "postgres://counterfoil:secret@db.example.com/counterfoil?sslmode=verify-full",
        ),
        ("COUNTERFOIL_MASTER", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
    ];
    let config = Config::parse(&file, &text, environment).unwrap_or_else(|e| panic!("{e}"));
    assert!(config.ledger.postgres().is_some());
    assert_eq!(refused_by_schema(&text), Vec::<String>::new());
    let loaded = counterfoil::run::load(&config, config.sandbox).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.integrations.len(), config.integrations.len());
}

/// What a line is that is commented out.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Default,
    Example,
}

/// A template in which what is commented out is set: the defaults, or the examples too.
fn with(template: &str, examples: bool) -> String {
    let mut of_example = false;
    let mut lines = Vec::new();
    for line in template.lines() {
        let set = line.strip_prefix("# ").filter(|rest| {
            let key = rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
            key || rest.starts_with('[')
        });
        // A table that is an example is one to its end.
        of_example = match set {
            Some(rest) if rest.starts_with('[') => true,
            None if line.is_empty() || line.starts_with('[') => false,
            _ => of_example,
        };
        let shown = match of_example || line.contains("# for example") {
            true => Shown::Example,
            false => Shown::Default,
        };
        lines.push(set.filter(|_| examples || shown == Shown::Default).unwrap_or(line));
    }
    lines.join("\n")
}

/// All that is decided of tools under a configuration.
async fn decided(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::parse(&dir.path().join("counterfoil.toml"), text, NO_ENV).unwrap();
    config.mode = provider::Mode::Sandbox;
    config.sandbox = Some("127.0.0.1:0".parse().unwrap());
    let core = Core::open(config, Use::Catalog).await.unwrap();
    let catalog = core.gateway.catalog();
    catalog.entries().map(|e| format!("{} {:?}", e.spec.canonical, e.settings)).collect()
}

#[tokio::test]
async fn what_the_templates_show_as_a_default_is_one() {
    let schema = schema();
    for template in [SANDBOX, PRODUCTION] {
        let set = with(template, false);
        let (own, all): (Table, Table) = (template.parse().unwrap(), set.parse().unwrap());
        let mut seen = 0;
        for (section, keys) in all.iter().filter(|(section, _)| *section != "tools") {
            for (key, value) in keys.as_table().unwrap() {
                if own.get(section).and_then(|s| s.get(key)).is_some() {
                    continue;
                }
                let told = &schema["properties"][section]["properties"][key]["default"];
                // What it is by default depends on where the ledger is.
                if key != "shutdown_delay" {
                    assert_eq!(*told, serde_json::to_value(value).unwrap(), "[{section}] {key}");
                }
                seen += 1;
            }
        }
        assert!(seen >= 14, "{set}");
        let parse = |text: &str| Config::parse(Path::new("counterfoil.toml"), text, NO_ENV).unwrap();
        let (own, all) = (parse(template), parse(&set));
        assert_eq!((&own.server, &own.ledger, own.lists_ttl), (&all.server, &all.ledger, all.lists_ttl));
        assert_eq!((own.sandbox, &own.tools.len()), (all.sandbox, &all.tools.len()));
        assert_eq!(decided(template).await, decided(&set).await);
    }
}

#[test]
fn what_the_templates_show_as_an_example_is_right() {
    let mut seen = 0;
    for template in [SANDBOX, PRODUCTION] {
        // A ledger is in one place.
        let one_place = match template.contains("postgres://") {
            true => template.replace("\nurl = \"sqlite:.counterfoil/ledger.db\"\n", "\n"),
            false => template.to_owned(),
        };
        let all = with(&one_place, true);
        assert!(!all.contains("\n# ["), "{all}");
        let environment = [("PGPASSWORD", "secret"), ("ALERT_URL", "https://alerts.example.com/counterfoil")];
        let c =
            Config::parse(Path::new("counterfoil.toml"), &all, environment).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(refused_by_schema(&all), Vec::<String>::new());
        assert!(
            c.webhook.is_some() && c.tools.iter().any(|t| t.key_from.is_some()) && c.integrations.len() == 1
        );
        seen += usize::from(c.ledger.postgres().is_some());
    }
    assert_eq!(seen, 1, "production shows a ledger in PostgreSQL");
}
