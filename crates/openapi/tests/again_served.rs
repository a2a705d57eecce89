//! Importing again, where a description has more than one address: methods that are there keep theirs, and so does the
//! credential that goes with each request.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Error, Imported, Methods, Options, Selection, Shared};
use serde_json::{Value, json};

/// Operations, each with its tag and its own server, if it has one.
fn described(server: Value, operations: &[(&str, &str, Value)]) -> Value {
    let mut paths = json!({});
    for (path, tag, servers) in operations {
        let mut operation =
            json!({ "operationId": path.trim_start_matches('/'), "tags": [tag], "responses": {} });
        if !servers.is_null() {
            operation["servers"] = servers.clone();
        }
        paths[path] = json!({ "post": operation });
    }
    json!({ "openapi": "3.0.3", "info": { "title": "Acme" }, "servers": server, "paths": paths })
}

fn server(url: &str) -> Value {
    json!([{ "url": url }])
}

fn import(description: &Value, options: &Options, existing: Option<&str>) -> Imported {
    Description::read(&description.to_string()).unwrap().import(options, existing).unwrap()
}

fn tag(tag: &str) -> Options {
    Options { selection: Selection { tags: vec![tag.into()], ..Selection::default() }, ..Options::default() }
}

/// `base_url` of a manifest, and the names of its methods.
fn written(imported: &Imported) -> (Value, Vec<String>) {
    let manifest: toml_edit::DocumentMut = imported.manifest.parse().unwrap();
    let urls = manifest["base_url"].as_inline_table().unwrap();
    let urls = urls.iter().map(|(mode, url)| (mode.to_owned(), json!(url.as_str().unwrap()))).collect();
    let methods = manifest["methods"].as_table().unwrap().iter().map(|(name, _)| name.to_owned()).collect();
    (Value::Object(urls), methods)
}

fn skipped(imported: &Imported) -> Vec<(String, &'static str, Option<String>)> {
    let all = imported.report.skipped.iter();
    all.map(|s| (s.operation.clone(), s.reason.word(), s.stays.clone())).collect()
}

const USERS: [&str; 3] = ["/u1", "/u2", "/u3"];

/// Three operations at the description's server and more of them at another.
fn users_and_files() -> Value {
    let users = USERS.map(|path| (path, "users", Value::Null));
    let files =
        ["/f1", "/f2", "/f3", "/f4", "/f5"].map(|path| (path, "files", server("https://files.x.example")));
    described(server("https://api.x.example"), &[&users[..], &files[..]].concat())
}

#[test]
fn newcomers_of_another_address_do_not_move_what_is_there() {
    let api = json!({ "production": "https://api.x.example" });
    let both = users_and_files();
    // More operations of another server are chosen, or the provider adds them.
    let by_tag = import(&both, &tag("users"), None);
    let before = described(server("https://api.x.example"), &USERS.map(|path| (path, "users", Value::Null)));
    let by_provider = import(&before, &Options::default(), None);
    for (first, options) in [(by_tag, tag("files")), (by_provider, Options::default())] {
        assert_eq!(written(&first).0, api);
        // A manifest of an earlier version says nothing of servers but the digest of `base_url`.
        let mut older: toml_edit::DocumentMut = first.manifest.parse().unwrap();
        older["imported"].as_table_mut().unwrap().remove("server");
        for existing in [first.manifest.clone(), older.to_string()] {
            let second = import(&both, &options, Some(&existing));
            assert_eq!(written(&second), (api.clone(), vec!["u1".into(), "u2".into(), "u3".into()]));
            assert_eq!(skipped(&second).len(), 5, "{:?}", second.report.skipped);
            assert!(skipped(&second).iter().all(|s| s.1 == "server" && s.2.is_none()));
            assert!(second.report.skipped[0].detail.contains("what is there at https://api.x.example"));
            assert!(second.report.changes.decisive.is_empty());
        }
    }
}

#[test]
fn a_part_that_moves_stays_where_it_was_and_is_listed() {
    let users = USERS.map(|path| (path, "users", Value::Null));
    let first = import(&described(server("https://api.x.example"), &users), &Options::default(), None);
    let mut parts = users.clone();
    for part in &mut parts[..2] {
        part.2 = server("https://new.x.example");
    }
    let second = import(
        &described(server("https://api.x.example"), &parts),
        &Options::default(),
        Some(&first.manifest),
    );
    assert_eq!(written(&second), written(&first), "two of three have moved, and the third has not");
    assert_eq!(
        skipped(&second),
        [("POST /u1".into(), "server", Some("u1".into())), ("POST /u2".into(), "server", Some("u2".into()))]
    );
    assert!(second.report.changes.is_empty(), "{:?}", second.report.changes);
    // Where the operator says where requests go, they have not moved.
    let elsewhere = Options { base_url: Some("https://proxy.example".into()), ..Options::default() };
    let proxied =
        import(&described(server("https://api.x.example"), &users), &elsewhere, Some(&first.manifest));
    let again = import(
        &described(server("https://api.x.example"), &parts),
        &Options::default(),
        Some(&proxied.manifest),
    );
    assert_eq!(written(&again).0, json!({ "production": "https://proxy.example" }));
    assert!(skipped(&again).is_empty(), "{:?}", skipped(&again));
}

