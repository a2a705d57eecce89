//! Arguments, the request that they make, and the arguments again, read from it by somebody else: for every style in every
//! place, whatever the texts hold, to the last digit of numbers, which have no exponent there.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{body, integration, request};
use counterfoil_provider::Integration;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const METHODS: &str = r#"
[methods.query]
http = "GET /q/{list}/{pairs}/{one}"
params = { a = "query", b = "query", c = "query", d = "query", e = "query", f = "query", g = "query", h = "query", i = "query", j = "header:X-J", k = "header:X-K", l = "cookie", m = "cookie" }
styles = { list = "comma", pairs = "pairs", a = "comma", b = "space", c = "pipe", d = "members", e = "repeat", f = "index", g = "json", j = "comma", k = "json", l = "comma" }
[methods.form]
http = "POST /f"
body = "form"
styles = { a = "comma", b = "space", c = "pipe", e = "repeat", f = "index", g = "json" }
[methods.json]
http = "POST /j"
"#;

fn api() -> Integration {
    integration("", METHODS)
}

/// A number as it may be written, of which the value is to be kept.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[1-9][0-9]{0,40}",
        "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,40}",
        "[1-9]\\.[0-9]{1,20}[eE][-+]?[0-9]{1,2}",
    ]
}

/// A number by its value: its sign, its digits, and the power of ten of the last one.
fn value(number: &str) -> (bool, String, i32) {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    let zeros = all.len() - all.trim_end_matches('0').len();
    let last = exponent.parse::<i32>().unwrap() + i32::try_from(zeros).unwrap()
        - i32::try_from(fraction.len()).unwrap();
    (
        number.starts_with('-') && !digits.is_empty(),
        digits.to_owned(),
        if digits.is_empty() { 0 } else { last },
    )
}

/// Names of members: a bracket can't be in one of a form.
fn members() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[^\\[\\]]{1,8}", ".{1,12}", 1..4)
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

/// The values of a name, as they stand in pairs.
fn raw<'a>(pairs: &'a str, name: &str) -> Vec<&'a str> {
    pairs.split('&').filter_map(|p| p.split_once('=')).filter(|(n, _)| *n == name).map(|(_, v)| v).collect()
}

/// One text cut where a style puts its mark, and each part decoded.
fn cut(text: &str, at: &str) -> Vec<String> {
    text.split(at).map(decoded).collect()
}

