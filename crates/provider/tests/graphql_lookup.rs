//! Look-ups that are GraphQL queries, against a provider that pages as connections do: an effect whose answer was lost is
//! found, one that was not applied is sent again, and an answer that says nothing leaves the doubt.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod simulated;

use counterfoil_provider::{Format, Integration, Mode};
use serde_json::{Value, json};
use simulated::{Asked, Behaviour, Fault, Outcome, Reply, Simulated, call};
use std::sync::Mutex;

const SHOP: &str = r#"
name = "shop"
base_url = "BASE"
[auth]
kind = "bearer"
secret = "${env:TOKEN}"
[execution_policy.retries]
initial_backoff = "5ms"
max_backoff = "40ms"
[methods.note]
http = "POST /graphql"
graphql = 'mutation N($order: ID!, $input: NoteInput!) { noteCreate(order: $order, input: $input) { note { id text } } }'
input = { type = "object", properties = { order = { type = "string" }, text = { type = "string" } }, required = ["order"] }
marker = { field = "input.text", text = "{args.text} [{marker}]" }
[methods.note.lookup]
graphql = '''
query L($order: ID!, $filter: String, $after: String) {
  notes(order: $order, query: $filter, after: $after) { nodes { id text } pageInfo { hasNextPage endCursor } }
}
'''
variables = { order = "{args.order}", filter = "text:{marker}" }
items = "/data/notes/nodes"
match = { "/text" = { contains = "{marker}" } }
more = "/data/notes/pageInfo/hasNextPage"
next = { at = "/data/notes/pageInfo/endCursor", variable = "after" }
pages = 3
visibility_lag = "60ms"
processing_bound = "60ms"
"#;

/// Orders and texts.
type All = Vec<(String, String)>;

/// Notes of orders, the newest first.
#[derive(Default)]
struct Notes {
    all: Mutex<All>,
    page: usize,
    /// What somebody else does right after a creation.
    then: Mutex<Option<fn(&mut All)>>,
    /// Answers of queries in place of the ordinary ones, from now on.
    instead: Mutex<Option<Reply>>,
}

impl Behaviour for Notes {
    fn creates(&self, a: &Asked) -> bool {
        a.json()["query"].as_str().unwrap().starts_with("mutation")
    }

    fn answer(&self, a: &Asked, _: i64) -> Reply {
        assert_eq!((&*a.method, &*a.path), ("POST", "/graphql"));
        assert_eq!(
            (&*a.headers["authorization"], &*a.headers["content-type"]),
            ("Bearer token", "application/json")
        );
        let (body, mut all) = (a.json(), self.all.lock().unwrap());
        let of = |name: &str| body["variables"][name].as_str().map(str::to_owned);
        let order = of("order").unwrap();
        if self.creates(a) {
            let text = body["variables"]["input"]["text"].as_str().unwrap().to_owned();
            all.push((order, text.clone()));
            if let Some(then) = *self.then.lock().unwrap() {
                then(&mut all);
            }
            return Reply::of(
                200,
                &json!({ "data": { "noteCreate": { "note": { "id": all.len(), "text": text } } } }),
            );
        }
        if let Some(reply) = &*self.instead.lock().unwrap() {
            return reply.clone();
        }
        // A filter that it does not keep to: it is `match` that decides.
        assert!(of("filter").unwrap().starts_with("text:"));
        let shown: Vec<(usize, &(String, String))> =
            all.iter().enumerate().rev().filter(|(_, n)| n.0 == order).collect();
        let from = of("after").map_or(0, |c| c.strip_prefix("after ").unwrap().parse::<usize>().unwrap());
        let page: Vec<Value> =
            shown.iter().skip(from).take(self.page).map(|(id, n)| json!({ "id": id, "text": n.1 })).collect();
        let end = from + page.len();
        // Behind the last one there is a cursor, too.
        let cursor = if page.is_empty() { Value::Null } else { json!(format!("after {end}")) };
        let info = json!({ "hasNextPage": end < shown.len(), "endCursor": cursor });
        Reply::of(200, &json!({ "data": { "notes": { "nodes": page, "pageInfo": info } } }))
    }
}