#[test]
fn the_whole_provider_moves_and_it_is_the_first_that_is_told() {
    let users = USERS.map(|path| (path, "users", Value::Null));
    let first = import(&described(server("https://api.x.example"), &users), &Options::default(), None);
    let moved = described(server("https://api.y.example"), &users);
    let second = import(&moved, &Options::default(), Some(&first.manifest));
    assert_eq!(written(&second).0, json!({ "production": "https://api.y.example" }));
    let told = &second.report.changes.decisive[0];
    assert_eq!((told.method.as_deref(), told.field.as_str()), (None, "base_url"));
    assert_eq!(
        (&told.before["production"], &told.after["production"]),
        (&json!("https://api.x.example"), &json!("https://api.y.example"))
    );
    // A method of the operator's own, or one that was changed and is described no more, would move too: nobody said so.
    let own = first.manifest.replace(
        "[imported]\n",
        "[methods.own]\nhttp = \"POST /own\"\neffect = \"mutating\"\n\n[imported]\n",
    );
    let stays = import(&moved, &Options::default(), Some(&own));
    assert_eq!(written(&stays).0, json!({ "production": "https://api.x.example" }));
    assert_eq!(skipped(&stays).len(), 3);
    let notes: Vec<&str> = stays.report.notes.iter().map(|n| n.note.as_str()).collect();
    assert!(
        notes.iter().any(|n| n.contains("own are not in the description") && n.contains("--base-url")),
        "{notes:?}"
    );
    // Who says where, moves all.
    let said = Options { base_url: Some("https://api.y.example".into()), ..Options::default() };
    let all = import(&moved, &said, Some(&own));
    assert_eq!(written(&all).0, json!({ "production": "https://api.y.example" }));
    assert_eq!((skipped(&all).len(), written(&all).1.len()), (0, 4));
}

#[test]
fn pairs_of_addresses() {
    let live = json!({ "url": "https://api.x.example" });
    let trial = json!({ "url": "https://sandbox.x.example", "description": "Sandbox" });
    let both = json!([live, trial]);
    let users = USERS.map(|path| (path, "users", Value::Null));
    let first = import(&described(json!([live]), &users), &Options::default(), None);
    // All get a sandbox: it is taken, and told.
    let paired = import(&described(both.clone(), &users), &Options::default(), Some(&first.manifest));
    assert_eq!(
        written(&paired).0,
        json!({ "sandbox": "https://sandbox.x.example", "production": "https://api.x.example" })
    );
    assert_eq!(paired.report.changes.decisive[0].field, "base_url");
    // Some get one: these stay methods like the others, in production.
    let mut some = users.clone();
    some[0].2 = both.clone();
    let partly = import(&described(json!([live]), &some), &Options::default(), Some(&first.manifest));
    assert_eq!(
        (written(&partly).0, skipped(&partly).len()),
        (json!({ "production": "https://api.x.example" }), 0)
    );
    // One that has no sandbox is not sent to that of the others.
    let more = [&users[..], &[("/n", "new", json!([live]))]].concat();
    let without = import(&described(both, &more), &Options::default(), Some(&paired.manifest));
    assert_eq!(skipped(&without), [("POST /n".into(), "server", None)]);
}

#[test]
fn another_scheme_of_newcomers_does_not_change_the_credential_of_what_is_there() {
    let mut api = users_and_files();
    for path in ["/f1", "/f2", "/f3", "/f4", "/f5"] {
        api["paths"][path]["post"].as_object_mut().unwrap().remove("servers");
        api["paths"][path]["post"]["security"] = json!([{ "key": [] }]);
    }
    api["security"] = json!([{ "token": [] }]);
    api["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer" },
        "key": { "type": "apiKey", "in": "header", "name": "X-Key" },
    });
    let first = import(&api, &tag("users"), None);
    let second = import(&api, &tag("files"), Some(&first.manifest));
    assert_eq!(second.report.methods, 8);
    assert!(second.manifest.contains("auth = { kind = \"bearer\""), "{}", &second.manifest[..400]);
    assert!(second.report.changes.decisive.is_empty());
    assert!(second.report.notes.iter().any(|n| n.note.contains("X-Key")), "{:?}", second.report.notes);
    // Most of what is there takes another one now; then all of it does.
    for (path, kind) in [("/u1", "bearer"), ("/u2", "bearer"), ("/u3", "header")] {
        api["paths"][path]["post"]["security"] = json!([{ "key": [] }]);
        let next = import(&api, &Options::default(), Some(&first.manifest));
        assert!(next.manifest.contains(&format!("auth = {{ kind = \"{kind}\"")), "{path}");
        let told =
            next.report.changes.decisive.iter().any(|d| d.field == "auth" && d.after["kind"] == "header");
        assert_eq!(told, kind == "header");
    }
    // What is there decides what comes instead, however many newcomers take something else.
    for path in USERS {
        api["paths"][path]["post"]["security"] = json!([{ "user": [] }]);
    }
    api["components"]["securitySchemes"]["user"] = json!({ "type": "http", "scheme": "basic" });
    let next = import(&api, &tag("files"), Some(&first.manifest));
    assert!(next.report.methods == 8 && next.manifest.contains("auth = { kind = \"basic\""));
}

