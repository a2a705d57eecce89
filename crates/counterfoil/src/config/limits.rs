//! `[limits."name"]`: how much the methods of an integration, or one method or tool, may be used.

use super::Set;
use super::error::At;
use super::node::{Kind, Reader};
use super::values::duration;
use gateway::approval::Decimal;
use gateway::limits::{Argument, BreakerSettings, Per, Rule, Test, Value};
use ledger::{Millis, Period};
use provider::nearest;

/// The most that a rate lets through in its time, and the most places.
const MAX_COUNT: u64 = 10_000;
/// The most rates, and the most budgets, of one name.
const MAX_EACH: usize = 4;
/// The most rules of one name.
const MAX_RULES: usize = 64;
/// The most values of a rule.
const MAX_VALUES: usize = 1000;
const SECOND: Millis = Millis::secs(1);
const DAY: Millis = Millis::secs(86_400);

/// What is limited under one name.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// An integration; or, with a dot in it, the canonical id of a method or tool.
    pub name: String,
    /// Where the table begins.
    pub at: At,
    /// So many begin in a time.
    pub rates: Vec<(u64, Millis)>,
    /// So many run at a time.
    pub concurrency: Option<u64>,
    /// Who shares these.
    pub per: Per,
    /// For how much in all.
    pub budgets: Vec<Budget>,
    /// Each of them has to hold.
    pub allow: Vec<Set<Rule>>,
    /// None of them may hold.
    pub deny: Vec<Set<Rule>>,
    /// When nothing is begun because its provider does not answer.
    pub breaker: Option<BreakerSettings>,
}

/// A sum that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Where it is written.
    pub at: At,
    /// What is added up.
    pub argument: Argument,
    /// How much.
    pub most: u64,
    /// In this time.
    pub period: Period,
    /// Each value of this argument has a sum of its own.
    pub by: Option<Argument>,
    /// Who shares it.
    pub per: Per,
}

impl LimitsConfig {
    /// Whether it is about one method or tool, and not about an integration.
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        self.name.contains('.')
    }

    /// The arguments that it looks at, and where it says so.
    pub fn arguments(&self) -> impl Iterator<Item = (&Argument, &At)> {
        let rules = self.allow.iter().chain(&self.deny).map(|r| (&r.value.argument, &r.at));
        let budgets = self
            .budgets
            .iter()
            .flat_map(|b| std::iter::once((&b.argument, &b.at)).chain(b.by.as_ref().map(|by| (by, &b.at))));
        rules.chain(budgets)
    }
}

pub(super) fn read(section: &Reader<'_>) -> Vec<LimitsConfig> {
    section.tables().into_iter().map(|(name, r)| one(name, &r)).collect()
}

fn one(name: &str, r: &Reader<'_>) -> LimitsConfig {
    let l = LimitsConfig {
        name: name.to_owned(),
        at: r.at.clone(),
        rates: rates(r),
        concurrency: r.whole("concurrency", 1, MAX_COUNT).map(|(n, _)| n),
        per: per(r),
        budgets: budgets(r),
        allow: rules(r, "allow"),
        deny: rules(r, "deny"),
        breaker: breaker(r),
    };
    if name.is_empty() || name.len() > 255 {
        r.faults.add(&r.at, format!("{name:?} is no name; write for example [limits.\"payments\"]"));
    }
    for key in ["budget", "allow", "deny"] {
        if !l.is_of_one() && !r.lacks(key) {
            r.faults.add(
                &r.place(key),
                format!("{key} looks at arguments, so it is set for one method: [limits.\"{name}.METHOD\"]"),
            );
        }
    }
    if l.is_of_one() && !r.lacks("breaker") {
        let of = name.split('.').next().unwrap_or_default();
        r.faults.add(
            &r.place("breaker"),
            format!("breaker looks at a whole provider, so it is set for its integration: [limits.\"{of}\"]"),
        );
    }
    if !r.lacks("per") && r.lacks("rate") && r.lacks("concurrency") {
        r.faults.add(
            &r.place("per"),
            "per says who shares rate and concurrency, and neither is set; a budget has a per of its own",
        );
    }
    for key in ["rate", "budget", "allow", "deny"] {
        if r.is_empty_list(key) {
            r.faults.add(
                &r.place(key),
                format!("{key} is an empty list, and limits nothing; write what is to hold, or take it out"),
            );
        }
    }
    r.finish();
    if ["rate", "concurrency", "per", "budget", "allow", "deny", "breaker"].iter().all(|key| r.lacks(key)) {
        r.faults.add(
            &r.at,
            format!(
                "{} limits nothing; set rate, concurrency, budget, allow, deny or breaker, or take it out",
                r.name
            ),
        );
    }
    l
}

