//! The books of an ordeal: what callers heard of an order, what really became of it, and what of that must not be.
//!
//! Judging is pure: it knows nothing of the server that was asked, so it can be shown what it has to find.

use crate::stand::{AMOUNT, Class};
use crate::wire::Said;
use serde::{Deserialize, Serialize};

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Breach {
    /// More effects than one.
    Duplicate,
    /// A result without its effect, or no result.
    Lost,
    /// Two answers of one order differ.
    Changed,
    /// Something is open when all should be over.
    LeftOpen,
    /// In doubt where the provider's class promises more.
    Doubt,
    /// *Nothing ran* of what did run, or an order that was taken where none may be.
    Refusal,
    /// An answer that should never be.
    Answer,
    /// The service did not go on as it must.
    Service,
}

/// A broken promise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// Which.
    pub breach: Breach,
    /// What was seen.
    pub what: String,
}

/// What was checked: how much held, and what did not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sheet {
    /// Checks that held.
    pub passed: u64,
    /// Those that did not.
    pub violations: Vec<Violation>,
}

impl Sheet {
    /// A check.
    pub fn check(&mut self, held: bool, breach: Breach, what: impl FnOnce() -> String) {
        if held {
            self.passed += 1;
        } else {
            self.violations.push(Violation { breach, what: what() });
        }
    }

    /// An order's books: one check, however much is wrong with them.
    pub fn order(&mut self, order: &Order, found: Found) {
        let broken = judge(order, found);
        self.passed += u64::from(broken.is_empty());
        self.violations.extend(broken);
    }

    /// How many of each kind.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let count = |of: &[Breach]| self.violations.iter().filter(|v| of.contains(&v.breach)).count() as u64;
        Tally {
            duplicates: count(&[Breach::Duplicate]),
            lost: count(&[Breach::Lost]),
            byte_different: count(&[Breach::Changed]),
            left_running: count(&[Breach::LeftOpen]),
            in_doubt_unexpected: count(&[Breach::Doubt]),
            wrong_answers: count(&[Breach::Refusal, Breach::Answer]),
            service: count(&[Breach::Service]),
        }
    }
}

/// Broken promises by kind, named as in the figures of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// More than one effect.
    pub duplicates: u64,
    /// A result without its effect, or no result.
    pub lost: u64,
    /// Two answers differed.
    pub byte_different: u64,
    /// Open at the end.
    pub left_running: u64,
    /// In doubt where the strategy promises more.
    pub in_doubt_unexpected: u64,
    /// An answer that should never be.
    pub wrong_answers: u64,
    /// The service did not go on as it must.
    pub service: u64,
}

/// What one call heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A stored result.
    Result {
        /// The operation.
        operation: String,
        /// The stored bytes.
        stored: String,
        /// It says that it failed.
        is_error: bool,
    },
    /// *Nothing ran*, and no operation was named.
    NothingRan,
    /// The operation of this id is in doubt.
    Doubt(String),
    /// Nothing definite: another call may tell more.
    Open(String),
    /// What should never be said.
    Wrong(String),
}

impl Heard {
    /// Reads an answer.
    #[must_use]
    pub fn of(said: &Said) -> Heard {
        match said {
            Said::Result { stored, operation, is_error, .. } => match operation["id"].as_str() {
                Some(id) => {
                    Heard::Result { operation: id.to_owned(), stored: stored.clone(), is_error: *is_error }
                }
                None => Heard::Wrong(format!("a result that names no operation: {stored}")),
            },
            Said::Error { kind, error, text } => match (kind.as_str(), error["operationId"].as_str()) {
                ("unavailable", None) => Heard::NothingRan,
                ("in_doubt", Some(id)) => Heard::Doubt(id.to_owned()),
                ("unavailable" | "admission_unknown" | "still_running", _) => Heard::Open(kind.clone()),
                _ => Heard::Wrong(format!("{kind}: {text}")),
            },
            Said::Rpc { code: -32603, .. } | Said::Lost(_) => Heard::Open(said.brief()),
            Said::Rpc { .. } => Heard::Wrong(said.brief()),
        }
    }
}