async fn shop(page: usize) -> (Simulated<Notes>, Integration) {
    let s = Simulated::start(Notes { page, ..Notes::default() }).await;
    let text = SHOP.replace("BASE", &s.base);
    let i =
        Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox).unwrap_or_else(|e| panic!("{e}"));
    (s, i)
}

fn note() -> Value {
    json!({ "order": "gid://shop/Order/7\"", "text": "call \"back\"" })
}

fn of(o: &Outcome, word: &str, sends: u32) {
    assert_eq!((o.word.as_str(), o.sends), (word, sends), "{o:#?}");
}

fn queries(s: &Simulated<Notes>) -> usize {
    let all = s.seen.lock().unwrap().len();
    all - s.creations()
}

#[tokio::test]
async fn a_lost_answer_is_found() {
    let (s, i) = shop(2).await;
    of(&call(&i, "note", &note()).await, "result", 1);
    assert_eq!(queries(&s), 0);
    s.next([Fault::LostReply]);
    let o = call(&i, "note", &note()).await;
    of(&o, "result", 1);
    assert!(o.text.contains("call") && !o.several, "{o:?}");
    assert_eq!((s.creations(), s.does.all.lock().unwrap().len()), (2, 2));
    // The question has its own variables, and nothing else of the request.
    let asked = s.seen.lock().unwrap().last().unwrap().json();
    assert_eq!(asked["variables"]["order"], note()["order"]);
    assert_eq!(asked["variables"].as_object().unwrap().len(), 2, "{asked}");
}

#[tokio::test]
async fn a_lost_request_is_sent_once_more() {
    let (s, i) = shop(2).await;
    s.next([Fault::LostRequest]);
    of(&call(&i, "note", &note()).await, "result", 2);
    assert_eq!((s.creations(), s.does.all.lock().unwrap().len()), (2, 1));
    // The last page is not asked for again because there is a cursor behind it.
    s.does.all.lock().unwrap().push((note()["order"].as_str().unwrap().into(), "of another".into()));
    let before = queries(&s);
    s.next([Fault::LostRequest]);
    of(&call(&i, "note", &note()).await, "result", 2);
    assert!(s.seen.lock().unwrap().iter().all(|a| a.json()["variables"].get("after").is_none()));
    assert!(queries(&s) > before);
}

#[tokio::test]
async fn it_is_found_on_a_later_page_and_not_beyond_the_last_that_is_read() {
    fn others(all: &mut All, n: usize) {
        let order = note()["order"].as_str().unwrap().to_owned();
        (0..n).for_each(|k| all.push((order.clone(), format!("of another {k}"))));
    }
    let (s, i) = shop(2).await;
    *s.does.then.lock().unwrap() = Some(|all| others(all, 5));
    s.next([Fault::LostReply]);
    of(&call(&i, "note", &note()).await, "result", 1);
    let cursors: Vec<Value> =
        s.seen.lock().unwrap().iter().map(|a| a.json()["variables"]["after"].clone()).collect();
    assert_eq!(cursors, [Value::Null, Value::Null, json!("after 2"), json!("after 4")]);
    // Nothing on three pages, and there is a fourth.
    let (s, i) = shop(2).await;
    others(&mut s.does.all.lock().unwrap(), 7);
    s.next([Fault::LostRequest]);
    let o = call(&i, "note", &note()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("further pages"), "{o:?}");
}

