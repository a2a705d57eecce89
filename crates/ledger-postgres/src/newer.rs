//! Makes this program play its own successor, for tests of upgrades. Nothing of it is compiled without the feature
//! `failpoints`.
//!
//! `COUNTERFOIL_NEWER=adds` gives it a schema one step newer than its own, that only adds to the tables; `=breaks` one on
//! which no program of its own version may work.

use crate::schema::{Migration, OWN};
use ledger::Operation;

/// As what this program plays, if it does.
#[must_use]
pub fn word() -> Option<&'static str> {
    static WORD: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("COUNTERFOIL_NEWER").ok());
    WORD.as_deref()
}

/// A record as the successor writes it: with a field of its own.
pub(crate) fn marked(mut op: Box<Operation>) -> Box<Operation> {
    if word().is_some() {
        op.more.insert("newer".into(), serde_json::json!({ "kept": [1, "two"] }));
    }
    op
}

/// What comes after this program's own steps.
pub(crate) fn step() -> Option<&'static Migration> {
    match word()? {
        "adds" => Some(&ADDS),
        "breaks" => Some(&BREAKS),
        other => panic!("COUNTERFOIL_NEWER={other} is nothing that can be played"),
    }
}

/// New columns where every statement of the version before writes and reads, and a table of its own.
const ADDS: Migration = Migration {
    compatible_from: 2,
    sql: "ALTER TABLE op ADD COLUMN newer text NOT NULL DEFAULT 'unset';
          ALTER TABLE op_key ADD COLUMN newer text;
          ALTER TABLE slot ADD COLUMN newer text;
          ALTER TABLE session ADD COLUMN newer text;
          ALTER TABLE replica ADD COLUMN newer integer NOT NULL DEFAULT 0;
          CREATE TABLE newer (id uuid PRIMARY KEY, at bigint NOT NULL);
          CREATE INDEX newer_at ON newer (at);",
};

/// Only says so: nothing that this program needs is gone.
const BREAKS: Migration =
    Migration { compatible_from: OWN + 1, sql: "ALTER TABLE meta ADD COLUMN newer text NOT NULL DEFAULT ''" };
