//! `[defaults]` and `[tools."id"]`: where safety comes from, per tool.

use super::error::At;
use super::node::Reader;
use super::values::{duration, show_duration};
use gateway::approval::{Approval, Decimal};
use gateway::tool::Mode;
use ledger::{Millis, Strategy, Unkeyed};
use provider::nearest;

/// Longer than this no record is kept.
pub(super) const MAX_RETENTION: Millis = Millis::secs(400 * 86_400);
const DAY: Millis = Millis::secs(86_400);

/// A value that somebody set, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Set<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub at: At,
}

fn set<T>(found: Option<(T, At)>) -> Option<Set<T>> {
    found.map(|(value, at)| Set { value, at })
}

/// `[defaults]`: what is absent is the reference's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// The header that carries effect keys, over presets and manifests.
    pub header_name: Option<Set<String>>,
    /// What happens to a call without a key.
    pub unkeyed: Option<Set<Unkeyed>>,
    /// How long the same call without a key is a twin.
    pub guard_window: Option<Set<Millis>>,
    /// The longest one send to a provider may take.
    pub send_timeout: Option<Set<Millis>>,
    /// The longest one attempt may take.
    pub timeout: Option<Set<Millis>>,
    /// How long a call waits for its result before its client is to come again, or is told that it goes on.
    pub leg: Option<Set<Millis>>,
    /// How long a call of a client that knows tasks waits before it gets a task.
    pub inline_limit: Option<Set<Millis>>,
    /// Whether calls are answered with tasks.
    pub mode: Option<Set<Mode>>,
    /// Which calls wait for a person's yes.
    pub approval: Option<Set<Approval>>,
}

/// `[tools."id"]`: what is absent comes from `[defaults]`, the manifest or the preset.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolConfig {
    /// The canonical id.
    pub id: String,
    /// Where the table begins.
    pub at: At,
    /// Its name on the wire.
    pub name: Option<Set<String>>,
    /// Where safety comes from.
    pub recovery: Option<Set<Strategy>>,
    /// The header that carries effect keys.
    pub header_name: Option<Set<String>>,
    /// What happens to a call without a key.
    pub unkeyed: Option<Set<Unkeyed>>,
    /// The arguments that name the intent.
    pub key_from: Option<Set<Vec<String>>>,
    /// Whether the `idempotency_key` argument is added.
    pub inject_key: Option<Set<bool>>,
    /// How long the same call without a key is a twin.
    pub guard_window: Option<Set<Millis>>,
    /// The longest one send may take.
    pub send_timeout: Option<Set<Millis>>,
    /// The longest one attempt may take.
    pub timeout: Option<Set<Millis>>,
    /// How long a call waits for its result.
    pub leg: Option<Set<Millis>>,
    /// How long a call of a client that knows tasks waits before it gets a task.
    pub inline_limit: Option<Set<Millis>>,
    /// Whether its calls are answered with tasks.
    pub mode: Option<Set<Mode>>,
    /// Which of its calls wait for a person's yes.
    pub approval: Option<Set<Approval>>,
    /// How long its operations are kept after their end.
    pub retention: Option<Set<Millis>>,
}

fn span(r: &Reader<'_>, key: &'static str, least: Millis, most: Millis) -> Option<Set<Millis>> {
    set(r.parsed(key, |t| duration(t, least, most)))
}

fn header_name(r: &Reader<'_>) -> Option<Set<String>> {
    set(r.parsed("header_name", |text| {
        let name = http::HeaderName::try_from(text)
            .map_err(|_| format!("{text:?} is not a header name; write for example \"Idempotency-Key\""))?;
        let taken = [
            "host",
            "content-length",
            "content-type",
            "transfer-encoding",
            "connection",
            "authorization",
            "cookie",
            "te",
            "upgrade",
        ];
        if taken.contains(&name.as_str()) {
            Err(format!("{text} means something else to HTTP"))
        } else {
            Ok(text.to_owned())
        }
    }))
}