fn per(r: &Reader<'_>) -> Per {
    let per = r.parsed("per", |text| match text {
        "all" => Ok(Per::All),
        "principal" => Ok(Per::Principal),
        _ => Err(format!("{text:?} is unknown; use \"all\" or \"principal\"")),
    });
    per.map_or(Per::All, |(p, _)| p)
}

/// `"10/s"`, `"600/m"`, `"5/30s"`.
fn rate(text: &str) -> Result<(u64, Millis), String> {
    let wrong = || format!("{text:?} is not a rate; write for example \"10/s\", \"600/m\" or \"5/30s\"");
    let (count, span) = text.split_once('/').ok_or_else(wrong)?;
    let most: u64 = count.parse().map_err(|_| wrong())?;
    let span = match span {
        "s" | "m" | "h" | "d" => duration(&format!("1{span}"), SECOND, DAY)?,
        other if other.starts_with(|c: char| c.is_ascii_digit()) => duration(other, SECOND, DAY)?,
        _ => return Err(wrong()),
    };
    if (1..=MAX_COUNT).contains(&most) {
        Ok((most, span))
    } else {
        Err(format!("{text:?} is outside 1 to {MAX_COUNT} in its time"))
    }
}

fn rates(r: &Reader<'_>) -> Vec<(u64, Millis)> {
    let written = if r.is_list("rate") {
        r.texts("rate").unwrap_or_default()
    } else {
        r.text("rate").into_iter().collect()
    };
    let mut out: Vec<(u64, Millis)> = Vec::new();
    for (text, at) in written {
        match rate(&text) {
            Ok((_, span)) if out.iter().any(|(_, s)| *s == span) => {
                r.faults
                    .add(&at, format!("rate: {text:?} is a second rate for the same time; keep the smaller"));
            }
            Ok(rate) => out.push(rate),
            Err(why) => r.faults.add(&at, format!("rate: {why}")),
        }
    }
    if out.len() > MAX_EACH {
        r.faults.add(&r.place("rate"), format!("rate: at most {MAX_EACH} rates for one name"));
    }
    out
}

fn argument(r: &Reader<'_>, key: &'static str) -> Option<Argument> {
    r.parsed(key, Argument::parse).map(|(a, _)| a)
}

fn budgets(r: &Reader<'_>) -> Vec<Budget> {
    let tables: Vec<Reader<'_>> =
        if r.is_table("budget") { r.table("budget").into_iter().collect() } else { r.list("budget") };
    if tables.len() > MAX_EACH {
        r.faults.add(&r.place("budget"), format!("budget: at most {MAX_EACH} budgets for one method"));
    }
    let mut out: Vec<Budget> = Vec::new();
    for b in tables.iter().filter_map(budget) {
        let same = |o: &Budget| {
            o.argument.is(&b.argument)
                && o.period == b.period
                && o.per == b.per
                && match (&o.by, &b.by) {
                    (None, None) => true,
                    (Some(a), Some(b)) => a.is(b),
                    _ => false,
                }
        };
        if out.iter().any(same) {
            r.faults.add(
                &b.at,
                format!("budget: a second budget of {} for the same period; keep the smaller", b.argument),
            );
        } else {
            out.push(b);
        }
    }
    out
}