/// A business order: one intent of its caller, however often it calls, always under the same key.
#[derive(Clone, Debug)]
pub struct Order {
    /// At which kind of provider.
    pub class: Class,
    /// The business object: nothing else has it.
    pub name: String,
    /// What its calls heard, in order.
    pub heard: Vec<Heard>,
    /// Its caller gave it up. It may do so only after hearing nothing but *nothing ran*.
    pub dropped: bool,
}

impl Order {
    /// A new one.
    #[must_use]
    pub fn new(class: Class, name: String) -> Order {
        Order { class, name, heard: Vec::new(), dropped: false }
    }

    /// Whether a further call would tell nothing new.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.heard.iter().any(|h| !matches!(h, Heard::NothingRan | Heard::Open(_)))
    }

    /// Whether there is nothing of it, as far as it was told.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.heard.is_empty() && self.heard.iter().all(|h| *h == Heard::NothingRan)
    }

    /// The last result.
    #[must_use]
    pub fn result(&self) -> Option<&Heard> {
        self.heard.iter().rfind(|h| matches!(h, Heard::Result { .. }))
    }
}

/// What really became of an order, from the provider's two books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Effects of its object.
    pub effects: u64,
    /// What of its payment is refunded.
    pub refunded: u64,
}

/// What is wrong with an order.
#[must_use]
pub fn judge(order: &Order, found: Found) -> Vec<Violation> {
    let mut all = Vec::new();
    let mut broke = |breach, what: String| {
        let what = format!("{} ({}): {what}", order.name, order.class.name());
        all.push(Violation { breach, what });
    };
    let Found { effects, refunded } = found;
    if effects > 1 || refunded > AMOUNT {
        broke(Breach::Duplicate, format!("{effects} effects, {refunded} refunded"));
    } else if refunded != effects * AMOUNT {
        broke(Breach::Answer, format!("{effects} effects, but {refunded} refunded"));
    }
    let mut first: Option<&Heard> = None;
    let mut doubt: Option<&str> = None;
    for heard in &order.heard {
        match heard {
            Heard::Result { is_error: true, stored, .. } => {
                broke(Breach::Answer, format!("nothing refused it, and it failed: {stored}"));
            }
            Heard::Wrong(what) => broke(Breach::Answer, what.clone()),
            Heard::Doubt(id) if doubt.is_some_and(|before| before != id) => {
                broke(Breach::Changed, format!("in doubt as {} and as {id}", doubt.unwrap_or_default()));
            }
            Heard::Doubt(id) => doubt = Some(id),
            Heard::NothingRan if first.is_some() => {
                broke(Breach::Refusal, "it had a result, and was told that nothing ran".into());
            }
            Heard::Result { .. } | Heard::NothingRan | Heard::Open(_) => {}
        }
        if matches!(heard, Heard::Result { .. }) {
            match first {
                Some(before) if before != heard => {
                    broke(Breach::Changed, format!("{before:?}, then {heard:?}"));
                }
                _ => first = Some(heard),
            }
        }
    }
    match (first, doubt) {
        (Some(_), _) if effects == 0 => broke(Breach::Lost, "a result without an effect".into()),
        (Some(_), Some(id)) => broke(Breach::Changed, format!("both a result and in doubt, as {id}")),
        (None, Some(id)) if order.class.is_exact() => {
            broke(Breach::Doubt, format!("{id} is in doubt, and the provider can be asked or told again"));
        }
        (Some(_) | None, _) => {}
    }
    match (order.dropped, order.is_refused()) {
        (true, true) if effects > 0 => {
            broke(Breach::Refusal, format!("it was told that nothing ran, and there are {effects} effects"));
        }
        (true, false) => broke(Breach::Answer, "it was given up, although something may have run".into()),
        (false, _) if !order.is_settled() => {
            broke(Breach::Lost, format!("no answer that counts; at last: {:?}", order.heard.last()));
        }
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn order(class: Class, heard: &[Heard]) -> Order {
        Order { heard: heard.to_vec(), ..Order::new(class, "o1".into()) }
    }

    fn result(stored: &str) -> Heard {
        Heard::Result { operation: "op_1".into(), stored: stored.into(), is_error: false }
    }

    fn breaches(order: &Order, effects: u64) -> Vec<Breach> {
        judge(order, Found { effects, refunded: effects * AMOUNT }).into_iter().map(|v| v.breach).collect()
    }

    #[test]
    fn what_is_as_it_should_be_is_not_held_against_anybody() {
        assert!(breaches(&order(Class::Key, &[result("a")]), 1).is_empty());
        let long = [Heard::NothingRan, Heard::Open("lost".into()), result("a"), result("a")];
        assert!(breaches(&order(Class::Lookup, &long), 1).is_empty());
        let dropped = Order { dropped: true, ..order(Class::Key, &[Heard::NothingRan, Heard::NothingRan]) };
        assert!(breaches(&dropped, 0).is_empty());
        let doubt = [Heard::Open("lost".into()), Heard::Doubt("op_1".into()), Heard::Doubt("op_1".into())];
        assert!(breaches(&order(Class::None, &doubt), 0).is_empty());
        assert!(breaches(&order(Class::Confirm, &doubt), 1).is_empty());
    }

    #[test]
    fn each_promise_is_seen_to_be_broken() {
        assert_eq!(breaches(&order(Class::Key, &[result("a")]), 2), [Breach::Duplicate]);
        assert_eq!(breaches(&order(Class::Key, &[result("a")]), 0), [Breach::Lost]);
        assert_eq!(breaches(&order(Class::Key, &[]), 0), [Breach::Lost]);
        assert_eq!(breaches(&order(Class::Key, &[Heard::Open("lost".into())]), 1), [Breach::Lost]);
        assert_eq!(breaches(&order(Class::Key, &[Heard::NothingRan]), 0), [Breach::Lost], "not given up");
        assert_eq!(breaches(&order(Class::Key, &[result("a"), result("b")]), 1), [Breach::Changed]);
        assert_eq!(breaches(&order(Class::Key, &[Heard::Doubt("op_1".into())]), 1), [Breach::Doubt]);
        let two = [Heard::Doubt("op_1".into()), Heard::Doubt("op_2".into())];
        assert_eq!(breaches(&order(Class::None, &two), 1), [Breach::Changed]);
        let both = [result("a"), Heard::Doubt("op_1".into())];
        assert_eq!(breaches(&order(Class::None, &both), 1), [Breach::Changed]);
        assert_eq!(breaches(&order(Class::Key, &[result("a"), Heard::NothingRan]), 1), [Breach::Refusal]);
        let dropped = Order { dropped: true, ..order(Class::Key, &[Heard::NothingRan]) };
        assert_eq!(breaches(&dropped, 1), [Breach::Refusal]);
        let dropped = Order { dropped: true, ..order(Class::Key, &[Heard::Open("lost".into())]) };
        assert_eq!(breaches(&dropped, 0), [Breach::Answer]);
        assert_eq!(breaches(&order(Class::Key, &[Heard::Wrong("twin".into())]), 0), [Breach::Answer]);
        let failed = Heard::Result { operation: "op_1".into(), stored: "a".into(), is_error: true };
        assert_eq!(breaches(&order(Class::Key, &[failed]), 1), [Breach::Answer]);
        let unequal = judge(&order(Class::Key, &[result("a")]), Found { effects: 1, refunded: 0 });
        assert_eq!(unequal.len(), 1);
    }

    #[test]
    fn a_sheet_counts() {
        let mut sheet = Sheet::default();
        sheet.order(&order(Class::Key, &[result("a")]), Found { effects: 1, refunded: AMOUNT });
        sheet.order(&order(Class::Key, &[result("a")]), Found { effects: 3, refunded: 3 * AMOUNT });
        sheet.check(true, Breach::Service, String::new);
        sheet.check(false, Breach::Service, || "it slept".into());
        assert_eq!(sheet.passed, 2);
        assert_eq!(sheet.tally(), Tally { duplicates: 1, service: 1, ..Tally::default() });
    }
}
