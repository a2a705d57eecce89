//! How a list is read page by page, as far as a description tells: which argument takes one further, and what in an answer
//! says where and whether there is more.

use crate::document::{Document, list, text};
use crate::parameters::Argument;
use serde_json::{Map, Value};

/// How deep an answer is searched for what tells of the next page.
const MAX_DEPTH: usize = 2;
/// The most members of an answer that are looked at.
const MAX_MEMBERS: usize = 200;
/// The longest name that is repeated.
const MAX_NAME: usize = 80;

/// Arguments that take a cursor.
const CURSORS: [&str; 17] = [
    "cursor",
    "pagecursor",
    "nextcursor",
    "pagetoken",
    "nextpagetoken",
    "nexttoken",
    "continuationtoken",
    "continuation",
    "skiptoken",
    "startingafter",
    "after",
    "pageafter",
    "marker",
    "bookmark",
    "scrollid",
    "exclusivestartkey",
    "pageid",
];
/// Arguments that take the number of a page.
const NUMBERS: [&str; 7] =
    ["page", "pagenumber", "pageno", "pagenum", "pageindex", "currentpage", "pagepage"];
/// Arguments that take how many are passed over.
const OFFSETS: [&str; 7] = ["offset", "skip", "start", "startindex", "startat", "pageoffset", "firstresult"];
/// Arguments that take how many a page has.
const SIZES: [&str; 13] = [
    "limit",
    "pagelimit",
    "perpage",
    "pagesize",
    "itemsperpage",
    "maxresults",
    "maxitems",
    "count",
    "top",
    "size",
    "first",
    "pageperpage",
    "max",
];
/// Members of an answer that hold the next page's cursor or address.
const NEXT: [&str; 17] = [
    "next",
    "nextcursor",
    "nextpage",
    "nextpagetoken",
    "nexttoken",
    "nextlink",
    "nexturl",
    "nextpageurl",
    "nextpageuri",
    "nexturi",
    "nextmarker",
    "nextoffset",
    "endcursor",
    "odatanextlink",
    "continuationtoken",
    "nextrecordsurl",
    "lastevaluatedkey",
];
/// Members of an answer that say whether there is more.
const MORE: [&str; 8] = [
    "hasmore",
    "hasnext",
    "hasnextpage",
    "more",
    "istruncated",
    "moreitems",
    "moreresultsavailable",
    "incomplete",
];
/// Words that alone say nothing of pages.
const AMBIGUOUS: [&str; 12] = [
    "after",
    "marker",
    "start",
    "first",
    "count",
    "size",
    "max",
    "top",
    "next",
    "more",
    "continuation",
    "pageid",
];
/// Extensions in which publishers say more.
const EXTENSIONS: [&str; 5] =
    ["x-ms-pageable", "x-pagination", "x-speakeasy-pagination", "x-fern-pagination", "x-client-paginated"];

/// The letters and digits of a name, in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// What an answer says of pages: JSON pointers.
#[derive(Default)]
struct Answer {
    next: Option<String>,
    more: Option<String>,
}

