//! `[[view]]`: what is taken, what is refused with which words and place, and whether the schema agrees.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil::config::{At, Config, ConfigError};
use counterfoil::run::{Core, Use};
use gateway::ViewBy;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("counterfoil.toml"), text, [("", ""); 0])
}

fn schema() -> jsonschema::Validator {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/counterfoil.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn as_json(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
}

const GOOD: &str = r#"
[auth]
mode = "api-key"
[sandbox]
[[view]]
name = "billing"
path = "/mcp/billing"
tools = ["payments.*", "mail.messages.send"]
[[view]]
name = "reading.1"
principals = ["bot", "ada b"]
tools = ["*.get"]
"#;

#[test]
fn views_are_taken_as_they_are_written() {
    let c = parse(GOOD).unwrap();
    assert!(schema().is_valid(&as_json(GOOD)));
    let [billing, reading] = &c.views[..] else { panic!("{:?}", c.views) };
    assert_eq!((billing.name.as_str(), &billing.by), ("billing", &ViewBy::Path("/mcp/billing".into())));
    assert_eq!(
        (reading.name.as_str(), &reading.by),
        ("reading.1", &ViewBy::Principals(vec!["bot".into(), "ada b".into()]))
    );
    let tools: Vec<&str> = billing.tools.iter().map(|t| t.value.as_str()).collect();
    assert_eq!(tools, ["payments.*", "mail.messages.send"]);
    assert_eq!(billing.tools[1].at, At::Line(8, 24));
}

/// A view after this, its place, a part of the message, and whether the schema alone refuses it too.
const BAD: &[(&str, &str, &str, bool)] = &[
    ("", "1:1", "[[view]] needs name", true),
    ("name = \"a\"\npath = \"/a\"", "1:1", "[[view]] needs tools", true),
    ("name = \"a\"\ntools = [\"*\"]", "1:1", "needs path or principals", true),
    ("name = \"a b\"\npath = \"/a\"\ntools = [\"*\"]", "2:8", "is not a name", true),
    ("name = \"a\"\npath = \"a\"\ntools = [\"*\"]", "3:8", "is not a path", true),
    ("name = \"a\"\npath = \"/mcp\"\ntools = [\"*\"]", "3:8", "is [server] path", false),
    ("name = \"a\"\npath = \"/metrics\"\ntools = [\"*\"]", "3:8", "/metrics is taken", false),
    ("name = \"a\"\npath = \"/api/x\"\ntools = [\"*\"]", "3:8", "/api is taken", false),
    ("name = \"a\"\npath = \"/a\"\ntools = []", "4:1", "names none", true),
    ("name = \"a\"\npath = \"/a\"\ntools = \"*\"", "4:9", "must be an array of strings", true),
    ("name = \"a\"\npath = \"/a\"\ntools = [\"\"]", "4:10", "neither a canonical id nor a pattern", true),
    (
        "name = \"a\"\npath = \"/a\"\ntools = [\"pay ments\"]",
        "4:10",
        "neither a canonical id nor a pattern",
        true,
    ),
    ("name = \"a\"\npath = \"/a\"\ntools = [\"a**\"]", "4:10", "neither a canonical id nor a pattern", false),
    (
        "name = \"a\"\npath = \"/a\"\ntools = [\"[a-z]*\"]",
        "4:10",
        "neither a canonical id nor a pattern",
        true,
    ),
    ("name = \"a\"\npath = \"/a\"\ntools = [\"a.b\", \"a.b\"]", "4:17", "is there twice", true),
    ("name = \"a\"\npath = \"/a\"\ntools = [\"*\"]\ntool = 1", "5:1", "did you mean \"tools\"?", true),
    (
        "name = \"a\"\npath = \"/a\"\nprincipals = [\"x\"]\ntools = [\"*\"]",
        "4:1",
        "by its path or by its principals",
        true,
    ),
    (
        "name = \"a\"\nprincipals = [\"x\"]\ntools = [\"*\"]",
        "3:1",
        "has no use without authentication",
        false,
    ),
    (
        "name = \"a\"\npath = \"/a\"\ntools = [\"*\"]\n[[view]]\nname = \"a\"\npath = \"/b\"\ntools = [\"*\"]",
        "6:8",
        "there already",
        false,
    ),
    (
        "name = \"a\"\npath = \"/a\"\ntools = [\"*\"]\n[[view]]\nname = \"b\"\npath = \"/a\"\ntools = [\"*\"]",
        "7:8",
        "is the path of the view \"a\" already",
        false,
    ),
    (
        "name = \"a\"\nprincipals = []\ntools = [\"*\"]\n[auth]\nmode = \"api-key\"",
        "3:1",
        "names nobody",
        true,
    ),
    (
        "name = \"a\"\nprincipals = [\"x\", \"x\"]\ntools = [\"*\"]\n[auth]\nmode = \"api-key\"",
        "3:20",
        "named twice",
        true,
    ),
    (
        "name = \"a\"\nprincipals = [\"\"]\ntools = [\"*\"]\n[auth]\nmode = \"api-key\"",
        "3:15",
        "is empty",
        true,
    ),
    (
        "name = \"a\"\nprincipals = [\"x\"]\ntools = [\"*\"]\n[[view]]\nname = \"b\"\nprincipals = [\"x\"]\ntools = [\"*\"]\n[auth]\nmode = \"api-key\"",
        "7:15",
        "has the view \"a\" already",
        false,
    ),
];

#[test]
fn what_is_wrong_is_refused_with_its_place() {
    let schema = schema();
    for (view, place, words, by_schema) in BAD {
        let text = format!("[[view]]\n{view}\n");
        let said = parse(&text).unwrap_err().to_string();
        let expected = format!("counterfoil.toml:{place}:");
        assert!(
            said.lines().any(|l| l.starts_with(&expected) && l.contains(words)),
            "{text}\n{said}\n{expected} {words}"
        );
        assert_eq!(schema.is_valid(&as_json(&text)), !by_schema, "{text}");
    }
    let single = parse("[view]\nname = \"a\"\n").unwrap_err().to_string();
    assert!(single.contains("write [[view]]"), "{single}");
    let many: String =
        (0..65).map(|i| format!("[[view]]\nname = \"v{i}\"\npath = \"/v{i}\"\ntools = [\"*\"]\n")).collect();
    let said = parse(&many).unwrap_err().to_string();
    assert!(said.contains("there are 65 views, and 64 are the most"), "{said}");
}

async fn opened(text: &str) -> Result<Core, String> {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::parse(&dir.path().join("counterfoil.toml"), text, [("", ""); 0]).unwrap();
    config.set_data(&dir.path().join("data"));
    Core::open(config, Use::Catalog).await.map_err(|e| e.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_are_held_against_the_tools() {
    let core = opened(GOOD).await.unwrap();
    let catalog = core.gateway.catalog();
    let of = |id: &str| catalog.find(id).is_some();
    assert!(of("payments.refunds.create") && of("operation_status"));
    let views = catalog.views();
    assert!(
        views[0].tools.contains("payments.refunds.create") && views[0].tools.contains("operation_status")
    );
    assert!(
        views[1].tools.contains("operation_status") && !views[1].tools.contains("payments.refunds.create")
    );
    let lists = core.gateway.tool_lists();
    assert_eq!(lists[0].tools, catalog.entries().count());
    assert_eq!(lists[1].tools, views[0].tools.len());
    for (tools, words) in [
        (
            "\"payments.refund.create\"",
            "there is no tool \"payments.refund.create\"; did you mean \"payments.refunds.create\"?",
        ),
        ("\"zebra.*\"", "`counterfoil methods` lists what there is"),
        ("\"operation_status\"", "there is no tool"),
        ("\"payments.*\", \"payments.refunds.create\"", "adds nothing to those before it"),
    ] {
        let text = format!("[sandbox]\n[[view]]\nname = \"a\"\npath = \"/a\"\ntools = [{tools}]\n");
        let said = opened(&text).await.err().unwrap();
        assert!(said.contains(words) && said.contains("counterfoil.toml:5:"), "{tools}: {said}");
    }
}
