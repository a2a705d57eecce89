//! GraphQL documents as methods: what goes out, what comes of an answer, and what is refused at start.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{KEY, body, integration, key, parse, request};
use counterfoil_provider::judge::{Answer, Judged, Observation, Policy, judge};
use counterfoil_provider::{
    ConfigCredentials, HttpExecutor, HttpIntent, Integration, MethodEffect, ReadOutcome, render,
};
use ledger::{Millis, Sent, Strategy};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SHOPIFY: &str = "preset = \"shopify\"";
const BRAINTREE: &str = "preset = \"braintree\"";
const CHARGE: &str = "graphql = 'mutation C($input: ChargeInput!) { charge(input: $input) { id } }'";

fn method(head: &str, lines: &str) -> Integration {
    integration(head, &format!("[methods.m]\nhttp = \"POST /graphql\"\n{lines}"))
}

fn sent(i: &Integration, args: &str) -> Value {
    serde_json::from_str(&body(&request(i, "m", args).unwrap())).unwrap()
}

#[test]
fn arguments_are_variables_and_the_document_is_fixed() {
    let i = method(
        "",
        "graphql = '''\nmutation M($id: ID!, $n: Int = 2, $note: NoteInput) {\n  done: close(id: $id, n: $n, note: $note) { id }\n}'''\nparams = { text = \"variable:note.text\" }\nrecovery = \"none\"",
    );
    let m = i.method("m").unwrap();
    assert_eq!(m.effect(), MethodEffect::Mutating);
    assert_eq!(
        *m.input_schema(),
        json!({
            "type": "object",
            "properties": { "text": {}, "id": { "type": "string" }, "n": { "type": "integer" } },
            "required": ["id"], "additionalProperties": false
        })
    );
    // Nothing that a caller writes becomes a part of the document, and numbers keep every digit.
    let request = request(&i, "m", r#"{"id":"x\"){evil}","n":1.50,"text":"a"}"#).unwrap();
    assert_eq!(request.headers()["content-type"], "application/json");
    let raw = body(&request);
    assert!(raw.ends_with(r#","variables":{"id":"x\"){evil}","n":1.50,"note":{"text":"a"}}}"#), "{raw}");
    let json: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(
        json["query"],
        "mutation M($id: ID!, $n: Int = 2, $note: NoteInput) {\n  done: close(id: $id, n: $n, note: $note) { id }\n}"
    );
    let e = common::request(&i, "m", r#"{"id":"a","other":1}"#).unwrap_err();
    assert!(e.contains("declares no such variable"), "{e}");
    // Without arguments there are no variables.
    let ping = method("", "graphql = \"{ ping }\"");
    assert_eq!(body(&common::request(&ping, "m", "{}").unwrap()), r#"{"query":"{ ping }"}"#);
}

#[test]
fn a_query_reads_and_a_mutation_changes() {
    let read = method(SHOPIFY, "graphql = \"query S($id: ID!) { shop(id: $id) { name } }\"");
    let m = read.method("m").unwrap();
    assert_eq!((m.effect(), m.key_carrier()), (MethodEffect::Read, None));
    assert_eq!(sent(&read, r#"{"id":"1"}"#)["variables"], json!({ "id": "1" }));
    let query = method("", "graphql = \"{ count }\"\neffect = \"mutating\"");
    assert_eq!(query.method("m").unwrap().effect(), MethodEffect::Mutating);
}

#[test]
fn the_key_as_a_field_of_a_variable() {
    let i = method(BRAINTREE, &format!("{CHARGE}\nparams = {{ amount = \"variable:input.amount\" }}"));
    let m = i.method("m").unwrap();
    assert_eq!(m.key_carrier().unwrap(), "body field variables.input.apiRequestKey");
    assert_eq!(m.recovery(None).unwrap().strategy, Strategy::Key);
    assert_eq!(m.input_schema()["properties"], json!({ "amount": {} }));
    assert_eq!(
        sent(&i, r#"{"amount":"5"}"#)["variables"],
        json!({ "input": { "amount": "5", "apiRequestKey": KEY } })
    );
    // Or the whole input as one argument, with the provider's own schema, from which the key is taken out.
    let whole = method(
        BRAINTREE,
        &format!(
            "{CHARGE}\ninput = {{ type = \"object\", properties = {{ input = {{ type = \"object\", required = [\"apiRequestKey\"], properties = {{ apiRequestKey = {{}}, amount = {{}} }} }} }} }}"
        ),
    );
    assert_eq!(
        whole.method("m").unwrap().input_schema()["properties"]["input"],
        json!({ "type": "object", "required": [], "properties": { "amount": {} } })
    );
    assert_eq!(
        sent(&whole, r#"{"input":{"amount":"5"}}"#)["variables"],
        json!({ "input": { "amount": "5", "apiRequestKey": KEY } })
    );
    let e = request(&whole, "m", r#"{"input":{"apiRequestKey":"mine"}}"#).unwrap_err();
    assert!(e.contains("filled by the gateway"), "{e}");
    // A document without the variable has no key, and says so if one is asked for.
    let without = "graphql = 'mutation C($id: ID!) { void(id: $id) { id } }'";
    assert_eq!(method(BRAINTREE, without).method("m").unwrap().key_carrier(), None);
    let e = refused(BRAINTREE, &format!("{without}\nrecovery = \"key\""));
    assert!(e.contains("declares no $input"), "{e}");
    // So has a method that is no document.
    let e = refused(BRAINTREE, "recovery = \"key\"");
    assert!(e.contains("GraphQL documents only"), "{e}");
}

#[test]
fn the_key_in_a_directive() {
    let text = "mutation R($amount: Int!) { refund(amount: $amount) @idempotent(key: \"{$key}\") { id } }";
    let i = method(SHOPIFY, &format!("graphql = '{text}'"));
    let m = i.method("m").unwrap();
    assert_eq!(m.key_carrier().unwrap(), "GraphQL directive @idempotent(key: …)");
    assert_eq!(
        sent(&i, r#"{"amount":5}"#),
        json!({ "query": text.replace("{$key}", KEY), "variables": { "amount": 5 } })
    );
    // The recorded request has a gap there, and no key.
    let intent = m.intent(r#"{"amount":5}"#, &m.recovery(None).unwrap()).unwrap();
    let recorded: Value = serde_json::from_slice(&intent.body).unwrap();
    assert_eq!((recorded["v"].as_u64(), recorded["body"].as_array().unwrap().len()), (Some(2), 2));
    assert!(!recorded.to_string().contains(KEY));
    // As a variable, which is then no argument.
    let text =
        "mutation R($amount: Int!, $k: String!) @idempotent(key: $k) { refund(amount: $amount) { id } }";
    let i = method(SHOPIFY, &format!("graphql = '{text}'"));
    let m = i.method("m").unwrap();
    assert_eq!(m.key_carrier().unwrap(), "body field variables.k");
    assert_eq!(m.input_schema()["properties"], json!({ "amount": { "type": "integer" } }));
    assert_eq!(sent(&i, r#"{"amount":5}"#)["variables"], json!({ "amount": 5, "k": KEY }));
    assert!(request(&i, "m", r#"{"amount":5,"k":"mine"}"#).unwrap_err().contains("filled by the gateway"));
    // Without the directive there is no key.
    let i = method(SHOPIFY, "graphql = 'mutation P($id: ID!) { publish(id: $id) { id } }'");
    let m = i.method("m").unwrap();
    assert_eq!((m.key_carrier(), m.recovery(None).unwrap().strategy), (None, Strategy::None));
}

#[test]
fn other_carriers_go_with_documents_too() {
    let i = method("[execution_policy.idempotency]\nmode = \"dynamic\"", CHARGE);
    assert_eq!(request(&i, "m", r#"{"input":{}}"#).unwrap().headers()["idempotency-key"], KEY);
    let carried =
        "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"body\"\nname = \"extensions.key\"";
    let i = method(carried, CHARGE);
    assert_eq!(sent(&i, r#"{"input":{}}"#)["extensions"], json!({ "key": KEY }));
}

fn refused(head: &str, lines: &str) -> String {
    parse(&format!("name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n{head}\n[methods.m]\nhttp = \"POST /graphql\"\n{lines}"))
        .expect_err(lines)
        .to_string()
}

#[test]
fn what_can_not_work_is_refused_at_start() {
    let directive = |given: &str| {
        format!("graphql = 'mutation R($a: Int!) {{ refund(a: $a) @idempotent(key: {given}) {{ id }} }}'")
    };
    for (head, lines, why) in [
        ("", "graphql = 'mutation {'".to_owned(), "not a GraphQL document"),
        ("", "graphql = 'mutation { a b }'".to_owned(), "exactly one field"),
        ("", "graphql = 'subscription { a }'".to_owned(), "no call"),
        ("", "graphql = 5".to_owned(), "string"),
        ("", "grpahql = '{ a }'".to_owned(), "did you mean `graphql`"),
        ("", format!("{CHARGE}\nbody = \"form\""), "leave `body` out"),
        ("", format!("{CHARGE}\neffect = \"read\""), "can't be effect = \"read\""),
        ("", format!("{CHARGE}\nparams = {{ a = \"variable:inputs.a\" }}"), "declares no variable $inputs"),
        ("", format!("{CHARGE}\nparams = {{ a = \"body:a\" }}"), "the body is the document"),
        ("", format!("{CHARGE}\nparams = {{ input = \"document\" }}"), "the body is the document"),
        (
            "",
            format!("{CHARGE}\ninput = {{ type = \"object\", properties = {{ x = {{}} }} }}"),
            "no variable of the document",
        ),
        (
            "",
            format!("{CHARGE}\ninput = {{ type = \"object\", properties = {{}} }}"),
            "needs the variable $input",
        ),
        ("", "params = { a = \"variable:a\" }".to_owned(), "write \"path\""),
        // The key is the gateway's.
        ("", directive("\"{$key}\""), "nowhere else"),
        (SHOPIFY, directive("\"mine\""), "the key is the gateway's"),
        (SHOPIFY, directive("\"x{$key}\""), "the key is the gateway's"),
        (SHOPIFY, directive("$k"), "declares no $k"),
        (
            SHOPIFY,
            format!("{}\nparams = {{ k = \"variable:k\" }}", directive("\"{$key}\"")),
            "declares no variable $k",
        ),
        (
            BRAINTREE,
            format!("{CHARGE}\nparams = {{ k = \"variable:input.apiRequestKey\" }}"),
            "carries the effect key",
        ),
        (
            "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"graphql_directive\"\nname = \"idempotent\"",
            CHARGE.to_owned(),
            "a directive and its argument",
        ),
        (
            "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"graphql_input\"",
            CHARGE.to_owned(),
            "needs the field's `name`",
        ),
        (
            "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"graphql_inputs\"\nname = \"a\"",
            CHARGE.to_owned(),
            "did you mean `graphql_input`",
        ),
        (
            "[execution_policy.idempotency]\nmode = \"dynamic\"\ncarrier = \"body\"\nname = \"query\"",
            CHARGE.to_owned(),
            "which is the document",
        ),
    ] {
        let e = refused(head, &lines);
        assert!(e.contains(why), "{head} {lines}\n-> {e}");
    }
    let get = parse(
        "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[methods.m]\nhttp = \"GET /graphql\"\ngraphql = \"{ a }\"",
    );
    assert!(get.unwrap_err().message.contains("goes out with POST"));
    // Bounded, whatever a file holds.
    let deep = format!("graphql = '{{{}'", "a{".repeat(10_000));
    assert!(refused("", &deep).contains("not a GraphQL document"));
    let long = format!("graphql = '{}'", "a ".repeat(40_000));
    assert!(refused("", &long).contains("KiB"));
}

fn policy(i: &Integration) -> Policy {
    let m = i.method("m").unwrap();
    let args =
        if m.input_schema().to_string().contains("amount") { r#"{"amount":5}"# } else { r#"{"input":{}}"# };
    let intent = m.intent(args, &m.recovery(None).unwrap()).unwrap();
    HttpIntent::decode(&intent.body).unwrap();
    let raw: Value = serde_json::from_slice(&intent.body).unwrap();
    serde_json::from_value(raw["policy"].clone()).unwrap()
}

fn word(policy: &Policy, replay: bool, status: u16, body: &str) -> &'static str {
    let seen =
        Observation::Answer(Answer { status, headers: http::HeaderMap::new(), body: body.to_owned().into() });
    match judge(policy, replay, &seen) {
        Judged::Existing { .. } => "existing",
        Judged::Sent(Sent::Applied(_)) => "applied",
        Judged::Sent(Sent::Refused(receipt)) => {
            let shown = render(&receipt.0);
            assert!(shown.is_error, "a refusal is shown as an error, whatever its status");
            "refused"
        }
        Judged::Sent(Sent::NotApplied { .. }) => "not applied",
        Judged::Sent(Sent::Unknown { stored: true, .. }) => "unknown, stored",
        Judged::Sent(Sent::Unknown { .. }) => "unknown",
        Judged::Sent(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_200_with_errors_is_no_success() {
    let plain = policy(&method("", &format!("{CHARGE}\nrecovery = \"none\"")));
    let braintree = policy(&method(BRAINTREE, CHARGE));
    let shopify = policy(&method(
        SHOPIFY,
        "graphql = 'mutation R($amount: Int!) { charge: refundCreate(amount: $amount) @idempotent(key: \"{$key}\") { id } }'",
    ));
    let located = r#"{"errors":[{"message":"no such field","locations":[{"line":1,"column":2}]}]}"#;
    let class = |class: &str| {
        format!(
            r#"{{"data":{{"charge":null}},"errors":[{{"message":"no","path":["charge"],"extensions":{{"errorClass":"{class}"}}}}]}}"#
        )
    };
    let throttled = r#"{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}"#;
    let user = |code: &str| format!(r#"{{"data":{{"charge":{{"userErrors":[{{"code":"{code}"}}]}}}}}}"#);
    // policy, status, body, first send, replay
    for (p, status, body, first, again) in [
        (&plain, 200, r#"{"data":{"charge":{"id":"1"}}}"#.to_owned(), "applied", "applied"),
        (&plain, 200, r#"{"data":{"charge":{"id":"1"}},"errors":[]}"#.to_owned(), "applied", "applied"),
        // Nullable and void fields answer so, and nothing went wrong.
        (&plain, 200, r#"{"data":{"charge":null}}"#.to_owned(), "applied", "applied"),
        // Not an answer to this document.
        (&plain, 200, r#"{"data":{"other":{"id":"1"}}}"#.to_owned(), "unknown", "unknown"),
        (&plain, 200, r#"{"data":{}}"#.to_owned(), "unknown", "unknown"),
        (&plain, 200, r#"{"data":null}"#.to_owned(), "unknown", "unknown"),
        (&plain, 200, "{}".to_owned(), "unknown", "unknown"),
        (&plain, 200, "[]".to_owned(), "unknown", "unknown"),
        (&plain, 200, "<html>".to_owned(), "unknown", "unknown"),
        (&plain, 200, String::new(), "unknown", "unknown"),
        (&plain, 200, r#"{"errors":"broken"}"#.to_owned(), "unknown", "unknown"),
        // A request error points into the document and at nothing that was executed.
        (&plain, 200, located.to_owned(), "refused", "unknown"),
        (&plain, 400, located.to_owned(), "refused", "unknown, stored"),
        // Not so if `data` is there, if something was executed, or if it does not say where.
        (&plain, 200, located.replace("{\"errors", "{\"data\":null,\"errors"), "unknown", "unknown"),
        (
            &plain,
            200,
            located.replace("\"message\"", "\"path\":[\"charge\"],\"message\""),
            "unknown",
            "unknown",
        ),
        (&plain, 200, r#"{"errors":[{"message":"timeout"}]}"#.to_owned(), "unknown", "unknown"),
        (
            &plain,
            200,
            r#"{"errors":[{"message":"x","extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}"#.to_owned(),
            "unknown",
            "unknown",
        ),
        // One of several that is not known spoils it.
        (&plain, 200, located.replace("}]}]}", "}]},{\"message\":\"y\"}]}"), "unknown", "unknown"),
        // A part was answered.
        (
            &plain,
            200,
            r#"{"data":{"charge":{"id":"1"}},"errors":[{"message":"x","path":["charge","fee"]}]}"#.to_owned(),
            "unknown",
            "unknown",
        ),
        (
            &plain,
            400,
            r#"{"data":{"charge":{"id":"1"}},"errors":[{"message":"x"}]}"#.to_owned(),
            "unknown",
            "unknown",
        ),
        (&plain, 500, located.to_owned(), "unknown", "unknown"),
        // What a provider's codes say.
        (&braintree, 200, class("VALIDATION"), "refused", "unknown"),
        (&braintree, 200, class("AUTHORIZATION"), "refused", "unknown"),
        (&braintree, 200, class("RESOURCE_LIMIT"), "not applied", "not applied"),
        (&braintree, 200, class("INTERNAL"), "unknown", "unknown"),
        (&braintree, 200, class("SERVICE_AVAILABILITY"), "unknown", "unknown"),
        (&shopify, 200, throttled.to_owned(), "not applied", "not applied"),
        (&shopify, 200, user("INVALID"), "refused", "unknown, stored"),
        (&shopify, 200, user("IDEMPOTENCY_CONCURRENT_REQUEST"), "unknown", "unknown"),
        (&shopify, 200, user("IDEMPOTENCY_KEY_PARAMETER_MISMATCH"), "refused", "unknown, stored"),
        (&shopify, 200, r#"{"data":{"charge":{"id":"1","userErrors":[]}}}"#.to_owned(), "applied", "applied"),
        (&shopify, 401, "{}".to_owned(), "refused", "unknown"),
    ] {
        assert_eq!(word(p, false, status, &body), first, "first send, {status}: {body}");
        assert_eq!(word(p, true, status, &body), again, "replay, {status}: {body}");
    }
}

#[test]
fn an_earlier_program_does_not_take_such_answers_for_success() {
    // It knows nothing of GraphQL, and would take every 200 for one: the record says that it is too old.
    for (head, lines) in [
        (BRAINTREE, CHARGE.to_owned()),
        ("", format!("{CHARGE}\nrecovery = \"none\"")),
        ("preset = \"solidgate\"", "idempotency = { mode = \"dynamic\" }".to_owned()),
        ("preset = \"mangopay\"", String::new()),
        ("", "recovery = \"none\"\nidempotency = { ok = { at = \"/ok\" }, code_at = \"/error\" }".to_owned()),
    ] {
        let i = method(head, &lines);
        let m = i.method("m").unwrap();
        let intent = m.intent(r#"{"input":{}}"#, &m.recovery(None).unwrap()).unwrap();
        let recorded: Value = serde_json::from_slice(&intent.body).unwrap();
        assert_eq!(recorded["v"], 2, "{head} {lines}");
    }
    let i = method("preset = \"stripe\"", "");
    let m = i.method("m").unwrap();
    let intent = m.intent("{}", &m.recovery(None).unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&intent.body).unwrap()["v"], 1);
}

#[tokio::test]
async fn a_reading_answer_with_errors_is_shown_as_one() {
    for (answer, is_error) in [
        (r#"{"data":{"shop":{"name":"a"}}}"#, false),
        (r#"{"data":{"shop":null},"errors":[{"message":"not found"}]}"#, true),
        (r#"{"errors":[{"message":"throttled"}]}"#, true),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 8192];
            let _ = stream.read(&mut some).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let text = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
            stream.write_all(text.as_bytes()).await.unwrap();
        });
        let i = parse(&format!(
            "name = \"p\"\nbase_url = \"http://{at}\"\n[methods.m]\nhttp = \"POST /graphql\"\ngraphql = \"{{ shop {{ name }} }}\""
        ))
        .unwrap();
        let credentials = ConfigCredentials::load_with(std::slice::from_ref(&i), |_| None).unwrap();
        let executor = HttpExecutor::new(Arc::new(credentials));
        let read = executor.read(i.method("m").unwrap(), "{}", Millis(5000)).await.unwrap();
        let ReadOutcome::Answered(receipt) = read else { panic!("{read:?}") };
        let shown = render(&receipt.keep().0);
        assert_eq!(shown.is_error, is_error, "{answer}");
        assert!(String::from_utf8(shown.result).unwrap().contains("shop") || is_error);
    }
    assert_eq!(key().as_str(), KEY);
}
