//! No argument goes where another one goes, and numbers mean outside of JSON what rules and budgets take them for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{body, integration, request};
use counterfoil_provider::Integration;

fn api() -> Integration {
    integration(
        "",
        r#"
[methods.list]
http = "GET /l"
params = { account = "query", filter = "query", more = "query", deep = "query", size = "query:page[size]", renamed = "query:the.name" }
styles = { filter = "members", more = "members" }
query = { fixed = "1" }
[methods.post]
http = "POST /p"
params = { acct = "body:account", inner = "body:/order/amount", order = "body" }
fields = { kind = "k" }
[methods.post.input]
type = "object"
[methods.post.input.properties]
acct = {}
inner = {}
order = {}
plain = {}
[methods.form]
http = "POST /f"
body = "form"
params = { acct = "body:account" }
[methods.path]
http = "POST /x/{n}/y"
params = { h = "header:X-N", c = "cookie" }
[methods.path.input]
type = "object"
properties = { n = {}, h = {}, c = {} }
[methods.parts]
http = "POST /q"
body = "multipart"
[methods.text]
http = "POST /t"
body = "text"
params = { all = "document" }
"#,
    )
}

fn refused(i: &Integration, method: &str, args: &str, words: &str) {
    let shown: String = args.chars().take(200).collect();
    let said = request(i, method, args).expect_err(&shown);
    assert!(said.contains(words), "{shown}\n{said:.200}\nwanted: {words}");
}

