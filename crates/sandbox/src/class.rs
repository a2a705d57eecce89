//! Which provider a path plays, how that provider treats keys, and what its collections hold.
//!
//! Sources: the vendors' documentation of idempotent requests (Stripe v1, Resend, Increase, Modern Treasury, Square,
//! PayPal, Adyen, Checkout.com, AWS).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A provider class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    Key,
    Unique,
    Lookup,
    Natural,
    None,
    Resend,
    Increase,
    ModernTreasury,
    Square,
    Paypal,
    Adyen,
    Checkout,
    Aws,
}

/// Longest prefixes first is not needed: none is a prefix of another.
const PREFIXES: [(&str, Class); 14] = [
    ("/v1", Class::Key),
    ("/unique/v1", Class::Unique),
    ("/lookup/v1", Class::Lookup),
    ("/natural/v1", Class::Natural),
    ("/none/v1", Class::None),
    ("/resend/v1", Class::Resend),
    ("/increase/v1", Class::Increase),
    ("/modern_treasury/v1", Class::ModernTreasury),
    ("/modern_treasury/api", Class::ModernTreasury),
    ("/square/v2", Class::Square),
    ("/paypal/v2", Class::Paypal),
    ("/adyen/v71", Class::Adyen),
    ("/checkout", Class::Checkout),
    ("/aws", Class::Aws),
];

/// Where a class looks for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A header.
    Header(&'static str),
    /// A field of the body, under one of these names. It is no parameter.
    Field(&'static [&'static str]),
}

/// How long a key is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// As tuned.
    Tuned,
    /// This long, or as tuned if that is shorter.
    AtMost(Duration),
    Forever,
}

/// What a repeat gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The first answer, byte for byte.
    First,
    /// The object as it is now.
    Now,
}

/// How a class treats keys.
pub(crate) struct Keys {
    pub carrier: Carrier,
    /// Longest key accepted, in characters.
    pub max_len: usize,
    /// Keep every answer once execution began (Stripe v1), or only successes.
    pub keeps_errors: bool,
    pub memory: Memory,
    pub repeat: Repeat,
    /// Compare method, path and parameters with the first request.
    pub compares: bool,
    /// Mark replays with `Idempotent-Replayed: true`.
    pub marks_replay: bool,
    /// A second request waits for the one in flight instead of being refused.
    pub waits: bool,
}

impl Class {
    /// The class of a path and the rest of the path, without its leading slash.
    pub(crate) fn of(path: &str) -> Option<(Class, &str)> {
        PREFIXES.iter().find_map(|(prefix, class)| {
            path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).map(|rest| (*class, rest))
        })
    }

    /// Its name in counts and filters.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Key => "key",
            Class::Unique => "unique",
            Class::Lookup => "lookup",
            Class::Natural => "natural",
            Class::None => "none",
            Class::Resend => "resend",
            Class::Increase => "increase",
            Class::ModernTreasury => "modern_treasury",
            Class::Square => "square",
            Class::Paypal => "paypal",
            Class::Adyen => "adyen",
            Class::Checkout => "checkout",
            Class::Aws => "aws",
        }
    }

    /// How it treats keys; `None` if it ignores them.
    pub(crate) fn keys(self) -> Option<Keys> {
        let base = Keys {
            carrier: Carrier::Header("idempotency-key"),
            max_len: 255,
            keeps_errors: false,
            memory: Memory::Tuned,
            repeat: Repeat::First,
            compares: true,
            marks_replay: false,
            waits: false,
        };
        match self {
            Class::Key => Some(Keys { keeps_errors: true, marks_replay: true, ..base }),
            Class::Resend => Some(Keys { max_len: 256, ..base }),
            Class::Increase => {
                Some(Keys { max_len: 200, memory: Memory::Forever, marks_replay: true, waits: true, ..base })
            }
            Class::ModernTreasury => Some(Keys { compares: false, ..base }),
            Class::Square => {
                Some(Keys { carrier: Carrier::Field(&["idempotency_key"]), max_len: 45, ..base })
            }
            Class::Paypal => Some(Keys {
                carrier: Carrier::Header("paypal-request-id"),
                max_len: 108,
                memory: Memory::AtMost(Duration::from_secs(6 * 3600)),
                repeat: Repeat::Now,
                ..base
            }),
            Class::Adyen => Some(Keys { max_len: 64, compares: false, ..base }),
            Class::Checkout => {
                Some(Keys { carrier: Carrier::Header("cko-idempotency-key"), compares: false, ..base })
            }
            Class::Aws => Some(Keys {
                carrier: Carrier::Field(&["ClientToken", "clientToken"]),
                max_len: 64,
                memory: Memory::AtMost(Duration::from_secs(15 * 60)),
                repeat: Repeat::Now,
                ..base
            }),
            Class::Unique | Class::Lookup | Class::Natural | Class::None => None,
        }
    }

    /// The fields by which its lists can be filtered.
    pub(crate) fn filters(self) -> &'static [&'static str] {
        match self {
            Class::Key | Class::Resend | Class::Increase | Class::ModernTreasury => {
                &["payment", "idempotency_key", "marker", "reference"]
            }
            Class::Unique | Class::Lookup | Class::Natural | Class::Checkout => {
                &["payment", "marker", "reference"]
            }
            Class::Square | Class::Paypal | Class::Adyen | Class::Aws => &["payment"],
            Class::None => &[],
        }
    }
}

