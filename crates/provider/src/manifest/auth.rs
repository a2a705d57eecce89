//! `[auth]`: how an account authenticates, and where its credential is from.

use super::Mode;
use crate::credentials::{Auth, SecretRef};
use crate::own::Scheme;
use crate::parse::{ByMode, Text};
use crate::raw::{RawAuth, RawAuthKind, RawFlow, RawPer};
use crate::stored::{ClientSecret, OAuth};
use credentials::{Endpoints, Flow, check_url};
use http::HeaderName;

/// The word by which a manifest says that the credential is in the user's store.
const STORE: &str = "store";

pub(super) fn auth(raw: Option<RawAuth>, mode: Mode) -> Result<Auth, String> {
    let Some(raw) = raw else { return Ok(Auth::None) };
    if raw.kind == RawAuthKind::Oauth {
        let own = raw.per == Some(RawPer::Principal);
        let oauth = oauth(raw, mode)?;
        return if own { each(&oauth).map(|()| Auth::OwnTokens(oauth)) } else { Ok(Auth::OAuth(oauth)) };
    }
    if let Some(field) = of_oauth(&raw) {
        return Err(format!("`{field}` belongs to auth kind = \"oauth\""));
    }
    let scheme = match (raw.kind, raw.header) {
        (RawAuthKind::None, header) => {
            return match (&raw.secret, &raw.username, header, raw.per) {
                (None, None, None, None) => Ok(Auth::None),
                _ => Err("auth kind = \"none\" takes nothing else".into()),
            };
        }
        (kind, _) if raw.username.is_some() && kind != RawAuthKind::Basic => {
            return Err("`username` belongs to auth kind = \"basic\"".into());
        }
        (RawAuthKind::Header, Some(name)) => Scheme::Header(
            HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is not a header's name"))?,
        ),
        (RawAuthKind::Header, None) => {
            return Err("auth kind = \"header\" needs `header = \"X-Api-Key\"`".into());
        }
        (_, Some(_)) => return Err("`header` belongs to auth kind = \"header\"".into()),
        (RawAuthKind::Basic, None) => Scheme::Basic { username: raw.username },
        (RawAuthKind::Bearer | RawAuthKind::Oauth, None) => Scheme::Bearer,
    };
    if raw.per == Some(RawPer::Principal) {
        return match (raw.secret, raw.rotates) {
            (None, false) => Ok(Auth::Own(scheme)),
            (Some(_), _) => Err("each principal gives its own secret: leave `secret` out, or `per`".into()),
            (None, true) => Err(
                "`rotates` says that every secret is of the same account, and nobody can say that of principals'; leave it out".into(),
            ),
        };
    }
    let Some(by) = raw.secret else { return Ok(Auth::Stored(scheme)) };
    // Both are checked, so that a typing mistake is not found on the day of going live.
    for text in [&by.sandbox, &by.production].into_iter().flatten() {
        secret(&text.0)?;
    }
    let text = of_mode(by, mode).ok_or_else(|| {
        format!("auth has no `secret` for {mode}; \"store\" is the one that `counterfoil auth connect` keeps")
    })?;
    Ok(match secret(&text)? {
        Some(named) => Auth::Shared(scheme, named),
        None => Auth::Stored(scheme),
    })
}

/// Where a secret is; `None`: in the store.
fn secret(text: &str) -> Result<Option<SecretRef>, String> {
    if text == STORE { Ok(None) } else { SecretRef::parse(text).map(Some) }
}

fn of_mode(by: ByMode<Text>, mode: Mode) -> Option<String> {
    let text = match mode {
        Mode::Sandbox => by.sandbox,
        Mode::Production => by.production,
    };
    text.map(|t| t.0)
}

/// The first field that only OAuth knows.
fn of_oauth(raw: &RawAuth) -> Option<&'static str> {
    let given = [
        ("issuer", raw.issuer.is_some()),
        ("authorize_url", raw.authorize_url.is_some()),
        ("token_url", raw.token_url.is_some()),
        ("client_id", raw.client_id.is_some()),
        ("client_secret", raw.client_secret.is_some()),
        ("scopes", raw.scopes.is_some()),
        ("flow", raw.flow.is_some()),
        ("resource", raw.resource.is_some()),
        ("audience", raw.audience.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
}

/// Whether each principal can have tokens of its own so.
fn each(oauth: &OAuth) -> Result<(), String> {
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

fn oauth(raw: RawAuth, mode: Mode) -> Result<OAuth, String> {
    if raw.secret.is_some() {
        return Err("auth kind = \"oauth\" has no `secret`: its tokens are got by `counterfoil auth connect`; the client's own is `client_secret`".into());
    }
    if raw.rotates {
        return Err("auth kind = \"oauth\" knows which tokens are of one account: leave `rotates` out".into());
    }
    if raw.username.is_some() || raw.header.is_some() {
        return Err("`username` and `header` don't belong to auth kind = \"oauth\"".into());
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
    let scopes = raw.scopes.map(|s| s.0).unwrap_or_default();
    // RFC 6749, section 3.3.
    let fit = |b: u8| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if let Some(bad) = scopes.iter().find(|s| s.is_empty() || !s.bytes().all(fit)) {
        return Err(format!("{bad:?} is not a scope; write each as an item of the list"));
    }
    let (resource, audience) = (named(raw.resource), named(raw.audience));
    Ok(OAuth { endpoints, client_id, client_secret, scopes, flow, resource, audience })
}
