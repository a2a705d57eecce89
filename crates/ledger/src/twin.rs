//! Whether the newest operation of a slot is a twin of a call without a key: pure.

use crate::gaps::Gaps;
use crate::operation::{DeliveryState, Execution, Operation};
use crate::planted;
use crate::words::{Millis, Time};

/// What a call without a key is to the operation in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// Outside the window, acknowledged or expired: a new operation.
    History,
    /// Its caller is known to be gone: this call is that call again.
    Join,
    /// Its caller may still be there: wait until that is known, or it ends.
    Wait,
    /// Its result went to a healthy connection: probably a second one is meant, but not surely.
    Delivered,
}

/// Classifies `op`. The window counts time that was watched. `caller_gone`: its caller is known to be gone (stream
/// closed, replica dead).
#[must_use]
pub fn classify(op: &Operation, now: Time, window: Millis, gaps: &Gaps, caller_gone: bool) -> Twin {
    let within = |at: Time| now <= gaps.end_of(at, window);
    match &op.execution {
        Execution::Cancelled { explicit: false } => Twin::History,
        // Somebody stopped it. A repetition by itself must not undo that: it is told so.
        Execution::Cancelled { explicit: true } => {
            if op.ended_at.is_none_or(within) {
                Twin::Join
            } else {
                Twin::History
            }
        }
        // Nothing happened: going on with it is harmless, and its effect keys stay the same.
        Execution::Failed { .. } => {
            if op.ended_at.is_none_or(within) {
                Twin::Join
            } else {
                Twin::History
            }
        }
        Execution::Accepted | Execution::InDoubt { .. } | Execution::InputRequired { .. } => Twin::Join,
        // Whoever holds it as a task waits at no stream: this is how a task id that was lost is found again.
        Execution::Running if op.task.is_some() => Twin::Join,
        Execution::Running => {
            if caller_gone && planted!(OrphanedTwinNotJoined) {
                Twin::History
            } else if caller_gone {
                Twin::Join
            } else {
                Twin::Wait
            }
        }
        Execution::Completed => {
            let last = op.ended_at.map_or(op.delivery.at, |e| e.max(op.delivery.at));
            match op.delivery.state {
                DeliveryState::Acknowledged if planted!(AcknowledgedTwinJoined) => Twin::Join,
                DeliveryState::Acknowledged => Twin::History,
                _ if !within(last) => Twin::History,
                DeliveryState::Written => Twin::Delivered,
                DeliveryState::Undelivered => Twin::Join,
                // As above: its result waits for whoever holds the task, and an id that was lost is found again.
                DeliveryState::Ready | DeliveryState::NotReady if op.task.is_some() => Twin::Join,
                DeliveryState::Ready | DeliveryState::NotReady => {
                    if caller_gone {
                        Twin::Join
                    } else {
                        Twin::Wait
                    }
                }
            }
        }
    }
}
