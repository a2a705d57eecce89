//! A method: one call of one HTTP API, checked.

use crate::Mode;
use crate::content::PartHeaders;
use crate::credentials::MISSING;
use crate::error::BadArguments;
use crate::graphql::Document;
use crate::lookup::{Absent, Kept, Next, SinceForm};
use crate::manifest::Closed;
use crate::own::{self, How, OwnAccount};
use crate::policy::{Compares, KeyScope, Keys, Policy};
use crate::proof::Masked;
use crate::raw::{BodyKind, Style};
use crate::recovery::{Limits, Origin};
use crate::template::Template;
use crate::text::wire_name;
use ledger::{Millis, Strategy};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What a call does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodEffect {
    /// Nothing: no ledger is needed.
    Read,
    /// It changes something.
    Mutating,
}

/// Where an argument goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query(String),
    Header(String),
    Cookie(String),
    Body(Vec<String>),
    /// The argument is the whole body.
    Document,
}

/// What a method shares with its integration.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub account: String,
    pub mode: Mode,
    /// Scheme, host, port and path prefix, without the last slash.
    pub base: String,
    /// Why nothing is sent there.
    pub closed: Option<Closed>,
    pub headers: Vec<(String, String)>,
    /// The mark of the account's credential, once it has been read.
    pub mark: Arc<Mark>,
    /// Each principal has its own credential: the provider's name for people, and how it is got and sent.
    pub own: Option<(String, Arc<How>)>,
    /// Each principal may have given its own before nothing was sent here any more.
    pub withheld: Option<OwnAccount>,
    /// What authenticates a request, each secret masked.
    pub masked: Vec<Masked>,
}

impl Home {
    /// Where a caller's own credential goes, if each principal has its own.
    pub fn own_account(&self) -> Option<OwnAccount> {
        let (provider, how) = self.own.as_ref()?;
        Some(OwnAccount {
            provider: provider.clone(),
            account: self.account.clone(),
            mode: self.mode,
            origin: own::origin(&self.base),
            how: how.clone(),
            is_withheld: false,
        })
    }

    /// Whether a request may be made at all.
    pub fn open(&self) -> Result<(), BadArguments> {
        self.closed.as_ref().map_or(Ok(()), |why| Err(BadArguments::new(why.to_string())))
    }

    /// Whether a credential goes into this query parameter.
    pub fn has_in_query(&self, name: &str) -> bool {
        self.in_query().any(|own| own == name)
    }

    /// The query parameters into which credentials go.
    pub fn in_query(&self) -> impl Iterator<Item = &str> {
        self.masked.iter().filter(|m| m.place == "query").map(|m| m.name.as_str())
    }
}

/// Which credential an account has: a few digits of its digest, enough to tell that it was changed, too few to
/// find it out; or which connection. Kept in intents.
#[derive(Default)]
pub(crate) struct Mark(Mutex<Recorded>);

/// Where a mark is from.
#[derive(Clone, Default)]
enum Recorded {
    /// Set when credentials are read.
    As(Option<String>),
    /// Asked for whenever a request is recorded.
    Asked(Arc<dyn Fn() -> Option<String> + Send + Sync>),
    #[default]
    Nothing,
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mark")
    }
}

impl Mark {
    pub(crate) fn set(&self, mark: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Recorded::As(mark);
    }
    pub(crate) fn ask(&self, source: Arc<dyn Fn() -> Option<String> + Send + Sync>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Recorded::Asked(source);
    }
    pub(crate) fn get(&self) -> Option<String> {
        let from = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match from {
            Recorded::As(mark) => mark,
            Recorded::Asked(source) => Some(source().unwrap_or_else(|| MISSING.into())),
            Recorded::Nothing => None,
        }
    }
}

/// How the provider is asked for an effect.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub path: Template,
    /// A GraphQL query that is sent there, and its variables.
    pub graphql: Option<(String, Vec<(String, Template)>)>,
    pub query: Vec<(String, Template)>,
    /// Only what is newer than the intent is asked for.
    pub window: Option<Window>,
    pub items: Option<String>,
    pub matches: Vec<(String, Match)>,
    pub more: String,
    /// The list comes whole, by the operator's word.
    pub undivided: bool,
    /// What it means that what tells of further pages is not there.
    pub absent: Option<Absent>,
    /// How the next page is found.
    pub next: Option<Next>,
    pub pages: Option<u8>,
    /// What an answer without a list says where there is nothing.
    pub empty: Vec<(String, String)>,
    /// Each item only names its object, which is fetched.
    pub item: Option<Item>,
    /// That nothing is found proves nothing.
    pub absence_is_doubt: bool,
    /// What is asked for is the first answer, as the provider keeps it.
    pub kept: Option<Kept>,
    pub visibility_lag: Option<Millis>,
    pub processing_bound: Option<Millis>,
}

