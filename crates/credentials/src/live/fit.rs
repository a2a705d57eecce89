//! Which entry it is that is looked for, and what a person is told where there is none.

use super::Wanted;
use crate::oauth::Flow;
use crate::store::{Entry, Listing};

/// Whether it needs no store: the client has its secret from elsewhere.
pub(super) fn is_given(wanted: &Wanted<'_>) -> bool {
    wanted.client.is_some_and(|c| c.flow == Flow::ClientCredentials && c.secret.is_some())
}

/// The entry that it is.
pub(super) fn fitting<'a>(listing: &'a Listing, wanted: &Wanted<'_>) -> Result<&'a Entry, String> {
    let issuer = wanted.client.map(|c| c.endpoints.identity());
    let mine = |e: &&Entry| e.about.account == wanted.account && e.about.mode == wanted.mode;
    let mut all = listing.entries.iter().filter(mine).peekable();
    if all.peek().is_none() {
        return Err(absent(wanted));
    }
    let here = |e: &&Entry| e.about.origins.iter().any(|o| o == wanted.origin);
    let Some(entry) = all.find(|e| here(e) && e.about.issuer.as_deref() == issuer) else {
        return Err(format!(
            "the credential of account {:?} was given for another address or issuer than the manifest names now; connect it again with {}",
            wanted.account,
            command(wanted)
        ));
    };
    if entry.about.kind != wanted.kind
        || entry.about.client.as_deref() != wanted.client.map(|c| c.id.as_str())
    {
        return Err(format!(
            "the credential of account {:?} was given as {:?}, and the manifest asks for another kind or client now; connect it again with {}",
            wanted.account,
            entry.about.kind,
            command(wanted)
        ));
    }
    Ok(entry)
}

fn command(wanted: &Wanted<'_>) -> String {
    format!("`counterfoil auth connect {}`", wanted.account)
}
pub(super) fn absent(wanted: &Wanted<'_>) -> String {
    format!("account {:?} is not connected for {}; run {}", wanted.account, wanted.mode, command(wanted))
}
pub(super) fn expired(wanted: &Wanted<'_>) -> String {
    format!("the access token has ended and can't be renewed; run {}", command(wanted))
}
pub(super) fn ended(wanted: &Wanted<'_>, word: &str) -> String {
    format!("the authorization server does not renew it any more ({word}); run {}", command(wanted))
}
/// Another word than the one that ends a token: what is kept stays, and may be renewed when the client is right again.
pub(super) fn refused_client(wanted: &Wanted<'_>, word: &str) -> String {
    format!(
        "the authorization server refused the client ({word}), and its access token can't be renewed; nothing that is kept was changed. Check client_id and client_secret of account {:?}",
        wanted.account
    )
}