#[test]
fn a_member_is_no_other_argument() {
    let i = api();
    let taken = "goes where `account` goes";
    for args in [
        r#"{"account":"A","filter":{"account":"B"}}"#,
        // Nor where that is not given: what is said of it would not be asked.
        r#"{"filter":{"account":"B"}}"#,
        r#"{"filter":{"Account":"B"}}"#,
        r#"{"filter":{" account":"B"}}"#,
        r#"{"filter":{"account[]":"B"}}"#,
        r#"{"filter":{"account[x]":"B"}}"#,
        r#"{"filter":{"x":1,"\u0061ccount":"B"}}"#,
    ] {
        refused(&i, "list", args, taken);
    }
    refused(&i, "list", r#"{"filter":{"page[size]":1}}"#, "goes where `size` goes");
    refused(&i, "list", r#"{"filter":{"page":1}}"#, "goes where `size` goes");
    refused(&i, "list", r#"{"filter":{"the_name":1}}"#, "goes where `renamed` goes");
    refused(&i, "list", r#"{"filter":{"deep[x]":1}}"#, "goes where `deep` goes");
    refused(&i, "list", r#"{"filter":{"a":1},"more":{"a":2}}"#, "goes where `filter` goes");
    refused(&i, "list", r#"{"filter":{"fixed":2}}"#, "filled by the gateway");
    refused(&i, "list", r#"{"filter":{"Fixed":2}}"#, "filled by the gateway");
    // A name that the schema doesn't know.
    refused(&i, "list", r#"{"Account":"B"}"#, taken);
    refused(&i, "list", r#"{"filter":{"x":1},"x":2}"#, "goes where `filter` goes");
    refused(&i, "list", r#"{"x":2,"filter":{"x":1}}"#, "goes where `x` goes");
    let fine = r#"{"account":"A","filter":{"a":1,"page[number]":2},"more":{"b":[3,4]},"deep":{"account":5},"other":6}"#;
    assert_eq!(
        request(&i, "list", fine).unwrap().uri().to_string(),
        "http://127.0.0.1:1/base/l?fixed=1&account=A&a=1&page%5Bnumber%5D=2&b=3&b=4&deep%5Baccount%5D=5&other=6"
    );
}

#[test]
fn a_field_is_no_other_argument() {
    let i = api();
    for (args, words) in [
        (r#"{"account":"B"}"#, "goes where `acct` goes"),
        (r#"{"Account":"B"}"#, "goes where `acct` goes"),
        (r#"{"acct":"A","ACCOUNT":"B"}"#, "goes where `acct` goes"),
        (r#"{"Plain":1}"#, "goes where `plain` goes"),
        (r#"{"Kind":1}"#, "`kind` is filled by the gateway"),
        (r#"{"order":{"amount":5}}"#, "goes where `inner` goes"),
        (r#"{"order":{"Amount":5}}"#, "goes where `inner` goes"),
        (r#"{"Order":{"amount":5}}"#, "goes where `inner` goes"),
    ] {
        refused(&i, "post", args, words);
    }
    let fine = r#"{"acct":"A","order":{"note":"x"},"inner":5,"plain":1,"new":2}"#;
    assert_eq!(
        body(&request(&i, "post", fine).unwrap()),
        r#"{"kind":"k","account":"A","order":{"note":"x","amount":5},"plain":1,"new":2}"#
    );
    refused(&i, "form", r#"{"account":"B"}"#, "goes where `acct` goes");
    refused(&i, "form", r#"{"Account":"B"}"#, "goes where `acct` goes");
    assert_eq!(body(&request(&i, "form", r#"{"acct":"A","b":1}"#).unwrap()), "account=A&b=1");
}

/// A second one might be the one that counts, and then neither a look-up nor the provider would know the first.
#[test]
fn a_field_is_none_that_the_gateway_fills() {
    let look = "lookup = { http = \"GET /l\", items = \"/d\", match = { \"/m\" = \"{key}\" } }\n[methods.M.input]\ntype = \"object\"\nproperties = { amount = {}, metadata = {} }";
    let filled = [
        ("marker", "body = \"form\"\nmarker = { field = \"reference\" }", "reference"),
        ("text", "marker = { field = \"reference\", text = \"no {marker}\" }", "reference"),
        ("parts", "body = \"multipart\"\nmarker = { field = \"reference\" }", "reference"),
        (
            "key",
            "idempotency = { mode = \"dynamic\", carrier = \"body\", name = \"reference\" }",
            "reference",
        ),
        ("unique", "unique = { field = \"reference\", resource_id = \"/id\" }", "reference"),
        ("fixed", "fields = { reference = \"x\" }\nmarker = { field = \"m\" }", "reference"),
        ("inner", "marker = { field = \"metadata.marker\" }", "metadata.marker"),
        ("deep", "body = \"form\"\nmarker = { field = \"metadata.a.marker\" }", "metadata.a.marker"),
        ("value", "fields = { \"metadata.marker\" = 1 }\nmarker = { field = \"m\" }", "metadata.marker"),
    ];
    for (name, how, path) in filled {
        let look = look.replace('M', name);
        let i = integration("", &format!("[methods.{name}]\nhttp = \"POST /p\"\n{how}\n{look}\n"));
        let others = match path {
            "reference" => vec![
                r#"{"amount":5,"Reference":"order 7"}"#,
                r#"{" reference":1}"#,
                r#"{"reference":1}"#,
                r#"{"Reference":{"x":1}}"#,
                r#"{"Reference":null}"#,
            ],
            "metadata.marker" => vec![
                r#"{"metadata":{"Marker":1}}"#,
                r#"{"metadata":{"x":1,"MARKER":{"y":1}}}"#,
                r#"{"metadata":{"marker":1}}"#,
                // Nor what is around it.
                r#"{"Metadata":{"x":1}}"#,
                r#"{"METADATA":1}"#,
            ],
            _ => vec![
                r#"{"metadata":{"a":{"Marker":1}}}"#,
                r#"{"metadata":{"A":{"x":1}}}"#,
                r#"{"metadata":{"A":1}}"#,
                r#"{"Metadata":{"a":{}}}"#,
            ],
        };
        for args in others {
            refused(&i, name, args, "filled by the gateway");
        }
        request(&i, name, r#"{"amount":5,"references":1,"meta":{"marker":1}}"#).unwrap();
        if !matches!(name, "value") {
            request(&i, name, r#"{"metadata":{"b":{"marker":1},"markers":2}}"#).unwrap();
        }
        if name == "parts" {
            refused(&i, name, r#"{"reference[]":1}"#, "filled by the gateway");
        }
    }
}

/// What is said of an argument is said of what a list or a style writes in its place, too.
#[test]
fn no_style_and_no_list_leads_elsewhere() {
    for (styles, filter) in [
        ("", r#"[{"amount":900}]"#),
        ("", r#"{"amount":900}"#),
        ("", r#"[[{"Amount":900}]]"#),
        ("", r#"[1,{"x":[{"y":1}],"amount":{"z":2}}]"#),
        ("repeat", r#"{"amount":900}"#),
        ("repeat", r#"[{"amount":900}]"#),
        ("index", r#"{"amount":900}"#),
        ("members", r#"[{"amount":900}]"#),
        ("members", r#"{"filter":{"amount":900}}"#),
        ("members", r#"{"filter[amount]":900}"#),
    ] {
        let styles =
            if styles.is_empty() { String::new() } else { format!("styles = {{ filter = \"{styles}\" }}") };
        let i = integration(
            "",
            &format!(
                "[methods.l]\nhttp = \"GET /l\"\nparams = {{ filter = \"query\", amount = \"query:filter[amount]\" }}\n{styles}\n"
            ),
        );
        refused(&i, "l", &format!("{{\"filter\":{filter},\"amount\":1}}"), "goes where `amount` goes");
        refused(&i, "l", &format!("{{\"filter\":{filter}}}"), "goes where `amount` goes");
        let fine = request(&i, "l", r#"{"filter":[{"x":[1,2]},3],"amount":1}"#).unwrap();
        let fine = fine.uri().query().unwrap();
        assert!(fine.ends_with("&filter%5Bamount%5D=1"), "{fine}");
    }
    for (body, styles, place, order) in [
        ("form", "repeat", "/order/amount", r#"[{"amount":5}]"#),
        ("form", "repeat", "/order/amount", r#"{"amount":5}"#),
        ("form", "repeat", "/order/a/amount", r#"[{"x":1},{"a":{"Amount":5}}]"#),
        ("form", "index", "/order/amount", r#"[{"amount":5}]"#),
        ("form", "", "/order/amount", r#"[{"amount":5}]"#),
        ("form", "", "/order/1/amount", r#"[{"amount":4},{"amount":5}]"#),
        ("json", "", "/order/amount", r#"[[{"amount":5}]]"#),
    ] {
        let styles =
            if styles.is_empty() { String::new() } else { format!("styles = {{ order = \"{styles}\" }}") };
        let i = integration(
            "",
            &format!(
                "[methods.p]\nhttp = \"POST /p\"\nbody = \"{body}\"\nparams = {{ order = \"body\", inner = \"body:{place}\" }}\n{styles}\n"
            ),
        );
        refused(&i, "p", &format!("{{\"order\":{order}}}"), "goes where `inner` goes");
        request(&i, "p", r#"{"order":[{"x":5},{"y":[1]}]}"#).unwrap();
    }
}

#[test]
fn a_number_has_no_exponent_outside_of_json() {
    let i = api();
    for (given, sent) in [
        ("50000000e-5", "500"),
        ("5e2", "500"),
        ("5E+2", "500"),
        ("0.5e1", "5"),
        ("1.50e1", "15"),
        ("1.255e2", "125.5"),
        ("-12e-1", "-1.2"),
        ("12e-3", "0.012"),
        ("1e-7", "0.0000001"),
        ("0.0012e2", "0.12"),
        ("0e99", "0"),
        ("-0.0e5", "0"),
        ("9007199254740993e0", "9007199254740993"),
        // These are as they were.
        ("500", "500"),
        ("500.00", "500.00"),
        ("-0.50", "-0.50"),
        ("12345678901234567890.10", "12345678901234567890.10"),
        ("true", "true"),
        ("\"5e2\"", "5e2"),
    ] {
        let args = format!("{{\"a\":{given},\"b\":{{\"c\":[{given}]}}}}");
        assert_eq!(
            body(&request(&i, "form", &args).unwrap()),
            format!("a={sent}&b%5Bc%5D%5B0%5D={sent}"),
            "{given}"
        );
        assert_eq!(
            request(&i, "list", &format!("{{\"account\":{given},\"filter\":{{\"x\":{given}}}}}"))
                .unwrap()
                .uri()
                .query(),
            Some(&*format!("fixed=1&account={sent}&x={sent}"))
        );
        let r = request(&i, "path", &format!("{{\"n\":{given},\"h\":{given},\"c\":{given}}}")).unwrap();
        assert_eq!(r.uri().path(), format!("/base/x/{sent}/y"));
        assert_eq!(r.headers()["x-n"], sent);
        assert_eq!(r.headers()["cookie"], format!("c={sent}"));
        assert!(
            body(&request(&i, "parts", &args).unwrap()).contains(&format!("name=\"a\"\r\n\r\n{sent}\r\n"))
        );
        assert_eq!(body(&request(&i, "text", &format!("{{\"all\":{given}}}")).unwrap()), sent);
    }
    assert_eq!(request(&i, "form", &format!("{{\"a\":1e{}}}", 399)).unwrap().body().len(), 402);
    for huge in ["1e400", "1e-401", "0.1e-400", "1e99999999999999999999", "-5E123456"] {
        refused(&i, "form", &format!("{{\"a\":{huge}}}"), "more than 400 digits");
    }
    // JSON knows exponents: there it stays as it was written.
    assert_eq!(
        body(&request(&i, "post", r#"{"plain":50000000e-5,"order":{"x":5E2}}"#).unwrap()),
        r#"{"kind":"k","plain":50000000e-5,"order":{"x":5E2}}"#
    );
}

/// So many names that comparing each with each would not end.
#[test]
fn very_many_names_are_read_once_each() {
    let i = api();
    let many = |begin: &str, count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("\"{begin}{n}\":1")).collect();
        all.join(",")
    };
    let names = many("a", 300_000);
    let long = "longer than 16 KiB";
    refused(&i, "list", &format!("{{{names}}}"), long);
    refused(&i, "list", &format!("{{\"filter\":{{{names}}}}}"), long);
    // A body has room for them.
    let sent = body(&request(&i, "post", &format!("{{{names}}}")).unwrap());
    assert_eq!(sent, format!("{{\"kind\":\"k\",{names}}}"));
    // And they still may be no other's.
    let (names, orders) = (many("a", 30_000), many("Order", 30_000));
    refused(&i, "post", &format!("{{{names},\"Account\":1}}"), "goes where `acct` goes");
    assert!(request(&i, "post", &format!("{{{orders},\"order\":{{{names}}}}}")).is_ok());
    refused(&i, "post", &format!("{{\"order\":{{{names},\"AMOUNT\":1}}}}"), "goes where `inner` goes");
    // One name, in front of each of its members; and one that is nothing but brackets.
    let wide = "w".repeat(1 << 20);
    refused(&i, "list", &format!("{{\"{wide}\":{{{names}}}}}"), long);
    let brackets = "[".repeat(5 << 10);
    let twice = format!("{{\"filter\":{{\"x{brackets}\":1}},\"more\":{{\"x{brackets}\":1}}}}");
    refused(&i, "list", &twice, "goes where `filter` goes");
    // A form repeats a name for each of its members.
    refused(&i, "form", &format!("{{\"{wide}\":{{{names}}}}}"), "longer than 32 MiB");
    assert!(request(&i, "form", &format!("{{\"w\":{{{names}}}}}")).is_ok());
}