fn unkeyed(r: &Reader<'_>) -> Option<Set<Unkeyed>> {
    set(r.parsed("unkeyed", |text| match text {
        "guard" => Ok(Unkeyed::Guard),
        "new" => Ok(Unkeyed::New),
        "reject" => Ok(Unkeyed::Reject),
        "reserve" => Ok(Unkeyed::Reserve),
        _ => Err(format!("{text:?} is unknown; {}", suggest(text, &["guard", "new", "reject", "reserve"]))),
    }))
}

fn suggest(text: &str, words: &[&'static str]) -> String {
    match nearest(text, words.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("use one of {}", words.join(", ")),
    }
}

fn recovery(r: &Reader<'_>) -> Option<Set<Strategy>> {
    const WORDS: [&str; 6] = ["key", "unique", "natural", "lookup", "confirm", "none"];
    set(r.parsed("recovery", |text| match text {
        "key" => Ok(Strategy::Key),
        "unique" => Ok(Strategy::Unique),
        "natural" => Ok(Strategy::Natural),
        "lookup" => Ok(Strategy::Lookup),
        "confirm" => Ok(Strategy::Confirm),
        "none" => Ok(Strategy::None),
        "local" => Err("\"local\" is for tools whose effect is in the ledger's own database; the methods of an HTTP API are not".into()),
        _ => Err(format!("{text:?} is unknown; {}", suggest(text, &WORDS))),
    }))
}

pub(super) fn defaults(r: &Reader<'_>) -> Defaults {
    let d = Defaults {
        header_name: header_name(r),
        unkeyed: unkeyed(r),
        guard_window: span(r, "guard_window", Millis(0), DAY),
        send_timeout: span(r, "send_timeout", Millis(50), Millis::secs(600)),
        timeout: span(r, "timeout", Millis(100), Millis::secs(3600)),
        leg: leg(r),
        inline_limit: span(r, "inline_limit", Millis(100), Millis::secs(600)),
        mode: mode(r),
        approval: approval(r),
    };
    if let Some(h) = d.header_name.as_ref().filter(|h| !h.value.eq_ignore_ascii_case("Idempotency-Key")) {
        r.faults.add(&h.at, format!("header_name: another default than \"Idempotency-Key\" is not available in this version; name {:?} in [execution_policy.idempotency] of the manifests that use it", h.value));
    }
    r.finish();
    combinations(r, &d.send_timeout, &d.timeout, &Defaults::default());
    d
}

fn leg(r: &Reader<'_>) -> Option<Set<Millis>> {
    span(r, "leg", Millis::secs(1), Millis::secs(300))
}

fn mode(r: &Reader<'_>) -> Option<Set<Mode>> {
    set(r.parsed("mode", |text| match text {
        "inline" => Ok(Mode::Inline),
        "auto" => Ok(Mode::Auto),
        "task" => Ok(Mode::Task),
        _ => Err(format!("{text:?} is unknown; {}", suggest(text, &["inline", "auto", "task"]))),
    }))
}

/// `"never"`, `"always"`, or `{ over = { ARGUMENT = LIMIT } }`.
fn approval(r: &Reader<'_>) -> Option<Set<Approval>> {
    if r.is_table("approval") {
        return over(r);
    }
    set(r.parsed("approval", |text| match text {
        "never" => Ok(Approval::Never),
        "always" => Ok(Approval::Always),
        _ => Err(format!(
            "{text:?} is unknown; use \"never\", \"always\" or a limit: {{ over = {{ amount = 10000 }} }}"
        )),
    }))
}

fn over(r: &Reader<'_>) -> Option<Set<Approval>> {
    let at = r.place("approval");
    let inner = r.table("approval")?;
    let numbers = inner.numbers("over");
    let lacks = inner.lacks("over");
    inner.finish();
    let mut limits = Vec::new();
    for (name, text, at) in numbers {
        match Decimal::parse(text.trim_start_matches('+')) {
            Some(limit) => limits.push((name, limit)),
            None => r.faults.add(&at, format!("approval: {text} is no limit; write a plain number")),
        }
    }
    if limits.is_empty() {
        if lacks {
            r.faults.add(
                &at,
                "approval needs over: the arguments and their limits, { over = { amount = 10000 } }",
            );
        } else {
            r.faults.add(&at, "approval: over names no argument; write \"always\" if every call is to wait");
        }
        return None;
    }
    Some(Set { value: Approval::Over(limits), at })
}

fn combinations(
    r: &Reader<'_>,
    send: &Option<Set<Millis>>,
    whole: &Option<Set<Millis>>,
    defaults: &Defaults,
) {
    let send_from = send.as_ref().or(defaults.send_timeout.as_ref());
    let whole_from = whole.as_ref().or(defaults.timeout.as_ref());
    // Only what was written here is at fault here.
    let Some(at) = send.as_ref().or(whole.as_ref()).map(|s| &s.at) else { return };
    let (s, w) =
        (send_from.map_or(Millis::secs(10), |s| s.value), whole_from.map_or(Millis::secs(60), |s| s.value));
    if s > w {
        r.faults.add(at, format!("send_timeout ({}) is longer than timeout ({}): one send would outlast its attempt; shorten the one or lengthen the other", show_duration(s), show_duration(w)));
    }
}

pub(super) fn tools(section: &Reader<'_>, defaults: &Defaults, retention: Millis) -> Vec<ToolConfig> {
    section.tables().into_iter().map(|(id, r)| tool(id, &r, defaults, retention)).collect()
}

fn tool(id: &str, r: &Reader<'_>, defaults: &Defaults, ledger_retention: Millis) -> ToolConfig {
    let t = ToolConfig {
        id: id.to_owned(),
        at: r.at.clone(),
        name: set(r.parsed("name", |text| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            let good = (1..=64).contains(&text.len()) && text.bytes().all(plain);
            if good {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is not a tool name; use 1 to 64 of A-Z a-z 0-9 _ -"))
            }
        })),
        recovery: recovery(r),
        header_name: header_name(r),
        unkeyed: unkeyed(r),
        key_from: key_from(r),
        inject_key: set(r.bool("inject_key")),
        guard_window: span(r, "guard_window", Millis(0), DAY),
        send_timeout: span(r, "send_timeout", Millis(50), Millis::secs(600)),
        timeout: span(r, "timeout", Millis(100), Millis::secs(3600)),
        leg: leg(r),
        inline_limit: span(r, "inline_limit", Millis(100), Millis::secs(600)),
        mode: mode(r),
        approval: approval(r),
        retention: span(r, "retention", Millis::secs(60), MAX_RETENTION),
    };
    r.finish();
    if id.is_empty() || id.len() > 255 || !id.contains('.') {
        r.faults.add(
            &r.at,
            format!("{id:?} is not a canonical id; write for example [tools.\"payments.refunds.create\"]"),
        );
    }
    combinations(r, &t.send_timeout, &t.timeout, defaults);
    let window =
        t.guard_window.as_ref().or(defaults.guard_window.as_ref()).map_or(Millis::secs(300), |s| s.value);
    let kept = t.retention.as_ref().map_or(ledger_retention, |s| s.value);
    if let Some(at) = t.retention.as_ref().or(t.guard_window.as_ref()).map(|s| &s.at)
        && window > kept
    {
        r.faults.add(at, format!("retention ({}) is shorter than guard_window ({}): a twin would be forgotten too early; lengthen the one or shorten the other", show_duration(kept), show_duration(window)));
    }
    t
}

fn key_from(r: &Reader<'_>) -> Option<Set<Vec<String>>> {
    let list = r.texts("key_from")?;
    let at = r.place("key_from");
    if list.is_empty() {
        r.faults.add(&at, "key_from names no argument; name those that say what is meant, or take it out");
    }
    let mut names: Vec<String> = Vec::new();
    for (name, at) in list {
        if name.is_empty() || names.contains(&name) {
            r.faults.add(&at, format!("key_from: {name:?} is empty or named twice"));
        }
        names.push(name);
    }
    Some(Set { value: names, at })
}
