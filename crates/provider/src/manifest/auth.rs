//! `[auth]`: how an account authenticates, and where its credential is from.

use super::closed::Closed;
use super::{Mode, oauth};
use crate::credentials::{Also, Auth, SecretRef};
use crate::parse::{ByMode, Text};
use crate::proof::Scheme;
use crate::raw::{RawAlso, RawAuth, RawAuthKind, RawPer};
use http::HeaderName;

/// The word by which a manifest says that the credential is in the user's store.
const STORE: &str = "store";
/// The most secrets that go along with a credential.
const MOST_ALSO: usize = 4;

/// What `[auth]` says.
pub(super) struct Said {
    pub auth: Auth,
    /// What goes along with the credential.
    pub also: Vec<Also>,
    /// Why nothing is sent in this mode, if its authorization server may not be asked.
    pub closed: Option<Closed>,
    /// Where nothing is sent in this mode: how each principal's own would be sent, if each has its own.
    pub withheld: Option<Scheme>,
}

/// What an integration's addresses mean for how it authenticates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing is sent in this mode.
    Closed,
    /// It is for sandbox mode alone, so that nothing in its manifest is production's.
    SandboxAlone,
    Open,
}

/// Reads it for a mode. Where nothing is sent in it, it is checked as it can be used, in production if it can, and nothing of
/// it is kept: neither a place nor a secret of production's is known to who serves in sandbox mode.
pub(super) fn auth(raw: Option<RawAuth>, mode: Mode, reach: Reach) -> Result<Said, String> {
    let Some(raw) = raw else {
        return Ok(Said { auth: Auth::None, also: Vec::new(), closed: None, withheld: None });
    };
    let shut = match raw.kind {
        RawAuthKind::Oauth => oauth::closed(&raw, mode, reach),
        _ => None,
    };
    if reach == Reach::Closed || shut.is_some() {
        let (auth, _) = in_mode(raw.clone(), Mode::Production)
            .or_else(|why| in_mode(raw, Mode::Sandbox).map_err(|_| why))?;
        let withheld = auth.own().map(|how| how.scheme.clone());
        return Ok(Said { auth: Auth::None, also: Vec::new(), closed: shut, withheld });
    }
    let (auth, also) = in_mode(raw, mode)?;
    Ok(Said { auth, also, closed: None, withheld: None })
}

/// As it is used in a mode.
fn in_mode(mut raw: RawAuth, mode: Mode) -> Result<(Auth, Vec<Also>), String> {
    let also = std::mem::take(&mut raw.also);
    let auth = match raw.kind {
        RawAuthKind::Oauth => {
            let own = raw.per == Some(RawPer::Principal);
            let tokens = oauth::oauth(raw, mode)?;
            if own { oauth::each(&tokens).map(|()| Auth::OwnTokens(tokens))? } else { Auth::OAuth(tokens) }
        }
        _ => given(raw, mode)?,
    };
    let also = along(also, &auth, mode)?;
    Ok((auth, also))
}

/// By a secret that somebody gives.
fn given(raw: RawAuth, mode: Mode) -> Result<Auth, String> {
    if let Some(field) = oauth::of_oauth(&raw) {
        return Err(format!("`{field}` belongs to auth kind = \"oauth\""));
    }
    let scheme = match (raw.kind, raw.header, raw.query) {
        (RawAuthKind::None, None, None) => {
            return match (&raw.secret, &raw.username, raw.per) {
                (None, None, None) => Ok(Auth::None),
                _ => Err("auth kind = \"none\" takes nothing else".into()),
            };
        }
        (RawAuthKind::None, ..) => return Err("auth kind = \"none\" takes nothing else".into()),
        (kind, ..) if raw.username.is_some() && kind != RawAuthKind::Basic => {
            return Err("`username` belongs to auth kind = \"basic\"".into());
        }
        (RawAuthKind::Header, Some(name), None) => Scheme::Header(header_name(&name)?),
        (RawAuthKind::Header, None, _) => {
            return Err("auth kind = \"header\" needs `header = \"X-Api-Key\"`".into());
        }
        (RawAuthKind::Query, None, Some(name)) => Scheme::Query(parameter(name)?),
        (RawAuthKind::Query, _, None) => {
            return Err("auth kind = \"query\" needs `query = \"api_key\"`".into());
        }
        (_, Some(_), _) => return Err("`header` belongs to auth kind = \"header\"".into()),
        (_, _, Some(_)) => return Err("`query` belongs to auth kind = \"query\"".into()),
        (RawAuthKind::Basic, ..) => Scheme::Basic { username: raw.username },
        (RawAuthKind::Bearer | RawAuthKind::Oauth, ..) => Scheme::Bearer,
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

fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a header's name"))
}

fn parameter(name: String) -> Result<String, String> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("auth `query` must be the name of a query parameter".into());
    }
    Ok(name)
}

/// What goes along: the operator's, whosever the credential is; each in a place of its own.
fn along(all: Vec<RawAlso>, auth: &Auth, mode: Mode) -> Result<Vec<Also>, String> {
    let Some(first) = auth.scheme() else {
        return if all.is_empty() {
            Ok(Vec::new())
        } else {
            Err("`also` goes along with a credential, and there is none; set `kind`".into())
        };
    };
    if all.len() > MOST_ALSO {
        return Err(format!("`also` has {MOST_ALSO} secrets at most"));
    }
    let mut taken = vec![first.clone()];
    let mut out = Vec::new();
    for RawAlso { header, query, secret: by } in all {
        let scheme = match (header, query) {
            (Some(name), None) => Scheme::Header(header_name(&name)?),
            (None, Some(name)) => Scheme::Query(parameter(name)?),
            _ => return Err("each of `also` needs `header` or `query`, the name of one place".into()),
        };
        let is_free = |other: &Scheme| match scheme.header() {
            Some(name) => other.header() != Some(name),
            None => other.query() != scheme.query(),
        };
        if !taken.iter().all(is_free) {
            return Err(format!("`also`: {} has a secret already", scheme.word()));
        }
        let named = [&by.sandbox, &by.production].into_iter().flatten().try_for_each(|text| {
            secret(&text.0)?.map(drop).ok_or_else(|| {
                "`also` can't be in the store, which keeps one secret of an account; name it, as \"${env:NAME}\" or \"${file:PATH}\"".to_owned()
            })
        });
        named?;
        let text = of_mode(by, mode).ok_or_else(|| format!("`also` has no `secret` for {mode}"))?;
        taken.push(scheme.clone());
        out.push((scheme, SecretRef::parse(&text)?));
    }
    Ok(out)
}

/// Where a secret is; `None`: in the store.
pub(super) fn secret(text: &str) -> Result<Option<SecretRef>, String> {
    if text == STORE { Ok(None) } else { SecretRef::parse(text).map(Some) }
}

pub(super) fn of_mode(by: ByMode<Text>, mode: Mode) -> Option<String> {
    let text = match mode {
        Mode::Sandbox => by.sandbox,
        Mode::Production => by.production,
    };
    text.map(|t| t.0)
}
