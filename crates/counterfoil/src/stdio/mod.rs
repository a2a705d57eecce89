//! `serve --stdio`: MCP over this process's stdin and stdout, with a ledger that several such processes share.
//!
//! One process holds a ledger. The front here always pumps lines between its client and a backend: the ledger that this
//! process holds, or the socket of the one that does. When the backend ends, the front takes the ledger itself or finds
//! whoever was faster, opens the legacy session again, and sends again what has no answer yet. Its client notices
//! nothing.
//!
//! Why sending again is safe. The front does what a client is told to do after a lost connection: it makes the same
//! call again. The ledger answers it from the same operation, so that nothing happens twice:
//!
//! - A call with a key (from a program, from an argument, or derived from arguments) is that key's operation.
//! - A call without one has the name that the front gives it in `_meta`, and an operation that was opened by it is found
//!   by it, as by a key: whatever the guard window, whatever the next holder's configuration makes of calls without a key,
//!   and also where a tool takes each of them as a new one. An operation that was opened by another call is found by the
//!   guard as ever, so that two calls which a client makes on purpose are still twins.
//! - What only reads, lists or subscribes may be asked twice.
//!
//! What is not sent again: what was answered, what the client cancelled, and notifications; the session's state that
//! they and earlier requests made (initialized, level of log messages, subscriptions) is restored. What comes while there
//! is no backend waits for it, lines that are no messages included: they have an error coming.
//!
//! What remains: a backend counts an answer as given when the front has it. An answer that the front then can't write,
//! because its client reads nothing until it is stopped, or because the front is killed between the two, is known to the
//! ledger as written. Its client never saw it; the same call without a key is asked which of the two it is.

mod front;
mod pipes;
mod reach;
mod table;

pub(crate) use front::{Client, serve};
pub(crate) use pipes::{stdin, stdout};
pub(crate) use reach::Reach;

use std::time::Duration;

/// How long a start waits for a ledger that somebody else holds without serving others' clients.
const STARTING: Duration = Duration::from_secs(10);
/// How long a request waits for a backend.
const UNREACHED: Duration = Duration::from_secs(30);
/// How long requests may still be answered after the client's last line, and calls may end after that.
const ENDING: Duration = Duration::from_secs(1);
/// How long a client is still listened to when there will be nothing to serve it from: its first request may be on its way.
const STILL_ASKED: Duration = Duration::from_millis(250);
/// Requests without an answer at a time; more are not read.
const MAX_PENDING: usize = 2048;
/// The same in lines of the greatest length.
const PENDING_LINES: usize = 16;
/// The longest line that a backend may send, in bytes.
const MAX_ANSWER: usize = 256 << 20;
