//! `[limits]`: what is taken, what is refused and with which words and place; the schema agrees; names and arguments are
//! those of what is served.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil::config::{Config, ConfigError};
use counterfoil::run::{Core, Use};
use gateway::limits::{Per, Test};
use ledger::{Millis, Period};
use serde_json::Value;
use std::path::Path;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("counterfoil.toml"), text, [("", ""); 0])
}

fn schema() -> jsonschema::Validator {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/counterfoil.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn as_json(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
}

const FULL: &str = r#"
[limits.payments]
rate = ["10/s", "5000/h"]
concurrency = 4
per = "principal"
breaker = { failures = 3, window = "1m", pause = "500ms" }
[limits."payments.refunds.create"]
rate = "5/30s"
budget = { argument = "/order/amount", most = 100_000, period = "day", per = "principal", by = "currency" }
allow = [{ argument = "amount", at_most = 5000.50 }, { argument = "currency", one_of = ["EUR", 1, true] }]
deny = [{ argument = "order_id", matches = "test-[0-9]+" }, { argument = "amount", at_least = -1 }]
[limits."payments.payments.create"]
concurrency = 10_000
[[limits."payments.payments.create".budget]]
argument = "amount"
most = 0
period = "24h"
per = "principal"
[[limits."payments.payments.create".budget]]
argument = "amount"
most = 7
period = "24h"
by = "currency"
[[limits."payments.payments.create".budget]]
argument = "amount"
most = 9_007_199_254_740_992
period = "month"
[limits.mail]
breaker = {}
"#;

#[test]
fn limits_are_taken_as_they_are_written() {
    let c = parse(FULL).unwrap();
    let [payments, refunds, create, mail] = c.limits.as_slice() else { panic!("{:?}", c.limits) };
    assert_eq!(payments.rates, [(10, Millis(1000)), (5000, Millis(3_600_000))]);
    assert_eq!((payments.concurrency, payments.per), (Some(4), Per::Principal));
    let b = payments.breaker.unwrap();
    assert_eq!((b.failures, b.window, b.pause), (3, Millis(60_000), Millis(500)));
    assert_eq!(refunds.rates, [(5, Millis(30_000))]);
    let budget = &refunds.budgets[0];
    assert_eq!(
        (budget.argument.to_string().as_str(), budget.most, budget.period),
        ("/order/amount", 100_000, Period::Day)
    );
    assert_eq!((budget.per, budget.by.as_ref().unwrap().to_string().as_str()), (Per::Principal, "currency"));
    assert_eq!((refunds.allow.len(), refunds.deny.len()), (2, 2));
    assert_eq!(refunds.allow[1].value.test.to_string(), "one of \"EUR\", 1, true");
    assert!(matches!(&refunds.deny[0].value.test, Test::Matches(_)));
    let of: Vec<_> = create.budgets.iter().map(|b| (b.most, b.period, b.per)).collect();
    let most = ledger::claims::MAX_AMOUNT;
    let day = Period::Last(Millis(86_400_000));
    assert_eq!(of, [(0, day, Per::Principal), (7, day, Per::All), (most, Period::Month, Per::All)]);
    let b = mail.breaker.unwrap();
    assert_eq!((b.failures, b.window, b.pause), (5, Millis(30_000), Millis(15_000)));
    assert!(parse("").unwrap().limits.is_empty());
}

/// What stands under a name, a part of the message, and whether the schema alone refuses it too. `I:` an integration, `M:` a
/// method.
const BAD: &[(&str, &str, bool)] = &[
    ("I:", "limits nothing; set rate", true),
    ("I:per = \"all\"", "per says who shares rate and concurrency", true),
    ("I:rat = \"1/s\"", "did you mean \"rate\"?", true),
    ("I:rate = 10", "rate must be a string, not an integer", true),
    ("I:rate = \"10\"", "is not a rate; write for example \"10/s\"", true),
    ("I:rate = \"0/s\"", "outside 1 to 10000", false),
    ("I:rate = \"10001/s\"", "outside 1 to 10000", false),
    ("I:rate = \"10/w\"", "is not a rate", true),
    ("I:rate = \"-1/s\"", "is not a rate", true),
    ("I:rate = \"1/100ms\"", "outside 1s to 1d", false),
    ("I:rate = \"1/2d\"", "outside 1s to 1d", false),
    ("I:rate = [\"1/s\", \"2/s\"]", "a second rate for the same time", false),
    ("I:rate = [\"1/s\", \"2/m\", \"3/h\", \"4/d\", \"5/2s\"]", "at most 4 rates", true),
    ("I:rate = []", "rate is an empty list, and limits nothing", true),
    ("M:rate = \"1/s\"\nallow = []", "allow is an empty list, and limits nothing", true),
    ("M:rate = \"1/s\"\ndeny = []", "deny is an empty list, and limits nothing", true),
    ("M:rate = \"1/s\"\nbudget = []", "budget is an empty list, and limits nothing", true),
    ("I:concurrency = 0", "concurrency must be a whole number from 1 to 10000", true),
    ("I:concurrency = \"4\"", "concurrency must be a whole number, not a string", true),
    ("I:concurrency = 4.0", "concurrency must be a whole number, not a number with a fraction", false),
    ("I:rate = \"1/s\"\nper = \"everybody\"", "use \"all\" or \"principal\"", true),
    (
        "I:budget = { argument = \"a\", most = 1, period = \"day\" }",
        "set for one method: [limits.\"pay.METHOD\"]",
        true,
    ),
    ("I:allow = [{ argument = \"a\", at_most = 1 }]", "set for one method", true),
    ("M:breaker = {}", "set for its integration: [limits.\"pay\"]", true),
    ("I:breaker = true", "breaker must be a table", true),
    ("I:breaker = { failures = 0 }", "failures must be a whole number from 1 to 1000", true),
    ("I:breaker = { window = \"2h\" }", "outside 1s to 1h", false),
    ("I:breaker = { pause = \"10ms\" }", "outside 100ms to 1h", false),
    ("I:breaker = { paus = \"1s\" }", "did you mean \"pause\"?", true),
    ("M:budget = 5", "budget is a list of tables", true),
    ("M:budget = { argument = \"a\", most = 1 }", "budget needs period", true),
    ("M:budget = { most = 1, period = \"day\" }", "budget needs argument", true),
    (
        "M:budget = { argument = \"a\", most = -1, period = \"day\" }",
        "most must be a whole number from 0",
        true,
    ),
    (
        "M:budget = { argument = \"a\", most = 9007199254740993, period = \"day\" }",
        "most must be a whole number from 0 to 9007199254740992",
        true,
    ),
    (
        "M:budget = [{ argument = \"a\", most = 1, period = \"24h\" }, { argument = \"/a\", most = 2, period = \"1d\" }]",
        "a second budget of /a for the same period",
        false,
    ),
    ("M:budget = { argument = \"a\", most = 1.5, period = \"day\" }", "most must be a whole number", true),
    ("M:budget = { argument = \"a\", most = 1, period = \"week\" }", "\"week\" is no period", true),
    ("M:budget = { argument = \"a\", most = 1, period = \"400d\" }", "outside 1s to 366d", false),
    ("M:budget = { argument = \"/a/\", most = 1, period = \"day\" }", "names no argument", true),
    (
        "M:budget = { argument = \"a\", most = 1, period = \"day\", by = \"/x~\" }",
        "is not a JSON Pointer",
        true,
    ),
    ("M:allow = { argument = \"a\", at_most = 1 }", "allow is a list of tables", true),
    ("M:allow = [{ at_most = 1 }]", "a rule needs argument", true),
    ("M:allow = [{ argument = \"a\" }]", "a rule needs one of at_most", true),
    ("M:allow = [{ argument = \"a\", at_most = 1, at_least = 0 }]", "a rule has one test", true),
    ("M:deny = [{ argument = \"a\", at_most = \"1\" }]", "at_most must be a plain number", true),
    ("M:deny = [{ argument = \"a\", at_most = inf }]", "at_most must be a plain number", true),
    ("M:deny = [{ argument = \"a\", above = 1 }]", "unknown key \"above\"", true),
    ("M:deny = [{ argument = \"a\", one_of = [] }]", "one_of has 1 to 1000 values", true),
    ("M:deny = [{ argument = \"a\", one_of = \"b\" }]", "one_of must be an array", true),
    ("M:deny = [{ argument = \"a\", one_of = [[1]] }]", "one_of takes strings, plain numbers", true),
    ("M:deny = [{ argument = \"a\", matches = \"(\" }]", "is not a regular expression", false),
    ("M:deny = [{ argument = \"a\", matches = \"a{1000}{1000}{10}\" }]", "too large a pattern", false),
];

#[test]
fn what_is_wrong_is_refused_with_its_place_and_words() {
    let schema = schema();
    for (text, words, by_schema) in BAD {
        let (kind, body) = text.split_once(':').unwrap();
        let name = if kind == "I" { "pay" } else { "pay.refunds.create" };
        let text = format!("[limits.\"{name}\"]\n{body}\n");
        let all = parse(&text).expect_err(&text).to_string();
        let found = all.lines().any(|l| l.starts_with("counterfoil.toml:") && l.contains(words));
        assert!(found, "{text:?}\nwanted {words}\ngot {all}");
        let valid = schema.is_valid(&as_json(&text));
        assert_eq!(!valid, *by_schema, "{text}");
    }
    let errors: Vec<String> = schema.iter_errors(&as_json(FULL)).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let line = parse("[limits.pay]\nrate = \"1/s\"\nconcurrency = 0\n").unwrap_err().to_string();
    assert!(line.starts_with("counterfoil.toml:3:15"), "{line}");
}

/// The bundled provider's tools, and what is wrong with these limits for them.
async fn served(limits: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("[server]\nlisten = \"127.0.0.1:0\"\n[sandbox]\nlisten = \"127.0.0.1:0\"\n{limits}");
    let file = dir.path().join("counterfoil.toml");
    std::fs::write(&file, &text).unwrap();
    let config = Config::parse(&file, &text, [("", ""); 0]).unwrap();
    match Core::open(config, Use::Catalog).await {
        Ok(_) => String::new(),
        Err(e) => e.to_string(),
    }
}

#[tokio::test]
async fn names_and_arguments_are_those_of_what_is_served() {
    assert_eq!(served("[limits.payments]\nrate = \"1/s\"\nbreaker = {}\n[limits.\"payments.refunds.create\"]\nbudget = { argument = \"amount\", most = 1, period = \"day\" }\n").await, "");
    for (limits, words) in [
        (
            "[limits.payment]\nrate = \"1/s\"\n",
            "there is no integration \"payment\"; did you mean \"payments\"?",
        ),
        (
            "[limits.\"payments.refund.create\"]\nrate = \"1/s\"\n",
            "there is no method \"payments.refund.create\"; did you mean \"payments.refunds.create\"?",
        ),
        (
            "[limits.\"payments.refunds.create\"]\nallow = [{ argument = \"/amout/x\", at_most = 1 }]\n",
            "payments.refunds.create has no argument \"amout\"; did you mean \"amount\"?",
        ),
        (
            "[limits.\"payments.refunds.create\"]\nbudget = { argument = \"amount\", most = 1, period = \"day\", by = \"valuta\" }\n",
            "has no argument \"valuta\"",
        ),
        (
            "[limits.\"payments.payments.get\"]\nbudget = { argument = \"id\", most = 1, period = \"day\" }\n",
            "payments.payments.get only reads, so nothing of it is added up",
        ),
    ] {
        let said = served(limits).await;
        assert!(said.contains(words), "{limits}\nwanted {words}\ngot {said}");
    }
}
