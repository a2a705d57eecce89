#![allow(clippy::unwrap_used)]

use super::*;
use crate::approval::Approval;
use ledger::Kind;
use mcp::json::Limits as Bounds;

fn object(text: &str) -> RawObject {
    RawObject::parse(text.to_owned(), &Bounds::default()).unwrap()
}

fn number(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

fn rule(argument: &str, test: Test) -> Rule {
    Rule { argument: Argument::parse(argument).unwrap(), test }
}

const ANN: Whose<'static> = Whose { principal: "ann", mode: "production" };

fn claims(limit: &Limit, whose: Whose<'_>, arguments: &str) -> Result<Vec<Allowance>, Unfit> {
    Limits { limits: vec![limit.clone()], ..Limits::default() }.of_call(whose, &object(arguments))
}

fn bucket(limit: &Limit, whose: Whose<'_>, arguments: &str) -> String {
    claims(limit, whose, arguments).unwrap().remove(0).bucket
}

fn budget(per: Per, by: Option<&str>) -> Limit {
    let by = by.map(|b| Argument::parse(b).unwrap());
    let argument = Argument::parse("/order/amount").unwrap();
    Limit {
        of: "pay.refund".into(),
        per,
        what: What::Budget { argument, most: 100, period: Period::Day, by },
    }
}

#[test]
fn an_argument_is_found_by_name_or_by_path() {
    let args = object(r#"{"a":1,"b":{"c":{"d/e":2,"f~":3}},"g":[4],"n":null,"":5}"#);
    let found = |text: &str| Argument::parse(text).unwrap().find(&args);
    let found = |text: &str| match found(text) {
        Found::Value(raw) => Some(raw.as_str().to_owned()),
        Found::Nothing => None,
        Found::Unclear => panic!("{text}"),
    };
    for (text, value) in [
        ("a", Some("1")),
        ("/a", Some("1")),
        ("/b/c/d~1e", Some("2")),
        ("/b/c/f~0", Some("3")),
        ("/g", Some("[4]")),
    ] {
        assert_eq!(found(text).as_deref(), value, "{text}");
    }
    for none in ["c", "/b/x", "/a/b", "/g/0", "n", "/n", "b.c"] {
        assert_eq!(found(none), None, "{none}");
    }
    for bad in ["", "/", "/a/", "//a", "/a~2", "/a~", &"x".repeat(256), &"/a".repeat(17)] {
        assert!(Argument::parse(bad).is_err(), "{bad}");
    }
    assert_eq!((Argument::parse("/b/c").unwrap().root(), Argument::parse("a").unwrap().root()), ("b", "a"));
}

#[test]
fn rules_are_closed_unless_opened() {
    let text = |t: &str| Value::Text(t.into());
    let at_most = Test::AtMost(number("5000"));
    let one_of = Test::OneOf(vec![text("EUR"), Value::Number(number("1")), Value::Bool(true)]);
    let matches = Test::matches("[a-z]+|x1").unwrap();
    // A value, and whether it is allowed by, and denied by, each of: at most 5000, one of, matches.
    let table: [(&str, [bool; 3], [bool; 3]); 13] = [
        ("1", [true, true, false], [true, true, true]),
        ("1.0", [true, true, false], [true, true, true]),
        ("5000", [true, false, false], [true, true, true]),
        ("5e3", [true, false, false], [true, true, true]),
        ("5000.0000000000000000000000001", [false, false, false], [false, true, true]),
        ("9007199254740993", [false, false, false], [false, true, true]),
        (r#""EUR""#, [false, true, false], [true, true, false]),
        (r#""eur""#, [false, false, true], [true, true, true]),
        (r#""\u0045UR""#, [false, true, false], [true, true, false]),
        (r#""x12""#, [false, false, false], [true, true, false]),
        ("true", [false, true, false], [true, true, true]),
        ("null", [false; 3], [false; 3]),
        ("[1]", [false; 3], [true; 3]),
    ];
    for (value, allowed, denied) in table {
        let args = object(&format!("{{\"v\":{value}}}"));
        for (n, test) in [&at_most, &one_of, &matches].into_iter().enumerate() {
            let r = [rule("v", test.clone())];
            assert_eq!(rules::refused(&[], &r, &args).is_none(), allowed[n], "allow {value} {test}");
            assert_eq!(rules::refused(&r, &[], &args).is_some(), denied[n], "deny {value} {test}");
        }
    }
    // What is not there fails what would allow it, and is nothing to deny.
    let r = [rule("v", at_most.clone())];
    assert!(
        rules::refused(&[], &r, &object("{}")).is_some() && rules::refused(&r, &[], &object("{}")).is_none()
    );
    // A list of one kind tells others of that kind apart.
    let currencies = [rule("v", Test::OneOf(vec![text("USD")]))];
    assert!(rules::refused(&currencies, &[], &object(r#"{"v":"EUR"}"#)).is_none());
    assert!(rules::refused(&currencies, &[], &object(r#"{"v":1}"#)).is_some());
    // Denying wins, and each says itself.
    let both = Limits {
        deny: vec![rule("v", Test::AtLeast(number("100")))],
        allow: vec![rule("v", at_most), rule("w", one_of)],
        ..Limits::default()
    };
    let says = |args: &str| match both.of_call(ANN, &object(args)) {
        Err(Unfit::Refused(e)) => {
            assert_eq!((e.kind, e.retry_after), (Kind::Denied, None));
            e.sentence.split("so nothing ran: ").nth(1).unwrap().to_owned()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(says(r#"{"v":6000}"#), "it is denied for what v is.");
    assert_eq!(says(r#"{"v":1}"#), "it is allowed only if w is one of \"EUR\", 1, true.");
    assert!(both.of_call(ANN, &object(r#"{"v":1,"w":1}"#)).is_ok());
}

#[test]
fn a_name_in_other_letters_is_unclear() {
    let limit = [rule("v", Test::AtMost(number("5")))];
    let inside = [rule("/order/v", Test::AtMost(number("5")))];
    for (args, rules) in [
        (r#"{"v":1,"V":9}"#, &limit),
        (r#"{"V":9}"#, &limit),
        (r#"{"v":null,"V":null}"#, &limit),
        (r#"{"order":{"v":1,"\u0056":9}}"#, &inside),
        (r#"{"order":{"v":1},"Order":{"v":9}}"#, &inside),
    ] {
        let args = object(args);
        assert!(rules::refused(&[], rules, &args).is_some() && rules::refused(rules, &[], &args).is_some());
    }
    assert!(rules::refused(&[], &inside, &object(r#"{"order":{"v":1},"V":9}"#)).is_none());
    let over = Approval::Over(vec![("v".into(), number("5"))]);
    // The long s and the kelvin sign: some readers take them for an s and a k.
    for (args, name) in [(r#"{"cents":1,"cent\u017f":9}"#, "cents"), (r#"{"k":1,"\u212a":9}"#, "k")] {
        assert!(Approval::Over(vec![(name.into(), number("5"))]).is_needed(&object(args)), "{args}");
    }
    assert!(over.is_needed(&object(r#"{"v":1,"V":9}"#)) && !over.is_needed(&object(r#"{"v":1,"w":9}"#)));
    let of = budget(Per::All, Some("by"));
    assert!(claims(&of, ANN, r#"{"order":{"amount":1},"by":"x"}"#).is_ok());
    for twin in
        [r#"{"order":{"amount":1,"Amount":9},"by":"x"}"#, r#"{"order":{"amount":1},"by":"x","BY":"y"}"#]
    {
        assert!(matches!(claims(&of, ANN, twin), Err(Unfit::Arguments(_))), "{twin}");
    }
}

#[test]
fn a_caller_is_told_no_whole_list() {
    let text = |n: usize| Value::Text(format!("customer-{n}"));
    let many = rule("who", Test::OneOf((0..1000).map(text).collect()));
    let said = |deny: &[Rule], allow: &[Rule]| {
        let args = object(r#"{"who":"customer-7","name":"x"}"#);
        rules::refused(deny, allow, &args).unwrap().sentence.to_string()
    };
    let denied = said(std::slice::from_ref(&many), &[]);
    assert!(denied.contains("for what who is") && !denied.contains("customer-"), "{denied}");
    let others = rule("name", many.test.clone());
    let allowed = said(&[], &[others]);
    assert!(
        allowed.contains("\"customer-9\", or of 990 more.") && !allowed.contains("customer-10"),
        "{allowed}"
    );
    let long = rule("name", Test::OneOf(vec![Value::Text("y".repeat(5000))]));
    let told = said(&[], std::slice::from_ref(&long));
    assert!(told.contains("…\" (cut)") && told.len() < 400, "{told}");
    // An operator sees all of it.
    let limits = Limits { deny: vec![many, long], ..Limits::default() };
    let told = limits.told().join("\n");
    assert!(told.contains("customer-999") && told.contains(&"y".repeat(5000)));
}

#[test]
fn patterns_fit_the_whole_text_and_are_bounded() {
    let fits = |pattern: &str, text: &str| {
        let args = object(&serde_json::json!({ "v": text }).to_string());
        rules::refused(&[], &[rule("v", Test::matches(pattern).unwrap())], &args).is_none()
    };
    assert!(fits("a|b", "a") && fits("a|b", "b") && !fits("a|b", "ab") && !fits("a|b", "xa"));
    assert!(fits("(?i)eur", "EUR") && !fits("eur", "EUR") && !fits("a", "a\n"));
    for bad in ["(", "a)|(b", "a{100000}{1000}", "\\", "[z-a]"] {
        assert!(Test::matches(bad).is_err(), "{bad}");
    }
    assert_eq!(Test::matches("a|b").unwrap().to_string(), "a text like a|b");
}

#[test]
fn an_amount_is_a_whole_number() {
    let limit = budget(Per::All, None);
    let of = |amount: &str| claims(&limit, ANN, &format!(r#"{{"order":{{"amount":{amount}}}}}"#));
    for (text, amount) in
        [("7", 7), ("7.0", 7), ("7e2", 700), ("9007199254740992", ledger::claims::MAX_AMOUNT)]
    {
        assert_eq!(of(text).unwrap()[0].amount, amount, "{text}");
    }
    assert_eq!(of("0").unwrap(), [], "nothing is claimed of nothing");
    for bad in [
        "-1",
        "0.5",
        "1e-1",
        "\"7\"",
        "null",
        "[7]",
        "true",
        "9007199254740993",
        "9223372036854775808",
        "1e30",
        "18446744073709551616",
    ] {
        assert!(matches!(of(bad), Err(Unfit::Arguments(_))), "{bad}");
    }
    let Err(Unfit::Arguments(BadArguments(why))) = claims(&limit, ANN, "{}") else { panic!("it is missing") };
    assert!(
        why.starts_with("/order/amount has to be a whole number from 0 to") && why.ends_with("it is missing"),
        "{why}"
    );
}

#[test]
fn buckets_are_shared_by_those_who_share_the_limit() {
    let bob = Whose { principal: "bob", ..ANN };
    let sandbox = Whose { mode: "sandbox", ..ANN };
    let call =
        |amount: u64, currency: &str| format!(r#"{{"order":{{"amount":{amount}}},"currency":"{currency}"}}"#);
    let (one, eur, eur2, usd) = (call(1, "EUR"), call(2, "EUR"), call(3, " eur"), call(4, "USD"));
    let all = budget(Per::All, None);
    assert_eq!(bucket(&all, ANN, &one), bucket(&all, bob, &usd));
    assert_ne!(bucket(&all, ANN, &one), bucket(&all, sandbox, &one));
    let own = budget(Per::Principal, None);
    assert_eq!(bucket(&own, ANN, &one), bucket(&own, ANN, &usd));
    assert_ne!(bucket(&own, ANN, &one), bucket(&own, bob, &one));
    assert_ne!(bucket(&own, Whose { principal: "", ..ANN }, &one), bucket(&all, ANN, &one));
    let by = budget(Per::All, Some("currency"));
    assert_eq!(bucket(&by, ANN, &eur), bucket(&by, ANN, &eur2), "spellings of the same");
    assert_ne!(bucket(&by, ANN, &eur), bucket(&by, ANN, &usd));
    assert_eq!(claims(&by, ANN, &eur).unwrap()[0].of, "the sum of /order/amount of pay.refund, currency eur");
    for bad in ["", r#","currency":"""#, r#","currency":7"#, r#","currency":null"#] {
        let args = format!(r#"{{"order":{{"amount":1}}{bad}}}"#);
        assert!(matches!(claims(&by, ANN, &args), Err(Unfit::Arguments(_))), "{args}");
    }
    let rate = |of: &str, most: u64, span: i64| Limit {
        of: of.into(),
        per: Per::All,
        what: What::Rate { most, span: Millis(span) },
    };
    assert_eq!(
        bucket(&rate("pay", 1, 9), ANN, "{}"),
        bucket(&rate("pay", 2, 9), bob, "{}"),
        "a cap may be changed"
    );
    assert_ne!(bucket(&rate("pay", 1, 9), ANN, "{}"), bucket(&rate("pay", 1, 8), ANN, "{}"));
    assert_ne!(bucket(&rate("pay", 1, 9), ANN, "{}"), bucket(&rate("mail", 1, 9), ANN, "{}"));
    assert!(ledger::claims::fits(&bucket(&by, ANN, &eur)));
    assert!(!claims(&all, ANN, &one).unwrap()[0].own && claims(&own, ANN, &one).unwrap()[0].own);
}

#[test]
fn budgets_of_one_argument_are_claimed_side_by_side() {
    let of = |period, by: Option<&str>, per| {
        let limit = budget(per, by);
        let What::Budget { argument, most, by, .. } = limit.what.clone() else { panic!("it is one") };
        Limit { what: What::Budget { argument, most, period, by }, ..limit }
    };
    let last = |ms| Period::Last(Millis(ms));
    let limits = Limits {
        limits: vec![
            of(Period::Day, None, Per::All),
            of(Period::Month, None, Per::All),
            of(last(1000), None, Per::All),
            of(last(2000), None, Per::All),
            of(Period::Day, None, Per::Principal),
            of(Period::Day, Some("currency"), Per::All),
            of(Period::Day, Some("country"), Per::All),
        ],
        ..Limits::default()
    };
    let args = object(r#"{"order":{"amount":5},"currency":"eur","country":"eur"}"#);
    let allowances = limits.of_call(ANN, &args).unwrap();
    let claims: Vec<_> = allowances.iter().map(|a| a.claim(ledger::Time(0))).collect();
    assert_eq!(claims.len(), 7);
    assert!(ledger::claims::bounded(&claims).is_ok(), "two are on one bucket: {claims:?}");
}

#[test]
fn limits_are_told_in_words() {
    let limits = Limits {
        allow: vec![rule("currency", Test::OneOf(vec![Value::Text("EUR".into())]))],
        deny: vec![rule("/order/amount", Test::AtLeast(number("5000.5")))],
        limits: vec![
            Limit { of: "pay".into(), per: Per::All, what: What::Rate { most: 600, span: Millis::secs(60) } },
            Limit {
                of: "pay".into(),
                per: Per::Principal,
                what: What::Places { most: 4, held: Millis::secs(75) },
            },
            budget(Per::Principal, Some("currency")),
        ],
        breaker: Some(Arc::new(Breaker::new(
            "pay",
            BreakerSettings { failures: 5, window: Millis::secs(30), pause: Millis(1500) },
        ))),
    };
    assert_eq!(
        limits.told(),
        [
            "denied if /order/amount is at least 5000.5",
            "allowed only if currency is one of \"EUR\"",
            "calls of pay: none are begun for 1.5 s after 5 sends in 30 s without an answer",
            "calls of pay: at most 600 in 1 minute",
            "calls of pay, for each caller: at most 4 at a time",
            "the sum of /order/amount of pay.refund, for each caller, for each currency: at most 100 in a day (UTC)",
        ]
    );
    assert!(Limits::default().told().is_empty() && Limits::default().gate().is_none());
}
