//! `[auth] kind = "oauth"`: the authorization server, the client, and what is asked for.

use super::Mode;
use super::auth::{Reach, of_mode, secret};
use super::closed::{Closed, servers_in};
use crate::parse::{ByMode, Text};
use crate::raw::{RawAuth, RawClientAuth, RawFlow};
use crate::stored::{ClientSecret, OAuth};
use credentials::{ClientAuth, Endpoints, Flow, check_url};

/// The first field that only OAuth knows.
pub(super) fn of_oauth(raw: &RawAuth) -> Option<&'static str> {
    let given = [
        ("issuer", raw.issuer.is_some()),
        ("authorize_url", raw.authorize_url.is_some()),
        ("token_url", raw.token_url.is_some()),
        ("client_id", raw.client_id.is_some()),
        ("client_secret", raw.client_secret.is_some()),
        ("client_auth", raw.client_auth.is_some()),
        ("scopes", raw.scopes.is_some()),
        ("flow", raw.flow.is_some()),
        ("resource", raw.resource.is_some()),
        ("audience", raw.audience.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
}

/// Whether each principal can have tokens of its own so.
pub(super) fn each(oauth: &OAuth) -> Result<(), String> {
    if oauth.flow == Flow::ClientCredentials {
        return Err(
            "flow = \"client_credentials\" is one account for all callers: leave `per` out, or `flow`".into(),
        );
    }
    // The store is one user's on one machine, and has a client's secret beside tokens only.
    if oauth.client_secret == ClientSecret::Kept {
        return Err("client_secret = \"store\" is kept with the tokens of one user, and with per = \"principal\" each caller has its own: name it, as \"${env:NAME}\" or \"${file:PATH}\"".into());
    }
    Ok(())
}

/// Why its authorization server may not be asked in this mode, if so.
pub(super) fn closed(raw: &RawAuth, mode: Mode, reach: Reach) -> Option<Closed> {
    let servers = [
        ("issuer", raw.issuer.as_ref()),
        ("authorize_url", raw.authorize_url.as_ref()),
        ("token_url", raw.token_url.as_ref()),
    ];
    servers_in(&servers, mode, reach)
}

pub(super) fn oauth(raw: RawAuth, mode: Mode) -> Result<OAuth, String> {
    if raw.secret.is_some() {
        return Err("auth kind = \"oauth\" has no `secret`: its tokens are got by `counterfoil auth connect`; the client's own is `client_secret`".into());
    }
    if raw.rotates {
        return Err("auth kind = \"oauth\" knows which tokens are of one account: leave `rotates` out".into());
    }
    if raw.username.is_some() || raw.header.is_some() || raw.query.is_some() {
        return Err("`username`, `header` and `query` don't belong to auth kind = \"oauth\"".into());
    }
    for by in [&raw.issuer, &raw.authorize_url, &raw.token_url, &raw.resource].into_iter().flatten() {
        for text in [&by.sandbox, &by.production].into_iter().flatten() {
            check_url(&text.0)?;
        }
    }
    for text in raw.client_secret.iter().flat_map(|by| [&by.sandbox, &by.production]).flatten() {
        secret(&text.0)?;
    }
    let flow = match raw.flow {
        None | Some(RawFlow::Code) => Flow::Code,
        Some(RawFlow::ClientCredentials) => Flow::ClientCredentials,
    };
    let named = |by: Option<ByMode<Text>>| by.and_then(|by| of_mode(by, mode));
    let (issuer, authorize, token) = (named(raw.issuer), named(raw.authorize_url), named(raw.token_url));
    let endpoints = match (issuer, authorize, token) {
        (Some(issuer), None, None) => Endpoints::Discover { issuer },
        (issuer, authorize, Some(token)) if authorize.is_some() || flow == Flow::ClientCredentials => {
            Endpoints::Given { issuer, authorize, token }
        }
        (None, None, None) => {
            return Err(format!(
                "auth has no authorization server for {mode}; set `issuer`, or `authorize_url` and `token_url`"
            ));
        }
        _ => return Err("`authorize_url` and `token_url` go together; or set `issuer` alone".into()),
    };
    let client_id = named(raw.client_id).filter(|id| !id.is_empty());
    let client_id = client_id.ok_or_else(|| format!("auth kind = \"oauth\" needs `client_id` for {mode}"))?;
    let client_secret = match (named(raw.client_secret), flow) {
        (Some(text), _) => match secret(&text)? {
            Some(named) => ClientSecret::Named(named),
            None => ClientSecret::Kept,
        },
        // Such a client has nothing else to show.
        (None, Flow::ClientCredentials) => ClientSecret::Kept,
        (None, Flow::Code) => ClientSecret::None,
    };
    let client_auth = raw.client_auth.map(|how| match how {
        RawClientAuth::ClientSecretBasic => ClientAuth::Basic,
        RawClientAuth::ClientSecretPost => ClientAuth::Post,
    });
    if client_auth.is_some() && client_secret == ClientSecret::None {
        return Err("`client_auth` says how the client shows its secret, and there is none; set `client_secret`, or leave it out".into());
    }
    let scopes = raw.scopes.map(|s| s.0).unwrap_or_default();
    // RFC 6749, section 3.3.
    let fit = |b: u8| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if let Some(bad) = scopes.iter().find(|s| s.is_empty() || !s.bytes().all(fit)) {
        return Err(format!("{bad:?} is not a scope; write each as an item of the list"));
    }
    let (resource, audience) = (named(raw.resource), named(raw.audience));
    Ok(OAuth { endpoints, client_id, client_secret, client_auth, scopes, flow, resource, audience })
}
