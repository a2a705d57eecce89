//! Arguments that span segments of a path: what they become, what they may not be, and that no two meet in one URL.

#![allow(clippy::unwrap_used)]

use counterfoil_provider::{Format, Integration, Mode};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

const API: &str = r#"
name = "code"
base_url = { sandbox = "https://code.example/api", production = "https://code.example/api" }
[execution_policy.idempotency]
mode = "dynamic"
endpoints = ["/repos/{}/files/{}", "/repos/{}/tags"]
[methods.read]
http = "GET /repos/{repo}/files/{path}"
styles = { path = "segments" }
[methods.write]
http = "PUT /repos/{repo}/files/{path}"
styles = { path = "segments" }
[methods.status]
http = "POST /repos/{repo}/commits/{ref}/status"
styles = { ref = "segments" }
marker = { field = "context" }
[methods.status.lookup]
http = "GET /repos/{args.repo}/commits/{args.ref}/status"
items = "/statuses"
match = { "/context" = "{marker}" }
[methods.tag]
http = "POST /repos/{repo}/files/{path}"
"#;

fn api() -> &'static Integration {
    static ONE: LazyLock<Integration> =
        LazyLock::new(|| Integration::parse("api.toml", API, Format::Toml, Mode::Production).unwrap());
    &ONE
}

fn read(args: &Value) -> Result<String, String> {
    let api = api();
    let request = api.method("read").unwrap().read_request(&args.to_string()).map_err(|e| e.to_string())?;
    let shown = request.shown();
    Ok(shown.strip_prefix("GET https://code.example/api").unwrap().to_owned())
}

fn record(method: &str, args: &Value) -> Value {
    let api = api();
    let method = api.method(method).unwrap();
    let intent = method.intent(&args.to_string(), &method.recovery(None).unwrap()).unwrap();
    serde_json::from_slice(&intent.body).unwrap()
}

#[test]
fn each_segment_is_encoded_by_itself() {
    for (path, url) in [
        (json!("README.md"), "/repos/r/files/README.md"),
        (json!("src/deep/a b?#.rs"), "/repos/r/files/src/deep/a%20b%3F%23.rs"),
        (json!("100%/%2e%2e/%2F"), "/repos/r/files/100%25/%252e%252e/%252F"),
        (json!("…/..."), "/repos/r/files/%E2%80%A6/..."),
        (json!(["src", "a;b", "c:@"]), "/repos/r/files/src/a%3Bb/c%3A%40"),
        (json!(7), "/repos/r/files/7"),
    ] {
        assert_eq!(read(&json!({ "repo": "r", "path": path })).unwrap(), url, "{path}");
    }
    let record = record("status", &json!({ "repo": "r", "ref": "heads/a b" }));
    let url = |at: &Value| at.as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect::<String>();
    assert_eq!(url(&record["url"]), "https://code.example/api/repos/r/commits/heads/a%20b/status");
    assert_eq!(url(&record["lookup"]["url"]), "https://code.example/api/repos/r/commits/heads/a%20b/status");
}

#[test]
fn what_would_leave_its_place_is_refused() {
    for path in [
        json!(""),
        json!("/"),
        json!("/etc"),
        json!("a/"),
        json!("a//b"),
        json!("."),
        json!(".."),
        json!("a/../b"),
        json!("a/."),
        json!("a\\..\\b"),
        json!("a/b\nc"),
        json!("a/\u{0}"),
        json!("a/\u{85}"),
        json!([]),
        json!([""]),
        json!(["a", ""]),
        json!(["a", "b/c"]),
        json!(["..", "a"]),
        json!(["a", null]),
        json!([["a"]]),
        json!({ "a": "b" }),
        Value::Null,
    ] {
        assert!(read(&json!({ "repo": "r", "path": path })).is_err(), "{path}");
    }
    assert!(read(&json!({ "repo": "r" })).is_err());
    // The other argument of the path has one segment, as ever.
    assert!(read(&json!({ "repo": "r/s", "path": "a" })).is_err());
}

#[test]
fn a_key_is_for_paths_that_are_known() {
    let api = api();
    // An argument could lead to an endpoint of which nobody says that it honours keys.
    assert_eq!(api.method("write").unwrap().key_carrier(), None);
    assert_eq!(api.method("tag").unwrap().key_carrier().as_deref(), Some("header Idempotency-Key"));
    let own = API.replace(
        "[methods.write]\nhttp = \"PUT",
        "[methods.write]\nidempotency = { mode = \"dynamic\" }\nhttp = \"POST",
    );
    let own = Integration::parse("api.toml", &own, Format::Toml, Mode::Production).unwrap();
    assert!(own.method("write").unwrap().key_carrier().is_some());
}

