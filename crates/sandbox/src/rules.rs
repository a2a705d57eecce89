//! Fault rules: which requests they fit, and what they do to them.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::request::{Request, Route};

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    ApplyThenCut,
    ApplyThen502,
    ApplyThen500,
    ApplyThenHang,
    Cut,
    Hang,
    Fail,
    Refuse,
    RefuseReplay,
    RetryLater,
    Unavailable,
    Garbage,
    Torn,
    Trickle,
    Huge,
    Delay,
    ForgetKeys,
    NotFoundForAWhile,
}

/// Name, fault, the fields it takes beyond those of every rule.
const FAULTS: [(&str, Fault, &[&str]); 18] = [
    ("apply_then_cut", Fault::ApplyThenCut, &["after_ms"]),
    ("apply_then_502", Fault::ApplyThen502, &["after_ms", "status"]),
    ("apply_then_500", Fault::ApplyThen500, &["after_ms"]),
    ("apply_then_hang", Fault::ApplyThenHang, &[]),
    ("cut", Fault::Cut, &["after_ms"]),
    ("hang", Fault::Hang, &[]),
    ("fail", Fault::Fail, &["after_ms"]),
    ("refuse", Fault::Refuse, &["after_ms", "status", "body"]),
    ("refuse_replay", Fault::RefuseReplay, &["after_ms", "status", "body"]),
    ("retry_later", Fault::RetryLater, &["after_ms", "retry_after"]),
    ("unavailable", Fault::Unavailable, &["after_ms", "retry_after"]),
    ("garbage", Fault::Garbage, &["after_ms", "body"]),
    ("torn", Fault::Torn, &["after_ms"]),
    ("trickle", Fault::Trickle, &["after_ms", "delay_ms"]),
    ("huge", Fault::Huge, &["after_ms"]),
    ("delay", Fault::Delay, &["delay_ms"]),
    ("forget_keys", Fault::ForgetKeys, &[]),
    ("not_found_for_a_while", Fault::NotFoundForAWhile, &["delay_ms"]),
];
const COMMON: [&str; 5] = ["on", "do", "times", "skip", "match"];
/// The longest wait a rule may ask for; also how long a hang lasts.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(600);
const MAX_RULES: usize = 1000;

/// An armed rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    id: u64,
    on: On,
    fault: Fault,
    times: u64,
    skip: u64,
    key: Option<String>,
    object: Option<String>,
    delay: Duration,
    fitted: u64,
    fired: u64,
    ending: Ending,
}

/// The parameters of a fault that decides how a request ends.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub fault: Fault,
    pub after: Duration,
    /// Before each byte of an answer that trickles.
    pub pause: Duration,
    pub status: Option<u16>,
    pub body: Option<Value>,
    pub retry_after: u64,
}

/// `METHOD /path`, either of which may end in `*`.
#[derive(Debug, Clone)]
struct On(String);

impl On {
    fn parse(text: &str) -> Result<On, String> {
        let shape = "\"on\" is \"METHOD /path\", such as \"POST /v1/refunds\"; a * may end it (\"POST /v1/*\", \"*\")";
        let Some(stem) = text.strip_suffix('*') else {
            let (method, path) = text.split_once(' ').filter(|_| !text.contains('*')).ok_or(shape)?;
            let method: Method = method.parse().map_err(|_| shape)?;
            // A rule that fits nothing would be a fault that silently never happens.
            Route::of(&method, path)
                .map_err(|(_, problem)| format!("\"on\" fits no endpoint: {}", problem.message))?;
            return Ok(On(text.to_owned()));
        };
        let good = match stem.split_once(' ') {
            Some((method, path)) => {
                ["GET", "POST", "PUT"].contains(&method) && (path.is_empty() || path.starts_with('/'))
            }
            None => stem.is_empty(),
        };
        if good && !stem.contains('*') { Ok(On(text.to_owned())) } else { Err(shape.into()) }
    }

    fn fits(&self, request: &Request) -> bool {
        let line = format!("{} {}", request.method, request.path);
        match self.0.strip_suffix('*') {
            Some(stem) => line.starts_with(stem),
            None => line == self.0,
        }
    }
}

