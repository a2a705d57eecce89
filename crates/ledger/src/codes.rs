//! The numbers under which stores keep the states of operations.

use crate::operation::{DeliveryState, Execution};

/// Of execution states, in the order of their words. They never change: statements and partial indexes of the stores name
/// some of them.
pub const EXECUTION: [(i16, &str); 7] = [
    (1, "accepted"),
    (2, "running"),
    (3, "input_required"),
    (4, "completed"),
    (5, "failed"),
    (6, "cancelled"),
    (7, "in_doubt"),
];
/// Of delivery states, likewise.
pub const DELIVERY: [(i16, &str); 5] =
    [(1, "not_ready"), (2, "ready"), (3, "undelivered"), (4, "written"), (5, "acknowledged")];

/// The number of an execution state.
#[must_use]
pub fn execution(e: &Execution) -> i16 {
    match e {
        Execution::Accepted => 1,
        Execution::Running => 2,
        Execution::InputRequired { .. } => 3,
        Execution::Completed => 4,
        Execution::Failed { .. } => 5,
        Execution::Cancelled { .. } => 6,
        Execution::InDoubt { .. } => 7,
    }
}

/// The number of a delivery state.
#[must_use]
pub fn delivery(d: DeliveryState) -> i16 {
    match d {
        DeliveryState::NotReady => 1,
        DeliveryState::Ready => 2,
        DeliveryState::Undelivered => 3,
        DeliveryState::Written => 4,
        DeliveryState::Acknowledged => 5,
    }
}

/// The stored number of an execution word.
#[must_use]
pub fn execution_of_word(word: &str) -> Option<i16> {
    EXECUTION.iter().find(|(_, w)| *w == word).map(|(c, _)| *c)
}

/// The stored number of a delivery word.
#[must_use]
pub fn delivery_of_word(word: &str) -> Option<i16> {
    DELIVERY.iter().find(|(_, w)| *w == word).map(|(c, _)| *c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_its_number() {
        assert_eq!(EXECUTION.map(|(_, w)| w), Execution::WORDS);
        assert_eq!(DELIVERY.map(|(_, w)| w), DeliveryState::WORDS);
        let all = [
            DeliveryState::NotReady,
            DeliveryState::Ready,
            DeliveryState::Undelivered,
            DeliveryState::Written,
            DeliveryState::Acknowledged,
        ];
        for d in all {
            assert_eq!(delivery_of_word(d.word()), Some(delivery(d)));
        }
        let why = String::new();
        for e in [
            Execution::Accepted,
            Execution::Running,
            Execution::InputRequired { question: why.clone() },
            Execution::Completed,
            Execution::Failed { reason: why.clone() },
            Execution::Cancelled { explicit: true },
            Execution::InDoubt { reason: why, since: crate::Time(0) },
        ] {
            assert_eq!(execution_of_word(e.word()), Some(execution(&e)));
        }
    }
}