/// A sentence for models and people; `None` where nothing tells of pages.
pub(crate) fn hint(document: &Document<'_>, operation: &Value, arguments: &[Argument<'_>]) -> Option<String> {
    let mut answer = answered(document, operation);
    let extension = EXTENSIONS.iter().find_map(|name| operation.get(name));
    let mut said = Vec::new();
    if let Some(extension) = extension {
        named(extension, &mut said, 3);
        let at = |key: &str| said.iter().find(|(k, _)| plain(k) == key).map(|(_, v)| v.as_str());
        if let Some(next) = at("nextlinkname").or(at("nextcursor")).or(at("nexturl")).or(at("next")) {
            answer.next = Some(pointer(next));
        }
    }
    let takes = |names: &[&str]| {
        arguments.iter().find(|a| {
            matches!(a.place, "query" | "body" | "header") && names.contains(&plain(&a.original).as_str())
        })
    };
    let (cursor, number, offset) = (takes(&CURSORS), takes(&NUMBERS), takes(&OFFSETS));
    let size = takes(&SIZES);
    let clear =
        |a: Option<&Argument<'_>>| a.is_some_and(|a| !AMBIGUOUS.contains(&plain(&a.original).as_str()));
    let tells =
        answer.next.is_some() || answer.more.is_some() || extension.is_some_and(|e| e != &Value::Bool(false));
    let moves = cursor.or(number).or(offset);
    // A word that may mean something else needs another that agrees.
    let sure = tells && (moves.is_some() || size.is_some() || answer.next.is_some())
        || clear(moves)
        || (moves.is_some() && clear(size));
    if !sure {
        return None;
    }
    let next = answer.next.as_deref();
    let mut told = match (cursor, number, offset, next) {
        (Some(c), _, _, Some(at)) => format!(
            "Results come in pages: for the next one give `{}` what is at `{at}` of the result",
            c.name
        ),
        (Some(c), ..) => {
            format!("Results come in pages: for the next one give `{}` the cursor of the result", c.name)
        }
        (_, Some(p), ..) => format!("Results come in pages: `{}` says which", p.name),
        (_, _, Some(o), _) => {
            format!("Results come in pages: for the next one raise `{}` by as many as came", o.name)
        }
        (.., Some(at)) => format!("Results come in pages: `{at}` of the result leads to the next"),
        _ => size.map(|s| format!("Results come in pages of `{}`", s.name))?,
    };
    if let Some(s) = size.filter(|_| moves.is_some() || next.is_some()) {
        told.push_str(&format!("; `{}` is how many a page has", s.name));
    }
    match (&answer.more, next) {
        (Some(more), _) => told.push_str(&format!("; `{more}` says whether there are more")),
        (None, Some(at)) if cursor.is_none() && (number.is_some() || offset.is_some()) => {
            told.push_str(&format!("; without `{at}` it was the last"));
        }
        _ => {}
    }
    told.push('.');
    Some(told)
}

/// A name or a path of a publisher's extension as a JSON pointer.
fn pointer(said: &str) -> String {
    let path = said.trim_start_matches("$response.").trim_start_matches("$.").trim_start_matches('$');
    match path.starts_with('/') {
        true => path.chars().take(MAX_NAME).collect(),
        // A name may have a dot of its own: `@odata.nextLink`.
        false if path.starts_with('@') => format!("/{path:.MAX_NAME$}"),
        false => format!("/{:.MAX_NAME$}", path.replace('.', "/")),
    }
}

/// All texts of an extension, by their names.
fn named(value: &Value, out: &mut Vec<(String, String)>, depth: usize) {
    for (name, value) in value.as_object().into_iter().flatten().take(MAX_MEMBERS) {
        match value {
            Value::String(text) if text.len() <= MAX_NAME => out.push((name.clone(), text.clone())),
            Value::Object(_) if depth > 0 => named(value, out, depth - 1),
            _ => {}
        }
    }
}

/// What the answer to a success says of pages.
fn answered(document: &Document<'_>, operation: &Value) -> Answer {
    let mut answer = Answer::default();
    let responses = operation.get("responses").and_then(Value::as_object).into_iter().flatten();
    for (_, response) in responses.take(64).filter(|(status, _)| status.starts_with('2')) {
        let content =
            document.resolve(response).ok().and_then(|r| r.get("content")).and_then(Value::as_object);
        let json = content.into_iter().flat_map(Map::iter).find(|(media, _)| media.contains("json"));
        if let Some(schema) = json.and_then(|(_, media)| media.get("schema")) {
            search(document, schema, "", MAX_DEPTH, &mut answer);
        }
    }
    answer
}

fn search(document: &Document<'_>, schema: &Value, at: &str, depth: usize, out: &mut Answer) {
    let Ok(schema) = document.resolve(schema) else { return };
    for part in list(schema, "allOf").iter().take(16) {
        if depth > 0 {
            search(document, part, at, depth - 1, out);
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in
        properties.into_iter().flatten().take(MAX_MEMBERS).filter(|(n, _)| n.len() <= MAX_NAME)
    {
        let here = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        let word = plain(name);
        let property = document.resolve(property).unwrap_or(property);
        let kind = text(property, "type").unwrap_or_default();
        let nested = kind == "object" || property.get("properties").is_some();
        if out.next.is_none()
            && NEXT.contains(&word.as_str())
            && !nested
            && kind != "array"
            && kind != "boolean"
        {
            out.next = Some(here.clone());
        }
        if out.more.is_none() && MORE.contains(&word.as_str()) && kind == "boolean" {
            out.more = Some(here.clone());
        }
        let holds = [
            "links",
            "meta",
            "metadata",
            "pagination",
            "paging",
            "page",
            "pageinfo",
            "cursor",
            "cursors",
            "responsemetadata",
            "next",
        ];
        if depth > 0 && holds.contains(&word.as_str()) {
            search(document, property, &here, depth - 1, out);
        }
    }
}
