//! What is asked of clients, and what they answer: forms read a second time, slowly.

use crate::input::parts;
use crate::tree::{self, Tree};
use mcp::Revision;
use mcp::input::{Answer, Ask, InputRequest, MAX_BYTES, MAX_DEPTH, check, fits, needs};
use mcp::json::{Limits, Raw};

/// Strings that begin so stand for secrets: no refusal of an answer may show one.
const SECRET: &str = "secret:";

/// A request (`{"method", "params"}`) and an answer to it. A request that is read can be written and read again, in every
/// revision that has words for it; an answer is taken exactly where the slow reading takes it, comes out again as the
/// same answer, and a refusal shows nothing of it.
///
/// # Panics
/// A promise is broken.
pub fn input_answer(data: &[u8]) {
    let [asked, given] = parts(data);
    let loose = Limits { depth: 64, unique_members: false };
    let Ok(asked) = Raw::parse(asked.to_vec(), &loose) else { return };
    let request = match InputRequest::parse("k-1", &asked) {
        Ok(request) => request,
        Err(why) => return assert!(!why.0.is_empty() && why.0.len() < 600, "{why}"),
    };
    let again = InputRequest::parse("k-1", &request.to_raw()).expect("what was written is read");
    assert_eq!(again, request);
    assert!(request.to_raw().as_str().lines().count() == 1);
    for revision in Revision::LEGACY.iter().chain(Revision::MODERN) {
        let need = Raw::of(&needs(&request, *revision)).expect("JSON");
        assert!(check([&request], &need, *revision).is_ok(), "what is needed is enough: {need}");
        let bare = Raw::parse("{}", &loose).expect("JSON");
        assert_eq!(check([&request], &bare, *revision).expect_err("it needs something").code, -32021);
        if !revision.is_legacy() {
            continue;
        }
        match request.legacy_params(*revision, "id") {
            Ok(Some(params)) => assert!(params.is_object() && params.as_str().lines().count() == 1),
            Ok(None) => assert_eq!(request.ask(), &Ask::Roots),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }

    let Ok(answer) = Raw::parse(given.to_vec(), &loose) else { return };
    let read = Answer::read(&request, &answer);
    assert_eq!(fits(&request, &answer).is_ok(), read.is_ok());
    let asked = tree::read(request.to_raw().as_str().as_bytes(), 64, true).expect("it was written");
    if let Some(expected) = takes(&asked, &answer) {
        assert_eq!(read.is_ok(), expected, "{asked:?}\n{answer}\n{read:?}");
    }
    match read {
        Ok(read) => {
            let kept = read.to_raw();
            assert_eq!(Answer::kept(&request, &kept).as_ref(), Ok(&read), "{kept}");
            assert_eq!(Answer::read(&request, &kept).map(|again| again.to_raw()), Ok(kept));
        }
        Err(why) => {
            assert!(!why.is_empty() && why.len() < 600 && !why.contains('\n'), "{why}");
            let named = asked.names(&|text| text.contains(SECRET));
            assert!(named || !why.contains(SECRET), "{why}");
        }
    }
}

/// Whether the answer fits a form or a page; `None` where this reading doesn't know.
fn takes(request: &Tree, answer: &Raw) -> Option<bool> {
    let params = request.get("params")?;
    if request.get("method")?.text()? != "elicitation/create" {
        return None;
    }
    let Some(answer) = tree::read(answer.as_str().as_bytes(), MAX_DEPTH, true)
        .filter(|tree| tree.is_object() && answer.as_str().len() <= MAX_BYTES && !has_endless_number(tree))
    else {
        return Some(false);
    };
    match answer.get("action").and_then(Tree::text) {
        Some("decline" | "cancel") => return Some(true),
        Some("accept") => {}
        _ => return Some(false),
    }
    let Some(schema) = params.get("requestedSchema") else { return Some(true) };
    let none = Tree::Object(Vec::new());
    let content = answer.get("content").unwrap_or(&none);
    if !content.is_object() {
        return Some(false);
    }
    let required: Vec<&str> = match schema.get("required") {
        Some(Tree::Array(all)) => all.iter().filter_map(Tree::text).collect(),
        _ => Vec::new(),
    };
    let Some(Tree::Object(properties)) = schema.get("properties") else { return None };
    let mut sure = true;
    for (name, schema) in properties {
        match content.get(name) {
            None if required.contains(&name.as_str()) => return Some(false),
            None => {}
            Some(value) => match property(schema, value) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => sure = false,
            },
        }
    }
    sure.then_some(true)
}

fn property(schema: &Tree, value: &Tree) -> Option<bool> {
    let bound = |word: &str| match schema.get(word) {
        Some(Tree::Number(text)) => text.parse::<f64>().ok(),
        _ => None,
    };
    let within = |n: f64, least: &str, most: &str| {
        bound(least).is_none_or(|least| n >= least) && bound(most).is_none_or(|most| n <= most)
    };
    let offered = |from: &Tree, value: &Tree| match (from.get("enum"), from.get("oneOf"), from.get("anyOf")) {
        (Some(Tree::Array(all)), ..) => all.contains(value),
        (_, Some(Tree::Array(all)), _) | (_, _, Some(Tree::Array(all))) => {
            all.iter().any(|one| one.get("const") == Some(value))
        }
        _ => false,
    };
    Some(match (schema.get("type")?.text()?, value) {
        ("string", Tree::String(_)) if schema.get("enum").or(schema.get("oneOf")).is_some() => {
            offered(schema, value)
        }
        ("string", Tree::String(text)) => {
            if !within(text.chars().count() as f64, "minLength", "maxLength") {
                return Some(false);
            }
            return schema.get("format").is_none().then_some(true);
        }
        ("boolean", Tree::Bool(_)) => true,
        (kind @ ("number" | "integer"), Tree::Number(text)) => {
            let n: f64 = text.parse().ok()?;
            // Where doubles have gaps the bounds are compared more exactly elsewhere.
            if n.abs() > 1e15
                || bound("minimum").or(bound("maximum")).is_some_and(|b| b.abs() > 1e15 || b == n)
            {
                return None;
            }
            within(n, "minimum", "maximum") && (kind == "number" || n.fract() == 0.0)
        }
        ("array", Tree::Array(all)) => {
            let items = schema.get("items")?;
            let twice = all.iter().enumerate().any(|(n, one)| all[..n].contains(one));
            !twice
                && all.iter().all(|one| one.text().is_some() && offered(items, one))
                && within(all.len() as f64, "minItems", "maxItems")
        }
        _ => false,
    })
}

fn has_endless_number(tree: &Tree) -> bool {
    match tree {
        Tree::Number(text) => text.parse::<f64>().is_ok_and(f64::is_infinite),
        Tree::Array(all) => all.iter().any(has_endless_number),
        Tree::Object(all) => all.iter().any(|(_, value)| has_endless_number(value)),
        _ => false,
    }
}
