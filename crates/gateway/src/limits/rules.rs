//! Which arguments are allowed. Closed unless opened: what is missing or can't be compared is not allowed, and what can't be
//! compared is denied.

use crate::approval::Decimal;
use ledger::{CallError, Kind};
use mcp::json::{Raw, RawObject, quote};
use provider::read_as;
use regex::Regex;
use std::fmt;

/// Where an argument is: the name of one, or a JSON Pointer through objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    text: String,
    path: Vec<String>,
}

impl Argument {
    /// Reads `amount` or `/order/amount`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Argument, String> {
        let path: Vec<String> = match text.strip_prefix('/') {
            None => vec![text.to_owned()],
            Some(rest) => rest.split('/').map(unescaped).collect::<Option<_>>().ok_or_else(|| {
                format!("{text:?} is not a JSON Pointer; in it ~ is written ~0, and / inside a name ~1")
            })?,
        };
        if path.iter().any(String::is_empty) || path.len() > 16 || text.len() > 255 {
            return Err(format!(
                "{text:?} names no argument; write its name, or for one inside another a path such as \"/order/amount\""
            ));
        }
        Ok(Argument { text: text.to_owned(), path })
    }

    /// Whether both name the same argument, however that is written.
    #[must_use]
    pub fn is(&self, other: &Argument) -> bool {
        self.path == other.path
    }

    /// The argument that it is in, or is.
    #[must_use]
    pub fn root(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    /// Its value among these; one that is null is not there.
    #[must_use]
    pub fn find(&self, arguments: &RawObject) -> Found {
        let Some((last, on)) = self.path.split_last() else { return Found::Nothing };
        let mut here = arguments.clone();
        for name in on {
            if has_twin(&here, name) {
                return Found::Unclear;
            }
            match here.get(name).and_then(|raw| raw.object()) {
                Some(inside) => here = inside,
                None => return Found::Nothing,
            }
        }
        if has_twin(&here, last) {
            return Found::Unclear;
        }
        here.get(last).filter(|raw| !raw.is_null()).map_or(Found::Nothing, Found::Value)
    }
}

/// What there is of an argument.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is missing, or null.
    Nothing,
    /// Its value.
    Value(Raw),
    /// A member has its name in other letters, upper or lower case, or with a dot or a blank for its `_`, and may be taken
    /// for it.
    Unclear,
}

/// Whether an object has a member of this name in other letters, as [`read_as`] reads them: some readers take it for the one that is meant.
pub(crate) fn has_twin(object: &RawObject, name: &str) -> bool {
    let meant = read_as(name);
    object.iter().any(|(other, _)| other != name && read_as(&other) == meant)
}

fn unescaped(part: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '~' => match rest.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A value that an argument is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The same text.
    Text(String),
    /// The same number, however it is written.
    Number(Decimal),
    /// The same of both.
    Bool(bool),
}

impl Value {
    fn is(&self, given: &Raw) -> bool {
        match self {
            Value::Text(text) => given.as_string().is_some_and(|t| t == *text),
            Value::Number(number) => Decimal::parse(given.as_str()).is_some_and(|n| n == *number),
            Value::Bool(b) => given.as_bool() == Some(*b),
        }
    }

    /// Whether a value like this can be told from it.
    fn is_like(&self, given: &Raw) -> bool {
        match self {
            Value::Text(_) => given.is_string(),
            Value::Number(_) => Decimal::parse(given.as_str()).is_some(),
            Value::Bool(_) => given.as_bool().is_some(),
        }
    }
}

/// The most values that a caller is told of a list.
const MAX_TOLD: usize = 10;
/// The longest text that a caller is told whole, in characters.
const MAX_TEXT: usize = 60;

