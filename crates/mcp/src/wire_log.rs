//! For tests only: every message that this process sends, appended to `<folder>/<process id>.jsonl` where the
//! environment variable `COUNTERFOIL_WIRE_LOG` names a folder, so that all can be held against the protocol's schemas.
//! Failures to write are ignored.
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;

use crate::json::quote;
use crate::revision::Revision;

fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = std::path::PathBuf::from(std::env::var_os("COUNTERFOIL_WIRE_LOG")?);
        let path = folder.join(format!("{}.jsonl", std::process::id()));
        OpenOptions::new().create(true).append(true).open(path).ok()
    })
    .as_ref()
}

/// A message of the server. `about`: the method of the request that it answers or belongs to.
pub(crate) fn server(revision: Option<Revision>, about: Option<&str>, message: &[u8]) {
    append("server", revision, about, message);
}

/// A message of the client. `about`: the method of the server's request that it answers.
pub(crate) fn client(revision: Revision, about: Option<&str>, message: &[u8]) {
    append("client", Some(revision), about, message);
}

fn append(from: &str, revision: Option<Revision>, about: Option<&str>, message: &[u8]) {
    let Some(mut file) = file() else { return };
    // Notifications name their own method.
    let about = about.filter(|_| !has_method(message));
    let or_null = |text: Option<&str>| text.map_or("null".to_owned(), quote);
    let head = format!(
        r#"{{"from":"{from}","revision":{},"about":{},"message":"#,
        or_null(revision.map(Revision::as_str)),
        or_null(about)
    );
    let mut line = head.into_bytes();
    line.extend(message.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }));
    line.extend_from_slice(b"}\n");
    let _ = file.write(&line);
}

fn has_method(message: &[u8]) -> bool {
    message.starts_with(br#"{"jsonrpc":"2.0","method""#)
}
