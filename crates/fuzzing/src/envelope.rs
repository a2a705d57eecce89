//! The envelope of JSON-RPC and the scanner under it.

use crate::tree::{self, Tree};
use bytes::Bytes;
use mcp::json::{Flaw, JsonError, Limits, Raw, RawObject};
use mcp::message::{self, Message};

/// What the naive reading makes of a body.
#[derive(Debug, PartialEq)]
enum Expected<'a> {
    Refused(i64, bool),
    Request(&'a Tree, &'a str),
    Notification(&'a str),
    Response(&'a Tree, bool),
}

/// JSON-RPC 2.0 over the reference tree, in the order of the checks that the protocol leaves open.
fn expected(tree: Option<&Tree>) -> Expected<'_> {
    let Some(tree) = tree else { return Expected::Refused(-32700, false) };
    if !tree.is_object() {
        return Expected::Refused(-32600, false);
    }
    let named = tree.get("id");
    let id = named.filter(|id| id.is_id());
    let refused = |code| Expected::Refused(code, id.is_some());
    if tree.get("jsonrpc").and_then(Tree::text) != Some("2.0") || named.is_some() && id.is_none() {
        return refused(-32600);
    }
    let answers = (tree.get("result"), tree.get("error"));
    let method = match (tree.get("method"), answers, id) {
        (Some(method), _, _) => match method.text().filter(|m| !m.is_empty()) {
            Some(method) => method,
            None => return refused(-32600),
        },
        (None, (None, None), _) => return refused(-32600),
        (None, (Some(_), None) | (None, Some(_)), Some(id)) => {
            return Expected::Response(id, answers.0.is_some());
        }
        (None, ..) => return Expected::Refused(-32600, false),
    };
    match (tree.get("params"), id) {
        (Some(params), _) if !params.is_object() => refused(-32602),
        (_, Some(id)) => Expected::Request(id, method),
        (_, None) => Expected::Notification(method),
    }
}

/// A body: accepted exactly where the naive reading accepts it, with the same parts, whatever the limits.
///
/// # Panics
/// A promise is broken.
pub fn envelope(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    for (depth, unique) in [(64, true), (64, false), (3, true)] {
        let tree = tree::read(data, depth, unique);
        let limits = Limits { depth, unique_members: unique };
        match Raw::parse(body.clone(), &limits) {
            Ok(raw) => {
                let tree = tree.expect("we take what is not JSON within the limits");
                same(&raw, &tree, unique);
            }
            Err(JsonError { flaw, offset }) => {
                assert!(tree.is_none(), "we refuse JSON within the limits: {flaw} at {offset}");
                assert!(offset <= data.len(), "{flaw} at {offset}, outside of the text");
                assert!(flaw != Flaw::Duplicate || unique);
            }
        }
    }
    let tree = tree::read(data, 64, true);
    let wanted = expected(tree.as_ref());
    let params = tree.as_ref().and_then(|t| t.get("params"));
    match message::parse(&body, &Limits::default()) {
        Err(refused) => {
            let found = Expected::Refused(refused.error.code, refused.id.is_some());
            assert_eq!(found, wanted, "{}", refused.error.message);
            let answer = refused.error.to_message(refused.id.as_ref());
            let answer = tree::read(&answer, 64, true).expect("a refusal is JSON");
            let named = tree.as_ref().and_then(|t| t.get("id"));
            assert_eq!(answer.get("id"), named.filter(|_| refused.id.is_some()).or(answer.get("id")));
        }
        Ok(Message::Request(request)) => {
            let Expected::Request(id, method) = wanted else { panic!("no request but {wanted:?}") };
            assert_eq!(request.method, method);
            same(request.id.raw(), id, true);
            parameters(request.params.as_ref(), params);
        }
        Ok(Message::Notification(notification)) => {
            assert_eq!(Expected::Notification(&notification.method), wanted);
            parameters(notification.params.as_ref(), params);
        }
        Ok(Message::Response(response)) => {
            let Expected::Response(id, good) = wanted else { panic!("no response but {wanted:?}") };
            same(response.id.raw(), id, true);
            assert_eq!(response.outcome.is_ok(), good);
            let name = if good { "result" } else { "error" };
            let (Ok(value) | Err(value)) = &response.outcome;
            same(value, tree.as_ref().and_then(|t| t.get(name)).expect("it is there"), true);
        }
    }
}

fn parameters(found: Option<&RawObject>, wanted: Option<&Tree>) {
    assert_eq!(found.is_some(), wanted.is_some());
    if let (Some(found), Some(wanted)) = (found, wanted) {
        same(&found.raw(), wanted, true);
        members(found, wanted);
    }
}

/// A checked text means the tree, and so do all views of it.
fn same(raw: &Raw, tree: &Tree, unique: bool) {
    let again = |text: &str| tree::read(text.as_bytes(), 128, false).expect("a view of JSON is JSON");
    assert_eq!(&again(raw.as_str()), tree);
    let line = raw.single_line();
    assert!(!line.as_str().contains(['\n', '\r']), "more than one line");
    assert_eq!(&again(line.as_str()), tree);
    assert_eq!(raw.as_string().as_deref(), tree.text());
    assert_eq!(raw.as_bool(), if let Tree::Bool(b) = tree { Some(*b) } else { None });
    assert_eq!(raw.is_null(), *tree == Tree::Null);
    assert_eq!(raw.is_string() || raw.is_integer(), tree.is_id());
    match (raw.object(), tree) {
        (Some(object), Tree::Object(all)) => {
            members(&object, tree);
            if unique {
                spliced(&object, all);
            }
        }
        (None, tree) => assert!(!tree.is_object()),
        (Some(_), _) => panic!("members of what is no object"),
    }
}

fn members(object: &RawObject, tree: &Tree) {
    let Tree::Object(all) = tree else { panic!("not an object") };
    let found: Vec<_> = object
        .iter()
        .map(|(name, value)| {
            let value = tree::read(value.as_str().as_bytes(), 128, false).expect("a member is JSON");
            (name.into_owned(), value)
        })
        .collect();
    assert_eq!(&found, all);
    assert_eq!(object.len(), all.len());
}

/// Members that are set are set, and nothing else is touched.
fn spliced(object: &RawObject, all: &[(String, Tree)]) {
    let first = all.first().map_or("b", |(name, _)| name.as_str());
    let set = [(first, "[1]"), ("\"new\"\u{1}", "{}")];
    let mut wanted = all.to_vec();
    for (name, value) in set {
        let value = tree::read(value.as_bytes(), 2, true).expect("JSON");
        match wanted.iter_mut().find(|(n, _)| n == name) {
            Some(slot) => slot.1 = value,
            None => wanted.push((name.to_owned(), value)),
        }
    }
    let done = object.with(&set);
    let done = tree::read(done.as_str().as_bytes(), 128, true).expect("what was spliced is JSON");
    assert_eq!(done, Tree::Object(wanted));
}