#[tokio::test]
async fn an_answer_that_says_nothing_leaves_the_doubt() {
    let page = json!({ "nodes": [], "pageInfo": { "hasNextPage": false, "endCursor": null } });
    let error = json!([{ "message": "throttled", "extensions": { "code": "THROTTLED" } }]);
    let entries = |nodes: Value| {
        let info = json!({ "hasNextPage": false, "endCursor": null });
        Reply::of(200, &json!({ "data": { "notes": { "nodes": nodes, "pageInfo": info } } }))
    };
    let cases = [
        // It could not be read, or what is compared was not selected: it may be the effect.
        (entries(json!([null])), "does not have what"),
        (entries(json!([{ "id": 1, "body": "call" }])), "does not have what"),
        (entries(json!([{ "id": 1, "text": "of another" }, {}])), "does not have what"),
        (entries(json!(["call"])), "does not have what"),
        (Reply::of(200, &json!({ "errors": error })), "with errors"),
        (Reply::of(200, &json!({ "errors": error, "data": null })), "with errors"),
        // A part of it failed: what it shows need not be all.
        (Reply::of(200, &json!({ "errors": error, "data": { "notes": page } })), "with errors"),
        (Reply::of(200, &json!({ "errors": "no", "data": { "notes": page } })), "with errors"),
        (Reply::of(200, &json!({ "data": null })), "without data"),
        (Reply::of(200, &json!({ "data": { "notes": null } })), "does not say at"),
        (Reply::of(200, &json!({ "data": { "notes": { "nodes": [] } } })), "does not say at"),
        (
            Reply::of(
                200,
                &json!({ "data": { "notes": { "nodes": [], "pageInfo": { "hasNextPage": null } } } }),
            ),
            "does not say at",
        ),
        (
            Reply::of(
                200,
                &json!({ "data": { "notes": { "nodes": null, "pageInfo": { "hasNextPage": false } } } }),
            ),
            "no list",
        ),
        (Reply::of(200, &json!([])), "without data"),
        (Reply { status: 200, headers: Vec::new(), body: "<h1>hello</h1>".into() }, "not JSON"),
        (Reply::of(500, &json!({ "data": { "notes": page } })), "answered 500"),
        (Reply::of(401, &json!({})), "answered 401"),
    ];
    let all = cases.map(|(reply, why)| async move {
        let (s, i) = shop(2).await;
        *s.does.instead.lock().unwrap() = Some(reply);
        s.next([Fault::LostRequest]);
        let o = call(&i, "note", &note()).await;
        of(&o, "in_doubt", 1);
        assert!(o.why.contains(why), "{why}: {o:?}");
        assert_eq!(s.creations(), 1);
    });
    futures_util::future::join_all(all).await;
    // An entry whose text is null was read, and is not the effect.
    let (s, i) = shop(2).await;
    *s.does.instead.lock().unwrap() = Some(entries(json!([{ "id": 1, "text": null }])));
    s.next([Fault::LostRequest]);
    of(&call(&i, "note", &note()).await, "result", 2);
}

#[tokio::test]
async fn two_that_bear_the_marker_raise_an_alert() {
    let (s, i) = shop(5).await;
    *s.does.then.lock().unwrap() = Some(|all| {
        let (order, text) = all[0].clone();
        all.push((order, format!("> {text}")));
    });
    s.next([Fault::LostReply]);
    let o = call(&i, "note", &note()).await;
    assert!(o.several && o.sends == 1, "{o:?}");
}

