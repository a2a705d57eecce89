//! Importing again: what an operator has decided stays, whatever the provider calls its operations meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use openapi::{Description, Imported, Options, Selection};
use provider::{Format, Integration, Mode};
use serde_json::{Value, json};

/// A description; each operation has an id, if that isn't empty.
fn described(operations: &[(&str, &str, &str)]) -> Value {
    let mut paths = json!({});
    for (verb, path, id) in operations {
        let mut operation = json!({ "summary": format!("{verb} it"), "responses": {} });
        if !id.is_empty() {
            operation["operationId"] = json!(id);
        }
        let holes = path.split('{').skip(1).filter_map(|p| p.split_once('}'));
        operation["parameters"] = holes
            .map(|(name, _)| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
            .collect();
        if paths[path].is_null() {
            paths[path] = json!({});
        }
        paths[path][verb] = operation;
    }
    json!({ "openapi": "3.0.3", "info": { "title": "Acme" }, "servers": [{ "url": "https://a.example" }], "paths": paths })
}

fn import(description: &Value, existing: Option<&str>) -> Imported {
    let read = Description::read(&description.to_string()).unwrap();
    let imported = read.import(&Options::default(), existing).unwrap();
    let again = read.import(&Options::default(), Some(&imported.manifest)).unwrap();
    assert_eq!(again.manifest, imported.manifest, "once more changes nothing");
    assert!(again.report.changes.is_empty(), "{:?}", again.report.changes);
    imported
}

fn methods(imported: &Imported) -> Vec<String> {
    let manifest: toml_edit::DocumentMut = imported.manifest.parse().unwrap();
    manifest["methods"].as_table().unwrap().iter().map(|(name, _)| name.to_owned()).collect()
}

/// A manifest without one of its methods.
fn without(manifest: &str, method: &str) -> String {
    let mut document: toml_edit::DocumentMut = manifest.parse().unwrap();
    document["methods"].as_table_mut().unwrap().remove(method).unwrap();
    document.to_string()
}

/// As an earlier version wrote it: verbs and paths, and no ids.
fn earlier(manifest: &str) -> String {
    let mut document: toml_edit::DocumentMut = manifest.parse().unwrap();
    let imported = document["imported"].as_table_mut().unwrap();
    let of = |o: &toml_edit::Value| match o.as_inline_table() {
        Some(table) => table["http"].as_str().unwrap().to_owned(),
        None => o.as_str().unwrap().to_owned(),
    };
    let operations: toml_edit::Array = imported["operations"].as_array().unwrap().iter().map(of).collect();
    imported["operations"] = toml_edit::value(operations);
    imported.remove("server");
    document.to_string()
}

const USERS: [(&str, &str, &str); 3] = [
    ("get", "/users", "users.list"),
    ("get", "/users/{id}", "users.get"),
    ("delete", "/users/{id}", "users.delete"),
];

#[test]
fn what_was_taken_out_stays_out() {
    let first = import(&described(&USERS), None);
    let taken = without(&first.manifest, "users.delete");
    let renamed =
        USERS.map(|(verb, path, id)| (verb, if path == "/users" { path } else { "/users/{userId}" }, id));
    let moved =
        USERS.map(|(verb, path, id)| (verb, if path == "/users" { path } else { "/v2/people/{id}" }, id));
    for (what, next, old) in [
        ("a hole has another name", renamed, taken.clone()),
        ("a hole has another name, after an earlier version", renamed, earlier(&taken)),
        ("it is at another path, with its id", moved, taken.clone()),
    ] {
        let second = import(&described(&next), Some(&old));
        assert_eq!(methods(&second), ["users.list", "users.get"], "{what}");
        assert_eq!(second.report.changes.left_out.len(), 1, "{what}");
        assert!(second.report.changes.added.is_empty(), "{what}");
        // Not for a version is it forgotten, and neither what it was called then.
        let gone = import(&described(&next[..2]), Some(&second.manifest));
        for back in [&next, &USERS] {
            let back = import(&described(back), Some(&gone.manifest));
            assert_eq!(methods(&back), ["users.list", "users.get"], "{what}");
        }
        // Named by itself it comes back, and stays.
        let named = Options {
            selection: Selection { operations: vec!["users.delete".into()], ..Selection::default() },
            ..Options::default()
        };
        let read = Description::read(&described(&next).to_string()).unwrap();
        let back = read.import(&named, Some(&gone.manifest)).unwrap();
        assert_eq!(back.report.changes.added, ["users.delete"], "{what}");
        assert_eq!(methods(&import(&described(&next), Some(&back.manifest))).len(), 3, "{what}");
    }
}

#[test]
fn what_the_provider_took_out_comes_back_with_it() {
    let first = import(&described(&USERS), None);
    let second = import(&described(&USERS[..2]), Some(&first.manifest));
    assert_eq!(second.report.changes.removed, ["users.delete"]);
    let third = import(&described(&USERS), Some(&second.manifest));
    assert_eq!((third.report.changes.added.len(), third.report.changes.left_out.len()), (1, 0));
}

#[test]
fn without_ids_a_hole_of_another_name_is_no_other_operation() {
    let plain = |hole: &str| {
        let path = format!("/users/{{{hole}}}");
        described(&[("get", "/users", ""), ("get", &path, ""), ("delete", &path, "")])
    };
    let first = import(&plain("id"), None);
    let edited = first.manifest.replacen(
        "[methods.\"users.id.delete\"]\n",
        "[methods.\"users.id.delete\"]\nrecovery = \"none\"\n",
        1,
    );
    assert_ne!(edited, first.manifest);
    let second = import(&plain("user_id"), Some(&edited));
    assert_eq!(methods(&second), methods(&first));
    let changes = &second.report.changes;
    assert!(changes.added.is_empty() && changes.removed.is_empty(), "{changes:?}");
    assert!(changes.changed["users.id.delete"].contains(&"http".to_owned()));
    assert!(second.manifest.contains("recovery = \"none\""));
    // Two of one shape are told apart by what they are called, and by nothing else.
    let two = described(&[("get", "/a/{x}", ""), ("get", "/a/{y}", "")]);
    let first = import(&two, None);
    let second = import(&described(&[("get", "/a/{y}", ""), ("get", "/a/{z}", "")]), Some(&first.manifest));
    assert_eq!(methods(&second), ["a.x.get", "a.y.get"]);
    assert!(second.manifest.contains("GET /a/{z}"), "{}", second.manifest);
}

#[test]
fn a_copy_takes_no_name_from_what_it_was_copied_from() {
    let first = import(&described(&USERS), None).manifest;
    let document: toml_edit::DocumentMut = first.parse().unwrap();
    let mut copied = document.clone();
    let methods = copied["methods"].as_table_mut().unwrap();
    let mut copy = document["methods"]["users.get"].as_table().unwrap().clone();
    copy.set_position(None);
    copy["description"] = toml_edit::value("a smaller one");
    methods.insert("users.get_small", toml_edit::Item::Table(copy));
    let renamed =
        USERS.map(|(verb, path, id)| (verb, if path == "/users" { path } else { "/users/{userId}" }, id));
    let again = import(&described(&renamed), Some(&copied.to_string()));
    let mut all = methods_sorted(&again);
    assert_eq!(all, ["users.delete", "users.get", "users.get_small", "users.list"]);
    assert!(again.report.changes.added.is_empty() && again.report.changes.removed.is_empty());
    let now: toml_edit::DocumentMut = again.manifest.parse().unwrap();
    assert_eq!(now["methods"]["users.get"]["http"].as_str(), Some("GET /users/{userId}"));
    assert_eq!(now["methods"]["users.get_small"]["description"].as_str(), Some("a smaller one"));
    // One that only has another name is a copy too.
    copied["methods"]["users.get_small"]["description"] =
        document["methods"]["users.get"]["description"].clone();
    let again = import(&described(&renamed), Some(&copied.to_string()));
    all = methods_sorted(&import(&described(&renamed), Some(&again.manifest)));
    assert_eq!(all, ["users.delete", "users.get", "users.get_small", "users.list"]);
}

fn methods_sorted(imported: &Imported) -> Vec<String> {
    let mut all = methods(imported);
    all.sort();
    all
}

#[test]
fn comments_stay() {
    let first = import(&described(&USERS), None).manifest;
    let edited = first
        .replacen("title = \"Acme\"", "title = \"Acme\" # ours", 1)
        .replacen("[methods.\"users.get\"]", "# [methods.old] off, see #12\n[methods.\"users.get\"]", 1)
        .replacen("effect = \"mutating\"", "# mind this\neffect = \"mutating\" # checked by Ann", 1)
        .replacen("natural = {}", "# it repeats\nnatural = {} # checked by Bob", 1)
        .replacen("\n[imported]\n", "\n# [methods.x] off, see #13\n[imported]\n", 1)
        + "# the end\n";
    let comments = |text: &str| {
        let mut all: Vec<String> =
            text.lines().filter_map(|l| l.split_once('#')).map(|(_, c)| c.into()).collect();
        all.sort();
        all
    };
    let all = comments(&edited);
    assert_eq!(all.len(), 1 + 8);
    // Nothing has changed.
    let same = import(&described(&USERS), Some(&edited));
    assert_eq!(same.manifest, edited);
    // Values under comments change, a field goes, and a method.
    let mut next = described(&[USERS[0], USERS[2]]);
    next["info"]["title"] = json!("Acme 2");
    next["paths"]["/users/{id}"]["delete"]["parameters"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "Idempotency-Key", "in": "header", "schema": { "type": "string" } }));
    let second = import(&next, Some(&edited));
    assert!(second.manifest.contains("title = \"Acme 2\" # ours"), "{}", second.manifest);
    assert!(!second.manifest.contains("natural = {}"));
    assert_eq!(comments(&second.manifest), all, "{}", second.manifest);
    let above = second.manifest.split("\n[imported]\n").next().unwrap();
    assert!(above.ends_with("# [methods.x] off, see #13\n# [methods.old] off, see #12"), "{above}");
    // Another effect under a comment.
    let read = json!({ "get": next["paths"]["/users/{id}"]["delete"] });
    let mut third = next.clone();
    third["paths"]["/users/{id}"] = read;
    third["paths"]["/users/{id}"]["get"]["operationId"] = json!("users.delete");
    third["paths"]["/users/{id}"]["get"]["summary"] = json!("Get it");
    let third = import(&third, Some(&second.manifest));
    assert!(third.manifest.contains("# mind this\neffect = \"read\" # checked by Ann"), "{}", third.manifest);
    assert_eq!(comments(&third.manifest), all);
    // What decides is told with what it was and is.
    let told: Vec<(&str, &Value, &Value)> =
        third.report.changes.decisive.iter().map(|d| (d.field.as_str(), &d.before, &d.after)).collect();
    assert!(told.contains(&("effect", &json!("mutating"), &json!("read"))), "{told:?}");
    assert!(told.iter().any(|t| t.0 == "http") && told.iter().any(|t| t.0 == "idempotency" && t.2.is_null()));
}