/// The query parameter that says since when to look.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub query: String,
    pub form: SinceForm,
    pub margin: Millis,
}

/// What is compared with an object's member.
#[derive(Clone, Debug)]
pub(crate) enum Match {
    /// It is this.
    Equals(Template),
    /// It is a text that holds this.
    Contains(Template),
}

impl Match {
    pub(crate) fn template(&self) -> &Template {
        match self {
            Match::Equals(t) | Match::Contains(t) => t,
        }
    }
}

/// How an item's object is fetched: the path around what the item names, and where it does.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub before: Template,
    pub after: Template,
    pub at: String,
    pub query: Vec<(String, Template)>,
}

/// The field by which the provider refuses a second.
#[derive(Clone, Debug)]
pub(crate) struct Unique {
    pub field: Vec<String>,
    /// The path of the existing object, around its id; `None`: the method's own path and the id.
    pub fetch: Option<(String, String)>,
}

/// Where the effect key is put so that a look-up finds it.
#[derive(Clone, Debug)]
pub(crate) enum Marker {
    Field(Vec<String>),
    Query(String),
    /// Inside a text, which may be an argument's.
    Text(Vec<String>, Template),
    /// The Message-ID of a mail, at this domain.
    MessageId(String),
}

/// One call of one HTTP API. Made by [`crate::Integration::parse`].
#[derive(Clone, Debug)]
pub struct Method {
    pub(crate) home: Arc<Home>,
    pub(crate) id: String,
    pub(crate) wire: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) details: Option<String>,
    pub(crate) effect: MethodEffect,
    pub(crate) effect_origin: Origin,
    /// The strategy that an import found in the API's description.
    pub(crate) imported_recovery: Option<Strategy>,
    pub(crate) verb: http::Method,
    pub(crate) path: Template,
    pub(crate) places: Vec<(String, Place)>,
    pub(crate) styles: Vec<(String, Style)>,
    /// What the parts of a body's fields are, by field.
    pub(crate) part_types: Vec<(String, String)>,
    /// What stands in their heads, by field: names and values.
    pub(crate) part_headers: PartHeaders,
    /// What stands in the query of each request.
    pub(crate) query: Vec<(String, String)>,
    /// What stands in the body of each request.
    pub(crate) fields: Vec<(Vec<String>, Box<RawValue>)>,
    pub(crate) body: BodyKind,
    /// `None`: by the body's kind.
    pub(crate) content_type: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) input: Value,
    pub(crate) output: Option<Value>,
    /// Set where the provider honours a key on this verb.
    pub(crate) keys: Option<(Keys, Origin)>,
    /// Who says where the key travels.
    pub(crate) carrier_origin: Origin,
    /// Why none is carried, where the provider honours keys elsewhere.
    pub(crate) key_lacks: Option<String>,
    /// The fixed document of a GraphQL method.
    pub(crate) graphql: Option<Arc<Document>>,
    /// The verbs and endpoints on which it does, if it does at all.
    pub(crate) key_cover: Option<(Vec<String>, Vec<String>)>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) lookup: Option<Lookup>,
    pub(crate) unique: Option<Unique>,
    pub(crate) marker: Option<Marker>,
    /// `Some` where the manifest says that repeating changes nothing; inside, the replay horizon if it says one.
    pub(crate) natural: Option<Option<Millis>>,
    pub(crate) precheck: bool,
    pub(crate) declared: Option<Strategy>,
    pub(crate) limits: Limits,
    pub(crate) max_response: u64,
}

