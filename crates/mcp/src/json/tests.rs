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

/// What a string may hold, looked at a byte at a time.
fn is_string_inside(inside: &[u8]) -> bool {
    let mut escaped = false;
    for byte in inside {
        match (escaped, byte) {
            (true, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => escaped = false,
            (true, _) | (false, 0..=0x1f | b'"') => return false,
            (false, b'\\') => escaped = true,
            (false, _) => {}
        }
    }
    !escaped && std::str::from_utf8(inside).is_ok()
}

#[test]
fn every_byte_at_every_place_of_a_string_counts() {
    let check = |inside: &[u8]| {
        // At every offset to the eight bytes that are looked at together.
        for before in 0..2 {
            let text = [&b" "[..before], b"\"", inside, b"\""].concat();
            let ours = Raw::parse(text.clone(), &Limits::default());
            assert_eq!(ours.is_ok(), is_string_inside(inside), "{text:?}: {ours:?}");
            if let Ok(ours) = ours {
                let theirs: String = serde_json::from_slice(&text).unwrap();
                assert_eq!(ours.as_string().unwrap(), theirs);
            }
        }
    };
    for length in 0..=17 {
        for at in 0..length {
            for byte in 0..=255 {
                let mut inside = vec![b'x'; length];
                inside[at] = byte;
                check(&inside);
                if let Some(next) = inside.get_mut(at + 1) {
                    *next = 0xa9;
                    check(&inside);
                }
            }
        }
    }
    // Two of them, near each other: a mark for one must not hide or move that of the other.
    let marked = [0, 1, 0x1f, 0x20, 0x21, b'"', b'#', b'[', b'\\', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff];
    for first in 0..9 {
        for second in first + 1..10 {
            for a in marked {
                for b in marked {
                    let mut inside = [b' '; 17];
                    (inside[first], inside[second]) = (a, b);
                    check(&inside);
                }
            }
        }
    }
}

#[test]
fn surrogates_are_whole_wherever_they_lie() {
    let halves = ["\\ud83d", "\\ude00", "\\u0041", "\\ud83", "\\u", "\\", "x", "\u{1f600}"];
    for before in 0..9 {
        for a in halves {
            for b in halves {
                for after in 0..9 {
                    let text = format!("\"{}{a}{b}{}\"", "y".repeat(before), "z".repeat(after));
                    let theirs = serde_json::from_str::<String>(&text);
                    let ours = check(&text);
                    assert_eq!(ours.is_ok(), theirs.is_ok(), "{text}: {ours:?}");
                    if let (Ok(ours), Ok(theirs)) = (&ours, &theirs) {
                        assert_eq!(ours.as_string().as_deref(), Some(theirs.as_str()));
                    }
                }
            }
        }
    }
}

#[test]
fn arguments_are_those_of_the_params_alone() {
    let located = |text: &str| {
        let text = Bytes::copy_from_slice(text.as_bytes());
        envelope(&text, &Limits { depth: 5, unique_members: true })
            .map(|e| e.arguments.map(|a| a.as_str().to_owned()))
            .map_err(|e| e.flaw)
    };
    let none = Ok(None);
    assert_eq!(located(r#"{"arguments":{"a":1}}"#), none);
    assert_eq!(located(r#"{"params":[{"arguments":{"a":1}}]}"#), none);
    assert_eq!(located(r#"{"params":"arguments"}"#), none);
    assert_eq!(located(r#"{"params":{"x":{"arguments":{"a":1}}}}"#), none);
    assert_eq!(located(r#"{"params":{"_meta":{"arguments":{"a":1}}}}"#), none);
    assert_eq!(located(r#"{"x":{"params":{"arguments":{"a":1}}}}"#), none);
    for other in ["null", "[{}]", "\"{}\"", "1"] {
        assert_eq!(located(&format!(r#"{{"params":{{"arguments":{other}}}}}"#)), none);
    }
    let nested = r#" { "params" : {"arguments":{"arguments":{"b":2},"params":{"arguments":{}}} } } "#;
    assert_eq!(located(nested), Ok(Some(r#"{"arguments":{"b":2},"params":{"arguments":{}}}"#.into())));
    assert_eq!(located(r#"{"p\u0061rams":{"\u0061rguments":{"c":3}}}"#), Ok(Some(r#"{"c":3}"#.into())));
    for twice in [
        r#"{"params":{"arguments":{},"arguments":{}}}"#,
        r#"{"params":{"arguments":{},"\u0061rguments":{}}}"#,
        r#"{"params":{"arguments":{"a":1,"\u0061":2}}}"#,
        r#"{"params":{},"params":{"arguments":{}}}"#,
    ] {
        assert_eq!(located(twice), Err(Flaw::Duplicate), "{twice}");
    }
    assert!(located(r#"{"params":{"arguments":{"a":[[]]}}}"#).is_ok());
    assert_eq!(located(r#"{"params":{"arguments":{"a":[[[]]]}}}"#), Err(Flaw::TooDeep(5)));
    // Members are found by their places in the whole text.
    let text = Bytes::from_static(br#"  {"params":{"arguments":{"n":[1, 2],"\u006d":"x"}}}"#);
    let arguments = envelope(&text, &Limits::default()).unwrap().arguments.unwrap();
    assert_eq!(arguments.text("n"), Some("[1, 2]"));
    assert_eq!(arguments.string("m").as_deref(), Some("x"));
    assert!(!arguments.has("arguments"));
    let blanks = RawObject::parse(" \n {\"a\" : \"b\"} ", &Limits::default()).unwrap();
    assert_eq!((blanks.as_str(), blanks.text("a")), ("{\"a\" : \"b\"}", Some("\"b\"")));
}
