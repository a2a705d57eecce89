#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn check(text: &str) -> Result<Raw, JsonError> {
    Raw::parse(text.to_owned(), &Limits::default())
}

#[test]
fn agrees_with_serde_json_on_well_formed_and_broken_texts() {
    let seeds = [
        r#"{"a":[1,2.5,-0,1e10,1E-2,{"b":null}],"c":"x\n\u00e9\ud83d\ude00","d":true,"e":false}"#,
        r#" [ ] "#,
        r#"{"":{}}"#,
        "\"plain\"",
        "-12.0e+3",
        "null",
    ];
    let mut cases: Vec<Vec<u8>> = Vec::new();
    for seed in seeds {
        cases.push(seed.into());
        for i in 0..seed.len() {
            cases.push(seed.as_bytes()[..i].to_vec());
            for put in *b"\"\\{}[],:0-.eEu \n\x01x" {
                let mut text = seed.as_bytes().to_vec();
                text[i] = put;
                cases.push(text.clone());
                text.insert(i, put);
                cases.push(text);
            }
        }
    }
    let limits = Limits { unique_members: false, ..Limits::default() };
    for case in cases {
        let theirs = serde_json::from_slice::<serde_json::Value>(&case);
        let ours = Raw::parse(case.clone(), &limits);
        // They stop at numbers beyond f64, whatever follows; we keep exact decimal text.
        if theirs.as_ref().is_err_and(|e| e.to_string().contains("out of range")) {
            continue;
        }
        let shown = String::from_utf8_lossy(&case);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{shown:?}: {ours:?} {theirs:?}");
        if let (Ok(ours), Ok(serde_json::Value::String(theirs))) = (&ours, &theirs) {
            assert_eq!(ours.as_string().unwrap(), theirs.as_str());
        }
    }
}

#[test]
fn names_the_flaw_and_its_place() {
    let at = |text: &str| check(text).map_err(|e| (e.flaw, e.offset)).unwrap_err();
    assert_eq!(at(r#"{"a":1,"\u0061":2}"#), (Flaw::Duplicate, 7));
    assert_eq!(at(r#"{"a":"\ud800"}"#), (Flaw::LoneSurrogate, 6));
    assert_eq!(at(r#"{"a":"\udc00\ud800"}"#), (Flaw::LoneSurrogate, 6));
    assert_eq!(at("{\"a\":\"\n\"}"), (Flaw::ControlInString, 6));
    assert_eq!(at("[1] 2"), (Flaw::Trailing, 4));
    assert_eq!(at("{\"a\""), (Flaw::Truncated, 4));
    assert_eq!(at(&"[".repeat(200)), (Flaw::TooDeep(64), 64));
    let bad = Raw::parse(b"{\"a\":\"\xff\"}".to_vec(), &Limits::default()).unwrap_err();
    assert_eq!((bad.flaw, bad.offset), (Flaw::NotUtf8, 6));
    let wide =
        format!("{{{}}}", (0..100).map(|i| format!("\"k{}\":0", i % 99)).collect::<Vec<_>>().join(","));
    assert!(matches!(check(&wide), Err(JsonError { flaw: Flaw::Duplicate, .. })));
    assert!(check("1e999").is_ok(), "the size of numbers is not ours to judge");
}

#[test]
fn members_keep_their_bytes_and_their_order() {
    let object =
        RawObject::parse(r#"{ "z" : 1.0 , "a\u0062": [ 1,  2 ], "n":null }"#, &Limits::default()).unwrap();
    let all: Vec<_> = object.iter().map(|(k, v)| (k.into_owned(), v.to_string())).collect();
    assert_eq!(all, [("z", "1.0"), ("ab", "[ 1,  2 ]"), ("n", "null")].map(|(k, v)| (k.into(), v.into())));
    assert_eq!(object.get("ab").unwrap().as_str(), "[ 1,  2 ]");
    assert!(object.get("b").is_none());
}

#[test]
fn splicing_touches_no_foreign_byte() {
    let object = |text: &'static str| RawObject::parse(text, &Limits::default()).unwrap();
    assert_eq!(object("{}").with(&[("a", "1"), ("b", "2")]).as_str(), r#"{"a":1,"b":2}"#);
    assert_eq!(object("{ \"x\" : 1e2 }").with(&[("a", "1")]).as_str(), "{ \"x\" : 1e2 ,\"a\":1}");
    assert_eq!(
        object(r#"{"a": 0 ,"x":{"a":9}}"#).with(&[("b", "2"), ("a", "1")]).as_str(),
        r#"{"a": 1 ,"x":{"a":9},"b":2}"#
    );
    let stored = object(r#"{"content":[],"_meta":{"k":1,"own": 2},"z":0}"#);
    assert_eq!(
        stored.with_meta(&[("k", "5"), ("n", "6")], &[("resultType", "\"complete\"")]).as_str(),
        r#"{"content":[],"_meta":{"k":5,"own": 2,"n":6},"z":0,"resultType":"complete"}"#
    );
    assert_eq!(object("{}").with_meta(&[("n", "6")], &[]).as_str(), r#"{"_meta":{"n":6}}"#);
}

#[test]
fn line_breaks_between_tokens_become_blanks() {
    let raw = check("{\r\n \"a\": \"x\\n\"\n}").unwrap();
    assert_eq!(raw.single_line().as_str(), "{   \"a\": \"x\\n\" }");
}

#[test]
fn the_envelope_is_located_in_one_pass() {
    let body = Bytes::from_static(
        b" {\"params\":{\"x\":{\"_meta\":{\"no\":1}},\"_meta\":{\"k\":{\"deep\":1}}},\"id\":1}\n",
    );
    let found = envelope(&body, &Limits::default()).unwrap();
    assert_eq!(found.meta.unwrap().get("k").unwrap().as_str(), "{\"deep\":1}");
    assert_eq!(found.params.unwrap().len(), 2);
    assert_eq!(found.root.unwrap().raw().as_str().as_bytes(), body.trim_ascii());
}