impl Value {
    /// For callers.
    fn told(&self) -> String {
        match self {
            Value::Text(text) if text.chars().count() > MAX_TEXT => {
                let head: String = text.chars().take(MAX_TEXT).collect();
                format!("{} (cut)", quote(&format!("{head}…")))
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(&quote(text)),
            Value::Number(number) => number.fmt(f),
            Value::Bool(b) => b.fmt(f),
        }
    }
}

/// What an argument has to be.
#[derive(Clone, Debug)]
pub enum Test {
    /// A number up to this.
    AtMost(Decimal),
    /// A number from this on.
    AtLeast(Decimal),
    /// One of these.
    OneOf(Vec<Value>),
    /// A text that all of this fits.
    Matches(Regex),
}

impl PartialEq for Test {
    fn eq(&self, other: &Test) -> bool {
        match (self, other) {
            (Test::AtMost(a), Test::AtMost(b)) | (Test::AtLeast(a), Test::AtLeast(b)) => a == b,
            (Test::OneOf(a), Test::OneOf(b)) => a == b,
            (Test::Matches(a), Test::Matches(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Eq for Test {}

/// The largest automaton that a pattern may become, in bytes.
const MAX_PATTERN: usize = 1 << 20;

impl Test {
    /// A pattern, which has to fit the whole text.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn matches(pattern: &str) -> Result<Test, String> {
        let whole = regex::RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(MAX_PATTERN).build();
        // The pattern by itself: what it says may not depend on what stands around it.
        let alone = regex::RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build();
        match (whole, alone) {
            (Ok(whole), Ok(_)) => Ok(Test::Matches(whole)),
            (_, Err(regex::Error::CompiledTooBig(_))) | (Err(regex::Error::CompiledTooBig(_)), _) => {
                Err(format!("{pattern:?} is too large a pattern; make it simpler"))
            }
            _ => Err(format!("{pattern:?} is not a regular expression")),
        }
    }

    /// Whether it is so; `None`: that can't be said.
    fn holds(&self, given: &Raw) -> Option<bool> {
        let number = || Decimal::parse(given.as_str());
        match self {
            Test::AtMost(limit) => Some(number()?.compare(limit).is_le()),
            Test::AtLeast(limit) => Some(number()?.compare(limit).is_ge()),
            Test::OneOf(values) if values.iter().any(|v| v.is(given)) => Some(true),
            Test::OneOf(values) => values.iter().all(|v| v.is_like(given)).then_some(false),
            Test::Matches(pattern) => Some(pattern.is_match(&given.as_string()?)),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::AtMost(limit) => write!(f, "at most {limit}"),
            Test::AtLeast(limit) => write!(f, "at least {limit}"),
            Test::OneOf(values) => {
                let each: Vec<String> = values.iter().map(Value::to_string).collect();
                write!(f, "one of {}", each.join(", "))
            }
            Test::Matches(pattern) => {
                let own = pattern.as_str().strip_prefix("^(?:").and_then(|p| p.strip_suffix(")$"));
                write!(f, "a text like {}", own.unwrap_or_else(|| pattern.as_str()))
            }
        }
    }
}

/// An argument and what it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which.
    pub argument: Argument,
    /// What.
    pub test: Test,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.argument, self.test)
    }
}

impl Test {
    /// For callers, who may correct themselves by it: of a long list only the beginning.
    fn told(&self) -> String {
        match self {
            Test::OneOf(values) => {
                let each: Vec<String> = values.iter().take(MAX_TOLD).map(Value::told).collect();
                let more = values.len().saturating_sub(MAX_TOLD);
                let more = if more == 0 { String::new() } else { format!(", or of {more} more") };
                format!("one of {}{more}", each.join(", "))
            }
            other => other.to_string(),
        }
    }
}

impl Rule {
    fn allows(&self, arguments: &RawObject) -> bool {
        match self.argument.find(arguments) {
            Found::Value(given) => self.test.holds(&given) == Some(true),
            Found::Nothing | Found::Unclear => false,
        }
    }

    fn denies(&self, arguments: &RawObject) -> bool {
        match self.argument.find(arguments) {
            Found::Value(given) => self.test.holds(&given) != Some(false),
            Found::Nothing => false,
            Found::Unclear => true,
        }
    }
}

/// Why these arguments are not let through, if they are not. What is denied may be nobody's to know, so it is not told.
pub(super) fn refused(deny: &[Rule], allow: &[Rule], arguments: &RawObject) -> Option<CallError> {
    let denied =
        deny.iter().find(|r| r.denies(arguments)).map(|r| format!("it is denied for what {} is", r.argument));
    let why = denied.or_else(|| {
        let refusing = allow.iter().find(|r| !r.allows(arguments))?;
        Some(format!("it is allowed only if {} is {}", refusing.argument, refusing.test.told()))
    })?;
    Some(CallError::plain(
        Kind::Denied,
        format!("A rule of this server does not let this call through, so nothing ran: {why}."),
        "Call with other arguments; with these it is refused every time.",
    ))
}