impl Method {
    /// `integration.method`: stable, with dots; for configuration, commands and records.
    #[must_use]
    pub fn canonical_id(&self) -> &str {
        &self.id
    }
    /// The tool's name on the wire.
    #[must_use]
    pub fn wire_name(&self) -> String {
        self.wire.clone().unwrap_or_else(|| wire_name(&self.id))
    }
    /// The manifest's `name = "…"`, for [`crate::wire_names`].
    #[must_use]
    pub fn name_override(&self) -> Option<&str> {
        self.wire.as_deref()
    }
    /// A title for people.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }
    /// What it does, for people and models.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }
    /// All that is said of it, for people, where that is more than its description.
    #[must_use]
    pub fn details(&self) -> Option<&str> {
        self.details.as_deref()
    }
    /// Where its effect comes from.
    #[must_use]
    pub fn effect_origin(&self) -> Origin {
        self.effect_origin
    }
    /// Whether it changes anything.
    #[must_use]
    pub fn effect(&self) -> MethodEffect {
        self.effect
    }
    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn input_schema(&self) -> &Value {
        &self.input
    }
    /// The JSON Schema of its structured result, if declared.
    #[must_use]
    pub fn output_schema(&self) -> Option<&Value> {
        self.output.as_ref()
    }
    /// Verb and path as the manifest has them, after the base URL.
    #[must_use]
    pub fn http(&self) -> String {
        use crate::template::Piece;
        let path: String = self
            .path
            .0
            .iter()
            .map(|p| match p {
                Piece::Text(t) => t.clone(),
                Piece::Key => "{$key}".into(),
                Piece::Arg(a) => format!("{{{}}}", a.join(".")),
            })
            .collect();
        format!("{} {}{path}", self.verb, self.home.base)
    }
    /// Where the effect key travels, in words; `None` if it does not.
    #[must_use]
    pub fn key_carrier(&self) -> Option<String> {
        use crate::policy::Carrier;
        self.keys.as_ref().map(|(k, _)| match &k.carrier {
            Carrier::Header(n) => format!("header {n}"),
            Carrier::Body(p) => format!("body field {}", p.join(".")),
            Carrier::Query(n) => format!("query parameter {n}"),
            Carrier::Variable(p) => format!("GraphQL variable {}", p.join(".")),
            Carrier::Directive { name, argument } => format!("GraphQL directive @{name}({argument}: …)"),
        })
    }
    /// Who says so; `None` where no key is carried.
    #[must_use]
    pub fn key_carrier_origin(&self) -> Option<Origin> {
        self.keys.as_ref()?;
        // What an import found in the description stands in the manifest.
        Some(match (self.imported_recovery, self.carrier_origin) {
            (Some(Strategy::Key), Origin::Manifest) => Origin::Description,
            (_, origin) => origin,
        })
    }
    /// Within what the effect key names one request, as the provider says; `None` where no key is carried or
    /// nothing is said.
    #[must_use]
    pub fn key_scope(&self) -> Option<KeyScope> {
        self.keys.as_ref().and_then(|(k, _)| k.scope)
    }
    /// How much of a request the provider compares with the first one under its key, in words; `None` where no key is
    /// carried or nothing is said.
    #[must_use]
    pub fn key_compares(&self) -> Option<String> {
        self.keys.as_ref()?.0.compares.as_ref().map(Compares::word)
    }
    /// How long one read may take.
    #[must_use]
    pub fn read_timeout(&self) -> Millis {
        self.limits.read_timeout
    }
    /// What authenticates its requests, as people may see it: each secret is masked. The credential first, then what goes
    /// along with it; empty: it needs none.
    #[must_use]
    pub fn masked_credentials(&self) -> &[Masked] {
        &self.home.masked
    }
    /// The account whose credential is used.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.home.account
    }

    /// Where the caller's own credential goes, if each principal has its own.
    #[must_use]
    pub fn own_account(&self) -> Option<OwnAccount> {
        self.home.own_account()
    }

    /// Under which account principals may have given their own, also where nothing is sent in this mode
    /// ([`crate::Integration::closed`]): for who looks at them, or takes them away.
    #[must_use]
    pub fn kept_account(&self) -> Option<OwnAccount> {
        self.own_account().or_else(|| self.home.withheld.clone())
    }

    /// The look-up needs something in the provider's objects that no part of the request puts there.
    pub(crate) fn lookup_needs_marker(&self) -> bool {
        self.keys.is_none() && self.marker.is_none() && self.unique.is_none() && !self.path.has_key()
    }
}
