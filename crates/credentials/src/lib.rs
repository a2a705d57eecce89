//! Credentials for providers: kept in one encrypted file outside any project, and renewed where they are tokens of OAuth.
//!
//! What it promises:
//!
//! - a secret is on the disk only encrypted, each entry for exactly the account, mode, kind, issuer and origins that it was
//!   given for; the key is in a file of its own (0600) or in the session's keyring;
//! - a file or folder that others can read, a link, a damaged file is refused, and never overwritten;
//! - a write replaces the whole file at once and is on the disk before it counts; writers take turns, between processes too;
//! - a refresh token that was replaced is on the disk before the access token that came with it is used; of several
//!   processes one renews, and the others find what it got;
//! - a token goes to an issuer only that it came from, and no request follows a redirect;
//! - no error, log line or `Debug` output holds a secret.

mod entry;
mod error;
mod files;
mod key;
pub mod keyring;
mod live;
mod oauth;
mod place;
mod refused;
mod store;

pub use entry::{About, MAX_SECRET, Secret};
pub use error::Error;
pub use key::KeyAt;
pub use live::{Found, Live, REST, Wanted, ends_soon};
pub use oauth::{
    Answer, Away, Client, ClientAuth, Code, Connecting, Endpoints, Flow, Server, Servers, Tokens, away,
    check_url, client_credentials, is_loopback,
};
pub use place::{VARIABLE, directory};
pub use refused::{Refused, Ticket};
pub use store::{Entry, Listing, Store, unix_now};