/// The prefixes, for messages.
pub(crate) fn prefixes() -> String {
    PREFIXES.map(|(prefix, _)| prefix).join(", ")
}

/// What a collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Payment,
    Refund,
    Message,
    Email,
    Transfer,
    PaymentOrder,
}

/// How a parameter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// Integer in minor units.
    Amount,
    /// Three letters, folded to lower case.
    Currency,
    /// A string of any length.
    Text,
    /// A string of 1 to 255 characters.
    Name,
    /// A string, or a list of strings.
    Recipients,
    /// A flat object of at most 50 entries.
    Metadata,
}

/// A collection: where it is, what it makes, what it takes.
pub(crate) struct Spec {
    pub kind: Kind,
    pub collection: &'static str,
    pub object: &'static str,
    pub id: &'static str,
    pub status: &'static str,
    /// Name, type, required.
    pub fields: &'static [(&'static str, Type, bool)],
}

use Type::{Amount, Currency, Metadata, Name, Recipients, Text};

const SPECS: [Spec; 6] = [
    Spec {
        kind: Kind::Payment,
        collection: "payments",
        object: "payment",
        id: "pay",
        status: "succeeded",
        fields: &[
            ("amount", Amount, true),
            ("currency", Currency, true),
            ("order_id", Name, false),
            ("reference", Name, false),
            ("description", Text, false),
            ("customer", Name, false),
            ("metadata", Metadata, false),
        ],
    },
    Spec {
        kind: Kind::Refund,
        collection: "refunds",
        object: "refund",
        id: "re",
        status: "succeeded",
        fields: &[
            ("payment", Name, true),
            ("amount", Amount, false),
            ("reason", Text, false),
            ("order_id", Name, false),
            ("reference", Name, false),
            ("metadata", Metadata, false),
        ],
    },
    Spec {
        kind: Kind::Message,
        collection: "messages",
        object: "message",
        id: "msg",
        status: "sent",
        fields: &[
            ("to", Recipients, true),
            ("subject", Text, true),
            ("body", Text, true),
            ("from", Text, false),
            ("order_id", Name, false),
            ("reference", Name, false),
            ("metadata", Metadata, false),
        ],
    },
    Spec {
        kind: Kind::Email,
        collection: "emails",
        object: "email",
        id: "email",
        status: "sent",
        fields: &[
            ("to", Recipients, true),
            ("subject", Text, true),
            ("from", Text, false),
            ("text", Text, false),
            ("html", Text, false),
            ("body", Text, false),
            ("order_id", Name, false),
            ("reference", Name, false),
            ("metadata", Metadata, false),
        ],
    },
    Spec {
        kind: Kind::Transfer,
        collection: "transfers",
        object: "transfer",
        id: "transfer",
        status: "complete",
        fields: &[
            ("amount", Amount, true),
            ("account_id", Name, false),
            ("description", Text, false),
            ("order_id", Name, false),
            ("reference", Name, false),
            ("metadata", Metadata, false),
        ],
    },
    Spec {
        kind: Kind::PaymentOrder,
        collection: "payment_orders",
        object: "payment_order",
        id: "po",
        status: "approved",
        fields: &[
            ("amount", Amount, true),
            ("currency", Currency, false),
            ("direction", Name, false),
            ("originating_account_id", Name, false),
            ("receiving_account_id", Name, false),
            ("description", Text, false),
            ("order_id", Name, false),
            ("reference", Name, false),
            ("metadata", Metadata, false),
        ],
    },
];

impl Kind {
    /// The collection's specification.
    pub(crate) fn spec(self) -> &'static Spec {
        // The table lists the kinds in the order of the enum; a test holds it to that.
        &SPECS[self as usize]
    }

    /// The kind that a collection name stands for.
    pub(crate) fn of(collection: &str) -> Option<Kind> {
        SPECS.iter().find(|spec| spec.collection == collection).map(|spec| spec.kind)
    }
}

/// The collections, for messages.
pub(crate) fn collections() -> String {
    SPECS.map(|spec| spec.collection).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_in_the_order_of_the_kinds() {
        for (place, spec) in SPECS.iter().enumerate() {
            assert_eq!(spec.kind as usize, place);
            assert_eq!(Kind::of(spec.collection), Some(spec.kind));
        }
    }

    #[test]
    fn a_path_belongs_to_one_class() {
        assert_eq!(Class::of("/v1/refunds"), Some((Class::Key, "refunds")));
        assert_eq!(
            Class::of("/modern_treasury/api/payment_orders").map(|c| c.0),
            Some(Class::ModernTreasury)
        );
        assert_eq!(Class::of("/v1"), None);
        assert_eq!(Class::of("/v10/refunds"), None);
    }
}