#[test]
fn tables_that_an_operator_wrote_out_keep_their_comments() {
    let first = import(&described(&USERS), None).manifest;
    let list = first.find("base_url = ").unwrap();
    let line = &first[list..list + first[list..].find('\n').unwrap()];
    let edited = first.replacen(
        line,
        "base_url = { # ours\n  production = \"https://a.example\", # the live one\n}",
        1,
    );
    let mut next = described(&USERS);
    next["servers"] = json!([{ "url": "https://b.example" }]);
    let second = import(&next, Some(&edited));
    assert!(second.manifest.contains("https://b.example"));
    for comment in ["# ours", "# the live one"] {
        assert!(second.manifest.contains(comment), "{}", second.manifest);
    }
}

#[test]
fn one_edited_method_does_not_stop_the_others() {
    let first = import(&described(&USERS), None).manifest;
    // An operator has narrowed what the deletion takes.
    let mut document: toml_edit::DocumentMut = first.parse().unwrap();
    let delete = document["methods"]["users.delete"].as_table_mut().unwrap();
    let own = json!({ "type": "object", "properties": { "id": { "type": "string", "maxLength": 8 } },
        "required": ["id"], "additionalProperties": false });
    delete["input"] = toml_edit::value(own.to_string());
    let renamed =
        [USERS[0], ("get", "/users/{user}", "users.get"), ("delete", "/users/{user}", "users.delete")];
    let second = import(&described(&renamed), Some(&document.to_string()));
    let skipped: Vec<(&str, &str, Option<&str>)> = (second.report.skipped.iter())
        .map(|s| (s.operation.as_str(), s.reason.word(), s.stays.as_deref()))
        .collect();
    assert_eq!(skipped, [("DELETE /users/{user}", "conflict", Some("users.delete"))]);
    assert!(second.report.skipped[0].detail.contains("users.delete"), "{:?}", second.report.skipped);
    assert!(second.report.changes.changed["users.get"].contains(&"http".to_owned()));
    let api = Integration::parse("m", &second.manifest, Format::Toml, Mode::Production).unwrap();
    let as_it_was = api.method("users.delete").unwrap().input_schema();
    assert_eq!(as_it_was["properties"]["id"]["maxLength"], 8);
}
