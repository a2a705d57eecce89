//! What replicas tell each other by the bus, and what this one does about what it hears.
//!
//! Promises: a change, the end of a session or a new subscription at one replica counts at all others as soon as they hear
//! of it; where something may have been missed, everything that could have been told is looked at again.

use crate::changes::{Change, TOPIC as CHANGE};
use crate::feeds;
use crate::service::Shared;
use ledger::bus::{Heard, Note};
use mcp::json::{Limits, Raw};
use mcp::message::Id;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// A session ended.
pub(crate) const SESSION_ENDED: &str = "session.ended";
/// What a session follows changed.
pub(crate) const SESSION_CHANGED: &str = "session.changed";
/// A client cancelled one of its requests by name.
const CANCELLED: &str = "cancelled";

/// How often it is looked whether replicas are still alive.
const LOOK: Duration = Duration::from_secs(5);

/// A request that its client cancelled at a replica that doesn't work on it.
#[derive(Serialize, Deserialize)]
struct Cancelled {
    identity: Arc<str>,
    session: Arc<str>,
    /// As on the wire: `1` and `"1"` differ.
    id: String,
}

/// Passes a cancellation on.
pub(crate) fn cancelled(shared: &Shared, identity: Arc<str>, session: Arc<str>, id: &Id) {
    let cancelled = Cancelled { identity, session, id: id.as_str().to_owned() };
    if let Ok(body) = serde_json::to_string(&cancelled) {
        shared.ledger.bus().tell(Note { topic: CANCELLED.into(), body });
    }
}

/// Hears other replicas for as long as the process lives.
pub(crate) async fn heed(shared: Arc<Shared>) {
    let mut heard = shared.ledger.bus().listen();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut epoch = shared.ledger.store().epoch();
    // Streams that were open elsewhere before this replica was there.
    shared.sessions.feeds().missed();
    loop {
        tokio::select! {
            news = heard.recv() => match news {
                Ok(Heard::Note(note)) => {
                    shared.metrics.bus_heard.inc();
                    act(&shared, &note);
                }
                Ok(Heard::Moved(id)) => shared.ledger.heard(id),
                Ok(Heard::Gap) | Err(RecvError::Lagged(_)) => {
                    shared.metrics.bus_gaps.inc();
                    missed(&shared);
                }
                Err(RecvError::Closed) => return,
            },
            _ = look.tick() => {
                shared.sessions.feeds().forget_the_dead();
                let now = shared.ledger.store().epoch();
                if now != epoch {
                    epoch = now;
                    shared.sessions.feeds().tell_all();
                }
            }
        }
    }
}

fn missed(shared: &Shared) {
    shared.ledger.missed();
    shared.changes.tell_here(Change::Any);
    shared.sessions.feeds().missed();
    shared.sessions.heard_end(None);
}

fn act(shared: &Shared, note: &Note) {
    match note.topic.as_str() {
        CHANGE => shared.changes.tell_here(Change::read(&note.body)),
        SESSION_ENDED => shared.sessions.heard_end(Some(note.body.as_str().into())),
        SESSION_CHANGED => shared.sessions.feeds().changed(&note.body),
        topic @ (feeds::OPENED | feeds::CLOSED) => shared.sessions.feeds().heard(topic, &note.body),
        feeds::TELL => shared.sessions.feeds().tell_all(),
        CANCELLED => {
            let Ok(c) = serde_json::from_str::<Cancelled>(&note.body) else { return };
            let id = Raw::parse(c.id, &Limits::default()).ok().and_then(Id::new);
            if let (Some(id), Some(running)) = (id, shared.running.get()) {
                running.cancel_call(c.identity, c.session, id);
            }
        }
        // A later version's.
        _ => {}
    }
}