#[tokio::test]
async fn variables_are_values_and_never_a_part_of_the_document() {
    let (_, i) = shop(1).await;
    let m = i.method("note").unwrap();
    let intent = m.intent(&note().to_string(), &m.recovery(None).unwrap()).unwrap();
    let record: Value = serde_json::from_slice(&intent.body).unwrap();
    let plan = &record["lookup"]["graphql"];
    assert_eq!(
        plan["variables"],
        json!([["order", ["\"gid://shop/Order/7\\\"\""]], ["filter", ["\"text:", "\""]]])
    );
    assert!(!plan["document"].as_str().unwrap().contains("gid:"), "{plan}");
    // An argument by itself keeps its type and digits; what was not given is left out.
    let text = SHOP
        .replace("BASE", "http://127.0.0.1:1")
        .replace("$order: ID!, $filter: String,", "$order: ID, $n: Float, $s: String,")
        .replace(
            "order = \"{args.order}\", filter = \"text:{marker}\"",
            "n = \"{args.n}\", s = \"{args.n} {args.gone}\", order = \"{args.gone}\"",
        )
        .replace(
            "order = { type = \"string\" }, text",
            "n = { type = \"number\" }, gone = {}, order = { type = \"string\" }, text",
        )
        .replace("$order: ID!, $input", "$order: ID!, $n: Int, $gone: Int, $input");
    let i =
        Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox).unwrap_or_else(|e| panic!("{e}"));
    let m = i.method("note").unwrap();
    let intent = m.intent(r#"{"order":"o","n":1.50}"#, &m.recovery(None).unwrap()).unwrap();
    let record: Value = serde_json::from_slice(&intent.body).unwrap();
    assert_eq!(record["lookup"]["graphql"]["variables"].to_string(), r#"[["n",["1.50"]]]"#);
}

#[test]
fn a_variable_is_filled_though_the_marker_takes_it_up() {
    let body = |arguments: &str, field: &str, more: &str, args: &str| {
        let text = SHOP
            .replace("BASE", "http://127.0.0.1:1")
            .replace("$input: NoteInput!", arguments)
            .replace("field = \"input.text\"", &format!("field = \"{field}\""))
            .replace("\nmarker", &format!("\n{more}\nmarker"));
        let i = Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox)
            .unwrap_or_else(|e| panic!("{e}"));
        let m = i.method("note").unwrap();
        let intent = m.intent(args, &m.recovery(None).unwrap()).unwrap();
        let record: Value = serde_json::from_slice(&intent.body).unwrap();
        let pieces: Vec<&str> =
            record["body"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        serde_json::from_str::<Value>(&pieces.join("KEY")).unwrap()["variables"].clone()
    };
    let args = r#"{"order":"o","text":"t"}"#;
    let both = json!({ "order": "o", "text": "t", "body": "t [KEY]" });
    assert_eq!(body("$text: String!, $body: String!", "body", "", args), both);
    // Where somebody placed it; and nowhere else where the marker stands.
    let placed = "params = { text = \"variable:title\" }";
    let both = json!({ "order": "o", "title": "t", "body": "t [KEY]" });
    assert_eq!(body("$title: String!, $body: String!", "body", placed, args), both);
    assert_eq!(body("$text: String!", "text", "", args), json!({ "order": "o", "text": "t [KEY]" }));
    assert_eq!(body("$body: String!", "body", "", args), json!({ "order": "o", "body": "t [KEY]" }));
}

#[test]
fn what_can_t_be_asked_is_refused_at_start() {
    let refused = |from: &str, to: &str| {
        assert!(SHOP.contains(from), "{from}");
        let text = SHOP.replace("BASE", "http://127.0.0.1:1").replace(from, to);
        match Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox) {
            Err(e) => e.to_string(),
            Ok(_) => panic!("taken: {to}"),
        }
    };
    for (from, to, why) in [
        ("query L(", "mutation L(", "is a query"),
        ("query L($order: ID!", "query L($order: ID!, $must: Int!", "needs the variable $must"),
        ("$after: String)", "$after: String!)", "first page has no cursor"),
        ("filter = \"text", "sieve = \"text", "declares no variable $sieve"),
        ("variable = \"after\"", "variable = \"before\"", "declares no variable $before"),
        ("filter = \"text:{marker}\"", "after = \"x\"", "takes the cursor"),
        ("items = \"/data/notes/nodes\"", "items = \"/notes\"", "needs `items`"),
        ("items = \"/data/notes/nodes\"\n", "", "needs `items`"),
        ("more = \"/data/notes/pageInfo/hasNextPage\"\n", "", "needs `more`"),
        (
            "next = { at = \"/data/notes/pageInfo/endCursor\", variable",
            "next = { at = \"/data/notes/pageInfo/endCursor\", query",
            "asked for by a variable",
        ),
        ("variable = \"after\" }", "variable = \"after\", query = \"after\" }", "needs a cursor's place"),
        (
            "next = { at = \"/data/notes/pageInfo/endCursor\", variable = \"after\" }",
            "next = { link = \"next\" }",
            "asked for by a variable",
        ),
        ("text:{marker}", "{since}", "unknown here"),
        ("text:{marker}", "{$key}", "unknown here"),
        ("pages = 3", "fetch = { http = \"GET /n/{item}\", at = \"/id\" }", "`fetch` is for a GET"),
        ("pages = 3", "http = \"GET /graphql\"", "goes out with POST"),
        ("query L(", "query L @x(k: \"{$key}\") {a} query M(", "two operations"),
        ("nodes { id text }", "nodes(k: \"{$key}\") { id text }", "nowhere else"),
        // The marker is a variable, or a field of one, and no argument.
        ("field = \"input.text\"", "field = \"entry.text\"", "declares no variable $entry"),
        ("{args.text} [", "{args.text.first} [", "is a part of an argument"),
        ("text = { type = \"string\" }", "body = { type = \"string\" }", "is no variable of the document"),
        (
            "graphql = '''\nquery L($order: ID!, $filter: String, $after: String) {\n  notes(order: $order, query: $filter, after: $after) { nodes { id text } pageInfo { hasNextPage endCursor } }\n}\n'''\n",
            "",
            "those of a query",
        ),
    ] {
        let said = refused(from, to);
        assert!(said.contains(why), "{to}\n{said}\nwanted: {why}");
    }
    // Its own path is not the place, where another is named.
    let text = SHOP
        .replace("BASE", "http://127.0.0.1:1")
        .replace("pages = 3", "http = \"POST /other/{args.order}\"");
    let i =
        Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox).unwrap_or_else(|e| panic!("{e}"));
    let m = i.method("note").unwrap();
    let intent = m.intent(r#"{"order":"o/p"}"#, &m.recovery(None).unwrap());
    assert!(intent.is_err(), "a slash leaves its place");
    let intent = m.intent(r#"{"order":"o"}"#, &m.recovery(None).unwrap()).unwrap();
    let record: Value = serde_json::from_slice(&intent.body).unwrap();
    assert_eq!(record["lookup"]["url"], json!(["http://127.0.0.1:1/other/o"]));
    assert_eq!(m.recovery(None).unwrap().strategy.word(), "lookup");
    assert!(m.listing().unwrap_err().contains("GraphQL"));
    // Another verb's own path takes no query.
    let (head, rest) = SHOP.split_once("graphql = 'mutation").unwrap();
    let (_, rest) = rest.split_once("'\n").unwrap();
    let text = format!("{head}{rest}")
        .replace("POST /graphql", "PUT /v1/notes")
        .replace("BASE", "http://127.0.0.1:1");
    let said =
        Integration::parse("shop.toml", &text.replace("input.text", "text"), Format::Toml, Mode::Sandbox);
    assert!(said.unwrap_err().to_string().contains("needs http = \"POST /…\""));
    // A method that is no document can be asked for so, too.
    let (head, rest) = SHOP.split_once("graphql = 'mutation").unwrap();
    let (_, rest) = rest.split_once("'\n").unwrap();
    let text = format!("{head}{rest}").replace("BASE", "http://127.0.0.1:1").replace("input.text", "text");
    let text = text
        .replace("POST /graphql\"\ninput", "POST /v1/notes\"\ninput")
        .replace("pages = 3", "http = \"POST /graphql\"");
    let i =
        Integration::parse("shop.toml", &text, Format::Toml, Mode::Sandbox).unwrap_or_else(|e| panic!("{e}"));
    let m = i.method("note").unwrap();
    let intent = m.intent(r#"{"order":"o","text":"t"}"#, &m.recovery(None).unwrap()).unwrap();
    let record: Value = serde_json::from_slice(&intent.body).unwrap();
    assert_eq!(record["body"], json!(["{\"order\":\"o\",\"text\":\"t [", "]\"}"]));
    assert_eq!(record["lookup"]["url"], json!(["http://127.0.0.1:1/graphql"]));
    assert!(record["lookup"]["graphql"].is_object() && record["v"] == 3, "{record}");
}
