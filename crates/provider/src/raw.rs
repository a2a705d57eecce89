//! A manifest as it is written, before it is checked. Nothing outside this crate sees these.

use crate::lookup::Absent;
use crate::parse::{ByMode, Names, Schema, Size, Span, Table, Text};
use crate::policy::RawIdempotency;
use ledger::Strategy;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawManifest {
    #[serde(rename = "$schema")]
    pub _schema: Option<String>,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub base_url: ByMode<Text>,
    pub preset: Option<String>,
    pub account: Option<String>,
    pub auth: Option<RawAuth>,
    #[serde(default)]
    pub headers: Table<String>,
    #[serde(default)]
    pub execution_policy: RawExecution,
    #[serde(default)]
    pub methods: Table<RawMethod>,
    /// What an import has to know at the next.
    #[serde(rename = "imported")]
    pub _imported: Option<serde::de::IgnoredAny>,
}

impl From<Text> for String {
    fn from(t: Text) -> String {
        t.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawAuthKind {
    Bearer,
    Basic,
    Header,
    Query,
    Oauth,
    None,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuth {
    pub kind: RawAuthKind,
    pub secret: Option<ByMode<Text>>,
    pub username: Option<String>,
    pub header: Option<String>,
    pub query: Option<String>,
    #[serde(default)]
    pub also: Vec<RawAlso>,
    pub per: Option<RawPer>,
    #[serde(default)]
    pub rotates: bool,
    pub issuer: Option<ByMode<Text>>,
    pub authorize_url: Option<ByMode<Text>>,
    pub token_url: Option<ByMode<Text>>,
    pub client_id: Option<ByMode<Text>>,
    pub client_secret: Option<ByMode<Text>>,
    pub client_auth: Option<RawClientAuth>,
    pub scopes: Option<Names>,
    pub flow: Option<RawFlow>,
    pub resource: Option<ByMode<Text>>,
    pub audience: Option<ByMode<Text>>,
}

/// A secret that goes along with the credential.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAlso {
    pub header: Option<String>,
    pub query: Option<String>,
    pub secret: ByMode<Text>,
}

/// How a client of OAuth shows its secret (RFC 7591, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawClientAuth {
    ClientSecretBasic,
    ClientSecretPost,
}

/// How tokens of OAuth are got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawFlow {
    Code,
    ClientCredentials,
}

