//! Who calls, and how the call is named.

use crate::clients;

/// The methods that every class has in a lane.
pub const METHODS: [&str; 3] = ["create", "reject", "named"];

/// How the caller names its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// The program carries the same key each time.
    ProgramKey,
    /// No key; the retry is inside the guard window.
    NoKey,
    /// No key, and another JSON-RPC id (a client that started anew).
    OtherId,
    /// A model invents another key for each try.
    InventedKey,
    /// No key at first; the retry carries the `retryKey` it was told or looked up.
    RetryKey,
    /// The tool wants a key (`unkeyed = "reject"`); the caller uses the `newKey` that the refusal gave it.
    MintedKey,
    /// The tool derives the key from its arguments (`key_from`).
    DerivedKey,
}

impl Style {
    /// All of them.
    pub const ALL: [Style; 7] = [
        Style::ProgramKey,
        Style::NoKey,
        Style::OtherId,
        Style::InventedKey,
        Style::RetryKey,
        Style::MintedKey,
        Style::DerivedKey,
    ];

    /// Those in which the first try has no key that another could bear.
    pub const UNKEYED: [Style; 4] = [Style::NoKey, Style::OtherId, Style::InventedKey, Style::RetryKey];

    /// The method that is called: they differ by the policy of their tools.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Style::MintedKey => "reject",
            Style::DerivedKey => "named",
            _ => "create",
        }
    }

    /// Whether each try bears the same key: then no try is a mere twin.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        matches!(self, Style::ProgramKey | Style::MintedKey | Style::DerivedKey)
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Style::ProgramKey => "program_key",
            Style::NoKey => "no_key",
            Style::OtherId => "other_id",
            Style::InventedKey => "invented_key",
            Style::RetryKey => "retry_key",
            Style::MintedKey => "minted_key",
            Style::DerivedKey => "derived_key",
        }
    }
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voice {
    /// An official client.
    Official(clients::Kind),
    /// A socket that speaks the modern era.
    Raw,
    /// A socket that speaks the legacy era: no session, no `initialize`.
    RawLegacy,
}

impl Voice {
    /// All of them. A pinned client differs from one that asks only in how it opens, so it is none of its own here.
    pub const ALL: [Voice; 9] = [
        Voice::Official(clients::Kind::TypeScript),
        Voice::Official(clients::Kind::TypeScriptLegacy),
        Voice::Official(clients::Kind::TypeScript1),
        Voice::Official(clients::Kind::Python),
        Voice::Official(clients::Kind::Python1),
        Voice::Official(clients::Kind::Rust),
        Voice::Official(clients::Kind::RustLegacy),
        Voice::Raw,
        Voice::RawLegacy,
    ];

    /// Those that see and say every byte.
    pub const SOCKETS: [Voice; 2] = [Voice::Raw, Voice::RawLegacy];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Voice::Official(kind) => kind.name(),
            Voice::Raw => "raw",
            Voice::RawLegacy => "raw_legacy",
        }
    }
}