fn pairs(text: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn styles_of_a_url_come_back(
        texts in prop::collection::vec(".{1,12}", 1..5),
        // What a style separates by can't be told from the same in a text: the standard leaves it so.
        spaceless in prop::collection::vec("[^ ]{1,12}", 1..5),
        pipeless in prop::collection::vec("[^|]{1,12}", 1..5),
        segments in prop::collection::vec("[^/\\\\\\p{C}]{1,12}", 1..5)
            .prop_filter("it would climb", |all| all.as_slice() != ["."] && all.as_slice() != [".."]),
        one in "[^/\\\\\\p{C}.]{1,12}",
        visible in prop::collection::vec("[!-+\\--~]{1,12}", 1..5),
        object in prop::collection::btree_map("[n-z]{1,8}", ".{1,12}", 1..4),
        number in number(),
    ) {
        let pair: BTreeMap<&str, &String> = [("x", &one), ("y", &one)].into();
        let args = json!({
            "list": segments, "pairs": pair, "one": one, "a": texts, "b": spaceless, "c": pipeless, "d": object, "e": texts,
            "f": texts, "g": texts, "h": object, "j": visible, "k": visible, "l": texts, "m": texts[0],
        });
        // The number as it is written, which no reader of values here touches.
        let args = args.to_string().replacen('{', &format!("{{\"i\":{number},"), 1);
        let r = request(&api(), "query", &args).unwrap();
        let path: Vec<&str> = r.uri().path().split('/').collect();
        let [.., list, both, single] = path.as_slice() else { panic!("{path:?}") };
        prop_assert_eq!(&cut(list, ","), &segments);
        prop_assert_eq!(cut(both, ",").join("|"), format!("x={one}|y={one}"));
        prop_assert_eq!(&decoded(single), &one);
        let query = r.uri().query().unwrap();
        prop_assert_eq!(&cut(raw(query, "a")[0], ","), &texts);
        prop_assert_eq!(&cut(raw(query, "b")[0], "%20"), &spaceless);
        prop_assert_eq!(&cut(raw(query, "c")[0], "%7C"), &pipeless);
        let read = pairs(query);
        let of = |name: &str| read.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect::<Vec<_>>();
        prop_assert_eq!(&of("e"), &texts);
        for (name, value) in &object {
            prop_assert_eq!(&of(name), &vec![value.clone()], "a member by its own name");
            prop_assert_eq!(&of(&format!("h[{name}]")), &vec![value.clone()], "nested by default");
        }
        for (n, text) in texts.iter().enumerate() {
            prop_assert_eq!(&of(&format!("f[{n}]")), &vec![text.clone()]);
        }
        prop_assert_eq!(serde_json::from_str::<Vec<String>>(&of("g")[0]).unwrap(), texts.clone());
        prop_assert!(!of("i")[0].contains(['e', 'E']), "{}", of("i")[0]);
        prop_assert_eq!(value(&of("i")[0]), value(&number));
        let header = |name: &str| r.headers()[name].to_str().unwrap().to_owned();
        prop_assert_eq!(header("x-j").split(',').map(str::to_owned).collect::<Vec<_>>(), visible.clone());
        prop_assert_eq!(serde_json::from_str::<Vec<String>>(&header("x-k")).unwrap(), visible);
        let cookies: BTreeMap<String, String> =
            header("cookie").split("; ").map(|c| { let (n, v) = c.split_once('=').unwrap(); (n.to_owned(), v.to_owned()) }).collect();
        prop_assert_eq!(decoded(&cookies["m"]), texts[0].clone());
        prop_assert_eq!(&cut(&cookies["l"], ","), &texts);
    }

    #[test]
    fn forms_come_back(
        texts in prop::collection::vec(".{1,12}", 1..5),
        spaceless in prop::collection::vec("[^ ]{1,12}", 1..5),
        pipeless in prop::collection::vec("[^|]{1,12}", 1..5),
        object in members(),
        number in number(),
        flag in any::<bool>(),
    ) {
        let args = json!({
            "a": texts, "b": spaceless, "c": pipeless, "d": object, "e": texts, "f": texts, "g": object, "h": texts,
            "deep": [{ "list": texts }], "flag": flag,
        });
        let args = args.to_string().replacen('{', &format!("{{\"n\":{number},"), 1);
        let text = body(&request(&api(), "form", &args).unwrap());
        prop_assert_eq!(&cut(raw(&text, "a")[0], ","), &texts);
        prop_assert_eq!(&cut(raw(&text, "b")[0], "%20"), &spaceless);
        prop_assert_eq!(&cut(raw(&text, "c")[0], "%7C"), &pipeless);
        let read = pairs(&text);
        let of = |name: &str| read.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect::<Vec<_>>();
        for (name, value) in &object {
            prop_assert_eq!(&of(&format!("d[{name}]")), &vec![value.clone()]);
        }
        prop_assert_eq!(&of("e"), &texts);
        for (n, text) in texts.iter().enumerate() {
            for name in [format!("f[{n}]"), format!("h[{n}]"), format!("deep[0][list][{n}]")] {
                prop_assert_eq!(&of(&name), &vec![text.clone()], "{}", name);
            }
        }
        prop_assert_eq!(serde_json::from_str::<BTreeMap<String, String>>(&of("g")[0]).unwrap(), object);
        prop_assert!(!of("n")[0].contains(['e', 'E']), "{}", of("n")[0]);
        prop_assert_eq!(value(&of("n")[0]), value(&number));
        prop_assert_eq!(of("flag"), vec![flag.to_string()]);
    }

    #[test]
    fn a_json_body_is_what_was_given(texts in prop::collection::vec(".{0,12}", 0..5), object in members(), number in number()) {
        let given = format!("{{\"n\":{number},\"t\":{},\"o\":{},\"e\":[[],{{}},null,\"\",-0.0]}}", json!(texts), json!(object));
        let text = body(&request(&api(), "json", &given).unwrap());
        prop_assert_eq!(&text, &given, "to the byte, since nothing else goes into it");
        prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}

#[test]
fn what_is_empty_is_said_or_left_out_and_never_something_else() {
    let empty = json!({ "list": ["x"], "pairs": { "k": "v" }, "one": "1", "a": [], "d": {}, "e": [], "f": [], "g": [], "h": {}, "i": null });
    let r = request(&api(), "query", &empty.to_string()).unwrap();
    assert_eq!(pairs(r.uri().query().unwrap()), [("a".into(), String::new()), ("g".into(), "[]".into())]);
    let form = json!({ "a": [], "e": [], "f": [], "g": [], "h": [], "d": {}, "n": null, "t": "" });
    let read = pairs(&body(&request(&api(), "form", &form.to_string()).unwrap()));
    let names: Vec<&str> = read.iter().map(|(n, _)| n.as_str()).collect();
    assert!(read.iter().all(|(n, v)| v.is_empty() || (n == "g" && v == "[]")), "{read:?}");
    for name in ["h", "d", "n", "t", "g"] {
        assert!(names.contains(&name), "{name} is said to be empty: {read:?}");
    }
}
