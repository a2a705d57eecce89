//! Power cuts under SQLite: a VFS that writes down what reaches the disk and in which order, and what may be left
//! of it after a cut.
//!
//! It is for tests of the ledger's store and is never shipped. What it promises:
//!
//! - every change that SQLite makes to a file of its own goes through to the real file, and is written down with
//!   every barrier (`xSync`), whatever thread it comes from, in the order in which it happened ([`Recorder`]);
//! - a barrier or write can be made to fail, once or until further notice ([`Plan`]);
//! - from the record, [`Disk`] gives the files as they may be after a cut at any moment: what was synced is there;
//!   of each later change all, some or none of its sectors are ([`Loss`]), in any combination.
//!
//! How a disk is seen here:
//!
//! - a write that was not synced may be lost, kept, or kept in part, sector by sector (512 or 4096 bytes); later
//!   ones may be kept where earlier ones are lost; a file may have grown although what was written there is lost;
//! - bytes beside a write never change: SQLite relies on that too (its `powersafe overwrite`);
//! - after a failed sync, what it should have made durable never is, even if a later sync succeeds: the kernel
//!   may have dropped it. It may also have landed;
//! - that a file was made or deleted is durable when its directory is synced: SQLite's own VFS does so with the
//!   first sync of a log or journal that it may have made, and with a deletion for which SQLite asks for it;
//! - `-shm` files are memory: after a cut there is none;
//! - what is written beside the database by other means is taken to be as it is found when SQLite next touches the
//!   disk. Its writers sync a new file and its directory before they go on, so nothing of it is half done then.
//!
//! A sync is believed: a disk that says it has written what it hasn't can't be seen from here, or from anywhere.

mod disk;
mod recorder;
// SQLite takes its file systems as tables of C functions; no other way leads there.
#[allow(unsafe_code)]
mod vfs;

pub use disk::{Disk, Loss};
pub use recorder::{Event, Failure, Files, Name, Plan, Recorder};
pub use vfs::register;
