//! News between the replicas on one ledger: a doorbell, never a source. Whoever hears that something changed reads it
//! again; whoever hears nothing finds it out at the next look.
//!
//! Promises: publishing never waits and never fails; what is published is heard by every other replica at least once, in
//! any order, or that replica hears [`Heard::Gap`], which means that anything may have been missed. A replica doesn't
//! hear itself.

use crate::words::OperationId;
use std::sync::Arc;
use tokio::sync::broadcast;

/// The longest topic, in bytes.
pub const MAX_TOPIC: usize = 32;
/// The longest body of a note, in bytes. A longer one is not sent; its hearers get a gap in its place.
pub const MAX_BODY: usize = 64 << 10;
/// What a listener may fall behind before it hears a gap ([`broadcast::error::RecvError::Lagged`] counts as one).
pub const ROOM: usize = 4096;

/// A message to all other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about: a word.
    pub topic: String,
    /// What it says.
    pub body: String,
}

/// What is heard of other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The record of this operation changed.
    Moved(OperationId),
    /// A note.
    Note(Arc<Note>),
    /// Something may have been missed: a connection was lost, or too much came at once.
    Gap,
}

/// See the module.
pub trait Bus: Send + Sync + 'static {
    /// Tells that the record of this operation changed. Called after every write that a waiter may wait for, so an
    /// implementation gathers what comes at once.
    fn moved(&self, id: OperationId);
    /// Sends a note.
    fn tell(&self, note: Note);
    /// Everything that is heard from now on.
    fn listen(&self) -> broadcast::Receiver<Heard>;
}

/// The bus of a replica that is alone on its ledger: nothing is ever heard.
pub struct Alone(broadcast::Sender<Heard>);

impl Default for Alone {
    fn default() -> Self {
        Alone(broadcast::Sender::new(1))
    }
}

impl Bus for Alone {
    fn moved(&self, _: OperationId) {}
    fn tell(&self, _: Note) {}
    fn listen(&self) -> broadcast::Receiver<Heard> {
        self.0.subscribe()
    }
}
