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
//! - A call without one is the twin of the newest operation with its tool and arguments, and is joined to it because
//!   that one's caller is known to be gone: its process is dead, or saw the connection end. Had the earlier answer been
//!   written, it would have arrived: what a process wrote to a socket is read before its end is, and an answer counts as
//!   written only when it was written whole. So a request without an answer has no operation that was delivered.
//! - A tool that takes every call without a key as a new one (`unkeyed = "new"`) would not know it again. The front
//!   therefore names every call, in `_meta`, and for these tools alone the name becomes the key.
//! - What only reads, lists or subscribes may be asked twice.
//!
//! What is not sent again: what was answered, what the client cancelled, and notifications; the session's state that
//! they and earlier requests made (initialized, level of log messages, subscriptions) is restored.

mod front;
mod reach;
mod table;

pub(crate) use front::{Client, serve};
pub(crate) use reach::Reach;

use std::time::Duration;

/// How long a start waits for a ledger that somebody else holds without serving others' clients.
const STARTING: Duration = Duration::from_secs(10);
/// How long a request waits for a backend.
const UNREACHED: Duration = Duration::from_secs(30);
/// How long requests may still be answered after the client's last line, and calls may end after that.
const ENDING: Duration = Duration::from_secs(1);
/// Requests without an answer at a time; more are not read.
const MAX_PENDING: usize = 2048;
/// The same in lines of the greatest length.
const PENDING_LINES: usize = 16;
/// The longest line that a backend may send, in bytes.
const MAX_ANSWER: usize = 256 << 20;