fn budget(r: &Reader<'_>) -> Option<Budget> {
    let given = argument(r, "argument");
    let most = r.whole("most", 0, ledger::claims::MAX_AMOUNT);
    let period = r.parsed("period", |text| match text {
        "day" => Ok(Period::Day),
        "month" => Ok(Period::Month),
        _ if text.starts_with(|c: char| c.is_ascii_digit()) => {
            duration(text, SECOND, Millis(366 * DAY.0)).map(Period::Last)
        }
        _ => Err(format!("{text:?} is no period; use \"day\", \"month\" or a length such as \"24h\"")),
    });
    let (by, per) = (argument(r, "by"), per(r));
    for key in ["argument", "most", "period"] {
        if r.lacks(key) {
            r.faults.add(
                &r.at,
                format!("budget needs {key}: {{ argument = \"amount\", most = 100000, period = \"day\" }}"),
            );
        }
    }
    r.finish();
    Some(Budget { at: r.at.clone(), argument: given?, most: most?.0, period: period?.0, by, per })
}

fn rules(r: &Reader<'_>, key: &'static str) -> Vec<Set<Rule>> {
    let tables = r.list(key);
    if tables.len() > MAX_RULES {
        r.faults.add(&r.place(key), format!("{key}: at most {MAX_RULES} rules for one method"));
    }
    tables.iter().filter_map(rule).collect()
}

const TESTS: [&str; 4] = ["at_most", "at_least", "one_of", "matches"];

fn rule(r: &Reader<'_>) -> Option<Set<Rule>> {
    let given = argument(r, "argument");
    let tests = [
        number(r, "at_most").map(Test::AtMost),
        number(r, "at_least").map(Test::AtLeast),
        one_of(r),
        r.parsed("matches", Test::matches).map(|(t, _)| t),
    ];
    r.finish();
    if r.lacks("argument") {
        r.faults.add(&r.at, "a rule needs argument: { argument = \"amount\", at_most = 5000 }");
    }
    match TESTS.iter().filter(|key| !r.lacks(key)).count() {
        0 => r.faults.add(&r.at, "a rule needs one of at_most, at_least, one_of, matches"),
        1 => {}
        _ => r.faults.add(&r.at, "a rule has one test; write another rule for the other"),
    }
    let test = tests.into_iter().flatten().next();
    Some(Set { value: Rule { argument: given?, test: test? }, at: r.at.clone() })
}

fn decimal(kind: &Kind) -> Option<Decimal> {
    match kind {
        Kind::Integer(n) => Decimal::parse(&n.to_string()),
        Kind::Fraction(text) => Decimal::parse(text.trim_start_matches('+')),
        _ => None,
    }
}

fn number(r: &Reader<'_>, key: &'static str) -> Option<Decimal> {
    let entry = r.take(key)?;
    let number = decimal(&entry.value.kind);
    if number.is_none() {
        r.faults.add(&entry.value.at, format!("{key} must be a plain number"));
    }
    number
}

fn one_of(r: &Reader<'_>) -> Option<Test> {
    let entry = r.take("one_of")?;
    let Kind::List(list) = &entry.value.kind else {
        r.faults.add(&entry.value.at, "one_of must be an array of strings, numbers or true and false");
        return None;
    };
    let mut values = Vec::new();
    for node in list {
        let value = match &node.kind {
            Kind::Text(text) => Some(Value::Text(text.clone())),
            Kind::Bool(b) => Some(Value::Bool(*b)),
            other => decimal(other).map(Value::Number),
        };
        match value {
            Some(value) => values.push(value),
            None => r.faults.add(&node.at, "one_of takes strings, plain numbers and true or false"),
        }
    }
    if list.is_empty() || list.len() > MAX_VALUES {
        r.faults.add(&entry.value.at, format!("one_of has 1 to {MAX_VALUES} values"));
    }
    Some(Test::OneOf(values))
}

fn breaker(r: &Reader<'_>) -> Option<BreakerSettings> {
    let inner = r.table("breaker")?;
    let hour = Millis::secs(3600);
    let span = |key: &'static str, least, default| {
        inner.parsed(key, |t| duration(t, least, hour)).map_or(default, |(d, _)| d)
    };
    let settings = BreakerSettings {
        failures: inner.whole("failures", 1, 1000).and_then(|(n, _)| u32::try_from(n).ok()).unwrap_or(5),
        window: span("window", SECOND, Millis::secs(30)),
        pause: span("pause", Millis(100), Millis::secs(15)),
    };
    inner.finish();
    Some(settings)
}

/// A suggestion for a name that is not there.
pub(crate) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "`counterfoil methods` lists what there is".to_owned(),
    }
}