#[test]
fn a_manifest_is_anothers_own_by_its_address_or_by_many_operations() {
    let methods = |n: usize, at: &str| {
        let all: Vec<_> = USERS[..n].iter().map(|p| (*p, "a", Value::Null)).collect();
        described(server(at), &all)
    };
    let (one, two) = ("https://one.example", "https://two.example");
    for (n, here, at, is) in [
        (1, 1, one, true),
        (1, 1, two, false),
        (2, 2, two, false),
        (3, 2, two, false),
        (3, 2, one, true),
        (3, 3, two, true),
        (3, 1, one, false),
    ] {
        let manifest = import(&methods(n, one), &Options::default(), None).manifest;
        let read = Description::read(&methods(here, at).to_string()).unwrap();
        let shared = is.then_some(Shared { imported: n, here });
        assert_eq!(read.shared(&Methods::of(&manifest)), shared, "{n} {here} {at}");
        // What was given at the import doesn't hide where it was described.
        let given = Options { base_url: Some("https://proxy.example".into()), ..Options::default() };
        let manifest = import(&methods(n, one), &given, None).manifest;
        assert_eq!(read.shared(&Methods::of(&manifest)), shared, "{n} {here} {at}");
    }
    // By its base_url, where a manifest doesn't remember more; and with what was said of variables.
    let old = format!(
        "name = \"acme\"\nbase_url = {{ sandbox = \"{one}/\" }}\n[methods.a]\nhttp = \"POST /u1\"\nimported = {{ http = \"POST /u1\" }}\n"
    );
    let mut read = methods(1, "https://{place}.example");
    read["servers"][0]["variables"] = json!({ "place": { "default": "two" } });
    let there = Options { variables: [("place".into(), "one".into())].into(), ..Options::default() };
    let manifest = import(&read, &there, None).manifest;
    let read = Description::read(&read.to_string()).unwrap();
    assert_eq!(read.shared(&Methods::of(&manifest)), Some(Shared { imported: 1, here: 1 }));
    assert_eq!(read.shared(&Methods::of(&old)), None);
    let read = Description::read(&methods(1, one).to_string()).unwrap();
    assert_eq!(read.shared(&Methods::of(&old)), Some(Shared { imported: 1, here: 1 }));
}

#[test]
fn a_manifest_of_another_description_is_refused() {
    let one = described(server("https://one.example"), &USERS.map(|p| (p, "a", Value::Null)));
    let first = import(&one, &Options::default(), None);
    let other =
        described(server("https://two.example"), &[("/x", "a", Value::Null), ("/u1", "a", Value::Null)]);
    let apart = described(server("https://one.example"), &[("/x", "a", Value::Null)]);
    for (description, here) in [(&other, 1), (&apart, 0)] {
        let read = Description::read(&description.to_string()).unwrap();
        assert_eq!(read.shared(&Methods::of(&first.manifest)), None, "{here}");
        let refused = read.import(&Options::default(), Some(&first.manifest)).unwrap_err();
        assert!(matches!(refused, Error::Other { imported: 3, here: h } if h == here), "{refused}");
        let sure = Options { replace: true, ..Options::default() };
        let taken = read.import(&sure, Some(&first.manifest)).unwrap();
        assert_eq!(taken.report.changes.removed.len(), 3 - here);
    }
    let by_hand = "name = \"acme\"\nbase_url = \"https://hand.example\"\n[methods.own]\nhttp = \"POST /own\"\neffect = \"mutating\"\n";
    let read = Description::read(&one.to_string()).unwrap();
    assert!(matches!(
        read.import(&Options::default(), Some(by_hand)),
        Err(e @ Error::Other { imported: 0, here: 0 }) if e.to_string().contains("nothing of it was imported")
    ));
    // What is written by hand is not sent to its address by the way.
    let sure = Options { replace: true, ..Options::default() };
    let beside = read.import(&sure, Some(by_hand)).unwrap();
    assert_eq!((beside.report.methods, beside.report.skipped.len()), (1, 3));
}

#[test]
fn too_many_operations_are_an_error() {
    let mut paths = String::new();
    for i in 0..60_001 {
        paths.push_str(&format!("  /p{i}: {{ get: {{}} }}\n"));
    }
    let text = format!(
        "openapi: 3.0.0\ninfo: {{ title: a }}\nservers: [{{ url: https://a.example }}]\npaths:\n{paths}"
    );
    let refused = Description::read(&text).unwrap().import(&Options::default(), None);
    assert!(matches!(refused, Err(Error::TooMany)));
}