impl Rule {
    /// Reads a rule; the error says what is valid.
    pub(crate) fn parse(body: &Map<String, Value>) -> Result<Rule, String> {
        let names = || FAULTS.map(|(name, ..)| name).join(", ");
        let name = body.get("do").and_then(Value::as_str).unwrap_or_default();
        let Some((name, fault, own)) = FAULTS.iter().find(|(known, ..)| *known == name) else {
            return Err(format!("\"do\" must be one of: {}", names()));
        };
        if let Some(unknown) =
            body.keys().find(|k| !COMMON.contains(&k.as_str()) && !own.contains(&k.as_str()))
        {
            let all: Vec<_> = COMMON.iter().chain(own.iter()).copied().collect();
            return Err(format!("unknown field {unknown:?}; {name} takes: {}", all.join(", ")));
        }
        let on = On::parse(
            body.get("on")
                .and_then(Value::as_str)
                .ok_or("\"on\" is missing; for example \"POST /v1/refunds\"")?,
        )?;
        let wait = |field: &str| match number(body, field, 0..=600_000)? {
            Some(ms) => Ok::<_, String>(Some(Duration::from_millis(ms))),
            None => Ok(None),
        };
        let delay = wait("delay_ms")?;
        if own.contains(&"delay_ms") && delay.is_none() {
            return Err(format!("{name} needs \"delay_ms\", 0 to 600000"));
        }
        let status = match fault {
            Fault::ApplyThen502 => number(body, "status", 500..=599)?,
            _ => number(body, "status", 400..=499)?,
        };
        if *fault == Fault::Garbage && body.get("body").is_some_and(|body| !body.is_string()) {
            return Err("\"body\" of garbage must be a string".into());
        }
        let (mut key, mut object) = (None, None);
        match body.get("match") {
            None => {}
            Some(Value::Object(fields)) => {
                for (field, value) in fields {
                    let text = value.as_str().ok_or("the values of \"match\" must be strings")?.to_owned();
                    match field.as_str() {
                        "key" => key = Some(text),
                        "object" => object = Some(text),
                        _ => {
                            return Err(format!(
                                "unknown field {field:?} in \"match\"; it takes: key, object"
                            ));
                        }
                    }
                }
            }
            Some(_) => return Err("\"match\" must be an object with key, object or both".into()),
        }
        Ok(Rule {
            id: 0,
            on,
            fault: *fault,
            times: number(body, "times", 1..=1_000_000_000)?.unwrap_or(1),
            skip: number(body, "skip", 0..=1_000_000_000)?.unwrap_or(0),
            key,
            object,
            delay: delay.unwrap_or_default(),
            fitted: 0,
            fired: 0,
            ending: Ending {
                fault: *fault,
                after: wait("after_ms")?.unwrap_or_default(),
                pause: delay.unwrap_or_default(),
                status: status.and_then(|status| u16::try_from(status).ok()),
                body: body.get("body").cloned(),
                retry_after: number(body, "retry_after", 0..=600)?.unwrap_or(1),
            },
        })
    }

    /// Its JSON, as listed.
    pub(crate) fn value(&self) -> Value {
        let name = FAULTS.iter().find(|(_, fault, _)| *fault == self.fault).map(|(name, ..)| *name);
        let mut value =
            json!({"id": self.id, "on": self.on.0, "do": name, "times": self.times, "skip": self.skip});
        let mut put = |name: &str, field: Value| value[name] = field;
        if self.key.is_some() || self.object.is_some() {
            let fields = [("key", &self.key), ("object", &self.object)];
            put("match", fields.into_iter().filter_map(|(n, v)| v.clone().map(|v| (n, v))).collect());
        }
        if self.delay > Duration::ZERO {
            put("delay_ms", json!(crate::state::millis(self.delay)));
        }
        if self.ending.after > Duration::ZERO {
            put("after_ms", json!(crate::state::millis(self.ending.after)));
        }
        if let Some(status) = self.ending.status {
            put("status", json!(status));
        }
        put("fired", json!(self.fired));
        value
    }
}

fn number(
    body: &Map<String, Value>,
    field: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, String> {
    match body.get(field) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{field:?} must be an integer, {} to {}", range.start(), range.end())),
        },
    }
}

/// What the rules do to one request.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    pub delay: Duration,
    pub hide: Option<Duration>,
    /// Forget one key, or all of the class.
    pub forget: Option<Option<String>>,
    pub ending: Option<Ending>,
}

impl Fired {
    /// The fault that decides how the request ends, if any.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.ending.as_ref().map(|ending| ending.fault)
    }
}

/// The armed rules, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    last_id: u64,
}

impl Rules {
    /// Arms a rule and says how it is listed. Spent rules make room.
    pub(crate) fn arm(&mut self, mut rule: Rule) -> Result<Value, String> {
        if self.rules.len() >= MAX_RULES {
            self.rules.retain(|rule| rule.fired < rule.times);
        }
        if self.rules.len() >= MAX_RULES {
            return Err(format!("{MAX_RULES} rules are armed; DELETE /_sandbox/rules first"));
        }
        self.last_id += 1;
        rule.id = self.last_id;
        let value = rule.value();
        self.rules.push(rule);
        Ok(value)
    }

    /// All rules, spent ones included.
    pub(crate) fn list(&self) -> Vec<Value> {
        self.rules.iter().map(Rule::value).collect()
    }

    /// Disarms all, or the one with an id. How many went.
    pub(crate) fn disarm(&mut self, id: Option<u64>) -> usize {
        let before = self.rules.len();
        self.rules.retain(|rule| id.is_some_and(|id| id != rule.id));
        before - self.rules.len()
    }

    /// Whether there is anything to look at.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Fires what fits: the first of each kind that combines, and the first of the rest.
    pub(crate) fn fire(&mut self, request: &Request, seen: bool) -> Fired {
        let mut fired = Fired::default();
        let (object, mut delayed) = (request.object(), false);
        for rule in &mut self.rules {
            let free = match rule.fault {
                Fault::Delay => !delayed,
                Fault::ForgetKeys => fired.forget.is_none(),
                Fault::NotFoundForAWhile => fired.hide.is_none(),
                _ => fired.ending.is_none(),
            };
            let fits = free
                && rule.fired < rule.times
                && (seen || rule.fault != Fault::RefuseReplay)
                && rule.key.as_ref().is_none_or(|key| request.key.as_ref() == Some(key))
                && rule.object.as_ref().is_none_or(|wanted| object.as_ref() == Some(wanted))
                && rule.on.fits(request);
            if !fits {
                continue;
            }
            rule.fitted += 1;
            if rule.fitted <= rule.skip {
                continue;
            }
            rule.fired += 1;
            match rule.fault {
                Fault::Delay => (fired.delay, delayed) = (rule.delay, true),
                Fault::ForgetKeys => fired.forget = Some(rule.key.clone()),
                Fault::NotFoundForAWhile => fired.hide = Some(rule.delay),
                _ => fired.ending = Some(rule.ending.clone()),
            }
        }
        fired
    }
}