#[test]
fn where_segments_can_stand() {
    let refused = |method: &str| {
        let text = format!(
            "name = \"a\"\nbase_url = {{ sandbox = \"https://a.example\", production = \"https://a.example\" }}\n[methods.m]\n{method}\n"
        );
        Integration::parse("a.toml", &text, Format::Toml, Mode::Production).map_err(|e| e.message)
    };
    for method in [
        "http = \"GET /a/{x}\"\nstyles = { x = \"segments\" }",
        "http = \"GET /{y}/{x}/end\"\nstyles = { x = \"segments\" }",
    ] {
        assert!(refused(method).is_ok(), "{method}");
    }
    let lookup = "marker = { field = \"m\" }\nhttp = \"POST /a/{x}\"\nstyles = { x = \"segments\" }\n[methods.m.lookup]\nitems = \"\"\nmatch = { \"/m\" = \"{marker}\" }\n";
    assert!(refused(&format!("{lookup}http = \"GET /b/{{args.x}}/c\"")).is_ok());
    for (method, part) in [
        ("http = \"GET /{x}/{y}\"\nstyles = { x = \"segments\" }", "last hole"),
        ("http = \"POST /{x}/{$key}\"\nstyles = { x = \"segments\" }", "last hole"),
        ("http = \"GET /{x}/{x}\"\nstyles = { x = \"segments\" }", "last hole"),
        ("http = \"GET /v{x}\"\nstyles = { x = \"segments\" }", "between slashes"),
        ("http = \"GET /{x}.json\"\nstyles = { x = \"segments\" }", "between slashes"),
        ("http = \"GET /a\"\nparams = { x = \"query\" }\nstyles = { x = \"segments\" }", "the query"),
        ("http = \"GET /a\"\nparams = { x = \"header:X\" }\nstyles = { x = \"segments\" }", "a header"),
        ("http = \"POST /a\"\nbody = \"form\"\nstyles = { x = \"segments\" }", "a form"),
        (&format!("{lookup}http = \"GET /b/{{args.x}}/{{key}}\""), "last hole"),
        (&format!("{lookup}http = \"GET /b/v{{args.x}}\""), "between slashes"),
        (
            &format!(
                "{lookup}http = \"GET /b\"\nfetch = {{ http = \"GET /b/{{args.x}}/{{item}}\", at = \"/id\" }}"
            ),
            "beside {item}",
        ),
    ] {
        let message = refused(method).unwrap_err();
        assert!(message.contains(part), "{method}: {message}");
    }
}

/// Texts with what matters in paths among their characters.
fn texts() -> impl Strategy<Value = String> {
    let sign = prop_oneof![
        4 => prop::sample::select(vec!['/', '.', '%', '\\', '?', '#', ';', '2', 'e', 'a', ' ', '\u{0}', 'ä']),
        1 => any::<char>(),
    ];
    prop::collection::vec(sign, 0..14).prop_map(|all| all.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whoever reads the URL finds the same text again, in the same place; so no two texts have one URL.
    #[test]
    fn arguments_come_back(repo in texts(), path in texts()) {
        let Ok(url) = read(&json!({ "repo": repo, "path": path })) else { return Ok(()) };
        let whole = url::Url::parse(&format!("https://code.example/api{url}")).unwrap();
        // Nobody's normalising changes it.
        prop_assert_eq!(whole.as_str(), format!("https://code.example/api{url}"));
        let all: Vec<String> = whole
            .path_segments()
            .unwrap()
            .map(|s| percent_encoding::percent_decode_str(s).decode_utf8().unwrap().into_owned())
            .collect();
        prop_assert_eq!(&all[..2], ["api", "repos"]);
        prop_assert_eq!(&all[2], &repo);
        prop_assert_eq!(&all[3], "files");
        prop_assert_eq!(all[4..].join("/"), path);
        prop_assert!(whole.query().is_none() && whole.fragment().is_none());
    }

    /// Of texts without what is refused, all are taken.
    #[test]
    fn segments_are_taken(parts in prop::collection::vec("[a-z%?#&=+ ä.]{1,5}", 1..5)) {
        prop_assume!(!parts.iter().any(|p| p == "." || p == ".."));
        let joined = read(&json!({ "repo": "r", "path": parts.join("/") }));
        let listed = read(&json!({ "repo": "r", "path": parts }));
        prop_assert!(joined.is_ok(), "{joined:?}");
        prop_assert_eq!(joined, listed);
    }
}