/// Whose credential it is, if not the operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawPer {
    Principal,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawExecution {
    pub idempotency: RawIdempotency,
    pub retries: RawRetries,
    pub timeouts: RawTimeouts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRetries {
    pub max_sends: Option<u32>,
    pub initial_backoff: Option<Span>,
    pub max_backoff: Option<Span>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTimeouts {
    pub send: Option<Span>,
    pub read: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawEffect {
    Read,
    Mutating,
}

/// What a body is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BodyKind {
    Json,
    Form,
    /// One argument, as it is.
    Text,
    /// A form in parts, which may be files.
    Multipart,
    /// One argument, the bytes of a file.
    Binary,
    /// A mail.
    Mail,
    None,
}

/// How a list or an object is written in a place for one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Style {
    /// `a,b`; an object is `name,value,name,value`.
    Comma,
    /// The same with blanks.
    Space,
    /// The same with `|`.
    Pipe,
    /// An object as `name=value,name=value`.
    Pairs,
    /// In a query: each member of an object is a parameter of its own.
    Members,
    /// In a query or form: a list repeats the name.
    Repeat,
    /// In a query or form: a list counts, `name[0]`.
    Index,
    /// As JSON.
    Json,
    /// In a form of parts: a file.
    File,
    /// In a path: as many segments as the text has between its slashes.
    Segments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawAnswers {
    Json,
    Any,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMethod {
    pub http: String,
    pub name: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub details: Option<String>,
    pub imported: Option<RawImported>,
    pub effect: Option<RawEffect>,
    /// A GraphQL document; the arguments are its variables.
    pub graphql: Option<String>,
    pub body: Option<BodyKind>,
    #[serde(default)]
    pub params: Table<String>,
    #[serde(default)]
    pub styles: Table<Style>,
    /// What the parts of a field are, in a form of parts.
    #[serde(default)]
    pub part_types: Table<String>,
    /// What stands in the heads of the parts of a field.
    #[serde(default)]
    pub part_headers: Table<Table<String>>,
    /// Sent in the query of each request.
    #[serde(default)]
    pub query: Table<String>,
    /// Sent in the body of each request.
    #[serde(default)]
    pub fields: Table<serde_json::Value>,
    #[serde(default)]
    pub headers: Table<String>,
    pub recovery: Option<Strategy>,
    pub precheck: Option<bool>,
    pub lookup: Option<RawLookup>,
    pub unique: Option<RawUnique>,
    pub marker: Option<RawMarker>,
    pub natural: Option<RawNatural>,
    pub answers: Option<RawAnswers>,
    pub max_response: Option<Size>,
    pub timeouts: Option<RawTimeouts>,
    pub retries: Option<RawRetries>,
    pub idempotency: Option<RawIdempotency>,
    pub content_type: Option<String>,
    pub input: Option<Schema>,
    pub output: Option<Schema>,
}

/// What an import derived from a description, and what it has to know at the next.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawImported {
    pub effect: Option<RawEffect>,
    pub recovery: Option<Strategy>,
    #[serde(rename = "operation")]
    pub _operation: Option<String>,
    #[serde(rename = "http")]
    pub _http: Option<String>,
    #[serde(rename = "digests", default)]
    pub _digests: Table<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLookup {
    pub http: Option<String>,
    /// A GraphQL query that is asked in place of a GET.
    pub graphql: Option<String>,
    #[serde(default)]
    pub variables: Table<String>,
    #[serde(default)]
    pub query: Table<String>,
    pub items: Option<String>,
    #[serde(rename = "match", default)]
    pub matches: Table<RawMatch>,
    pub more: Option<RawMore>,
    pub next: Option<RawNext>,
    pub pages: Option<u8>,
    /// What an answer without a list says where there is nothing.
    #[serde(default)]
    pub empty: Table<String>,
    /// Each item only names its object.
    pub fetch: Option<RawFetch>,
    pub not_found: Option<RawAbsence>,
    pub since_margin: Option<Span>,
    pub visibility_lag: Option<Span>,
    pub processing_bound: Option<Span>,
}

/// What tells of further pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RawMore {
    At(String, Option<Absent>),
    /// There never are any.
    Never,
}

impl RawMore {
    /// Where it stands, if it does.
    pub fn at(&self) -> Option<&String> {
        match self {
            RawMore::At(at, _) => Some(at),
            RawMore::Never => None,
        }
    }
}

impl<'de> Deserialize<'de> for RawMore {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> serde::de::Visitor<'de> for V {
            type Value = RawMore;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON pointer, { at, absent }, or false where there never are further pages")
            }
            fn visit_str<E: serde::de::Error>(self, at: &str) -> Result<RawMore, E> {
                Ok(RawMore::At(at.to_owned(), None))
            }
            fn visit_bool<E: serde::de::Error>(self, more: bool) -> Result<RawMore, E> {
                if more {
                    return Err(E::custom(
                        "say where `more` stands, as a JSON pointer; or false where it never is",
                    ));
                }
                Ok(RawMore::Never)
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<RawMore, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Named {
                    at: String,
                    absent: Absent,
                }
                let Named { at, absent } =
                    Named::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(RawMore::At(at, Some(absent)))
            }
        }
        d.deserialize_any(V)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawNext {
    pub at: Option<String>,
    pub query: Option<String>,
    pub variable: Option<String>,
    pub link: Option<String>,
}

/// What is compared: a text with the whole value, or with a part of a text.
#[derive(Debug)]
pub(crate) enum RawMatch {
    Equals(String),
    Contains(String),
}

impl<'de> Deserialize<'de> for RawMatch {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> serde::de::Visitor<'de> for V {
            type Value = RawMatch;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text, or { contains = \"…\" }")
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<RawMatch, E> {
                Ok(RawMatch::Equals(v.to_owned()))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut a: A) -> Result<RawMatch, A::Error> {
                use serde::de::Error as _;
                let mut contains: Option<String> = None;
                while let Some(name) = a.next_key::<String>()? {
                    if name != "contains" {
                        return Err(A::Error::unknown_field(&name, &["contains"]));
                    }
                    if contains.replace(a.next_value()?).is_some() {
                        return Err(A::Error::custom("`contains` is given twice"));
                    }
                }
                contains.map(RawMatch::Contains).ok_or_else(|| A::Error::missing_field("contains"))
            }
        }
        d.deserialize_any(V)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFetch {
    pub http: String,
    pub at: String,
    #[serde(default)]
    pub query: Table<String>,
}

/// What it means that nothing is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawAbsence {
    SendAgain,
    InDoubt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawUnique {
    pub field: String,
    pub conflict_status: Option<u16>,
    pub conflict_code: Option<String>,
    pub resource_id: String,
    pub fetch: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMarker {
    pub field: Option<String>,
    pub query: Option<String>,
    pub text: Option<String>,
    pub message_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawNatural {
    pub replay_horizon: Option<Span>,
}
