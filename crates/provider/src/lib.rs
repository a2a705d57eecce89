//! HTTP APIs as tools.
//!
//! A manifest describes an API; a preset knows how its provider treats idempotency keys. Both are read once into
//! types that can't be wrong ([`Integration`], [`Method`]). A method turns arguments into an intent: the exact
//! request, without the effect key and without any secret. [`HttpExecutor`] sends it for the ledger.
//!
//! What it promises:
//!
//! - everything but the sending is pure: building a request, judging an outcome, rendering a receipt;
//! - an outcome is *not sent* only if provably no byte of the request left, and *applied* or *refused* only if
//!   the provider said so in a whole answer that the policy recognises; all else is *unknown*;
//! - nothing is sent that the ledger did not ask for: no retries, no redirects of mutating calls;
//! - what was recorded goes to the account and base URL that it was recorded for, or nowhere;
//! - secrets are named in manifests, resolved at start, put in last, and never printed or recorded; a provider that
//!   repeats one is not repeated.

pub mod builtin;
mod content;
pub mod credentials;
mod encode;
mod error;
pub mod execute;
mod graphql;
pub mod judge;
mod lookup;
mod mail;
pub mod manifest;
mod mask;
mod method;
mod own;
mod parse;
mod policy;
pub mod preset;
mod proof;
mod raw;
pub mod receipt;
mod recovery;
pub mod render;
pub mod request;
mod stored;
mod template;
mod text;
mod wire;

pub use self::credentials::{Account, ConfigCredentials, Credentials};
pub use ::credentials::is_loopback;
pub use content::is_media_type;
pub use error::{BadArguments, ConfigError, CredentialError, Error};
pub use execute::{HttpExecutor, ReadOutcome, Watch};
pub use manifest::{Closed, Format, Integration, Mode, is_header, sets_header, takes_part_header};
pub use method::{Method, MethodEffect};
pub use own::{NoOwn, Own, OwnAccount, OwnCredentials, Whose};
pub use parse::MAX_MANIFEST;
pub use policy::KeyScope;
pub use preset::Preset;
pub use proof::{Masked, Proof};
pub use receipt::Receipt;
pub use recovery::{Origin, Origins, Overrides, Resolved};
pub use render::{Rendered, render};
pub use request::{Borne, HttpIntent, Listed, Listing, owned};
pub use stored::{Kept, StoredAccount};
pub use text::{nearest, parse_duration, read_as, wire_name, wire_names};
