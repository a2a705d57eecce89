//! Revisions of the protocol and the two eras they belong to (spec: basic/versioning, "Terminology").
use std::fmt;

/// A revision that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// Streamable HTTP with sessions; batches.
    V2025_03_26,
    /// No batches; `MCP-Protocol-Version`.
    V2025_06_18,
    /// The last one that opens with a handshake.
    V2025_11_25,
    /// Stateless: everything that a request needs is in its `_meta`.
    V2026_07_28,
}

impl Revision {
    /// The modern revisions, newest first.
    pub const MODERN: &'static [Revision] = &[Revision::V2026_07_28];
    /// The legacy revisions, newest first.
    pub const LEGACY: &'static [Revision] =
        &[Revision::V2025_11_25, Revision::V2025_06_18, Revision::V2025_03_26];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision of that name, if it is spoken.
    pub fn parse(name: &str) -> Option<Revision> {
        Revision::MODERN.iter().chain(Revision::LEGACY).copied().find(|r| r.as_str() == name)
    }

    /// Whether it opens with `initialize` instead of carrying metadata in every request.
    pub fn is_legacy(self) -> bool {
        self < Revision::V2026_07_28
    }

    /// What `initialize` answers to a client that asks for `asked`: that revision if it is spoken, else the newest
    /// legacy one (spec 2025-11-25: basic/lifecycle, "Version Negotiation").
    pub fn negotiate(asked: &str) -> Revision {
        Revision::parse(asked).filter(|r| r.is_legacy()).unwrap_or(Revision::LEGACY[0])
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which eras an endpoint serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Eras {
    /// Both, side by side.
    #[default]
    Both,
    /// Revision 2026-07-28 and later.
    Modern,
    /// Revision 2025-11-25 and earlier.
    Legacy,
}

impl Eras {
    /// The name in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Eras::Both => "both",
            Eras::Modern => "modern",
            Eras::Legacy => "legacy",
        }
    }

    /// Whether the modern era is served.
    pub fn modern(self) -> bool {
        self != Eras::Legacy
    }

    /// Whether the legacy era is served.
    pub fn legacy(self) -> bool {
        self != Eras::Modern
    }

    /// The revisions served, newest first, as a text for people; legacy ones with how they are opened.
    pub fn served(self) -> String {
        let names = |all: &[Revision]| all.iter().map(|r| r.as_str()).collect::<Vec<_>>().join(", ");
        let (modern, legacy) = (names(Revision::MODERN), names(Revision::LEGACY));
        match self {
            Eras::Modern => modern,
            Eras::Legacy => format!("{legacy} (by initialize)"),
            Eras::Both => format!("{modern}; {legacy} (by initialize)"),
        }
    }
}
