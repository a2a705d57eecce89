//! Secrets: named in manifests, resolved at start, put into a request at the last moment.
//!
//! No secret is ever in an intent, a log, an error or a `Debug` output.

use crate::error::{ConfigError, CredentialError};
use crate::manifest::{Integration, Mode};
use crate::method::Mark;
use crate::own::{self, Header, How, NoOwn, OwnCredentials, Scheme, Whose, marked};
use crate::stored::{Kept, OAuth, Stored, mark_source};
use async_trait::async_trait;
use credentials::{Live, Ticket};
use http::{HeaderName, HeaderValue};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The largest secret that is read from a file, in bytes.
const MAX_SECRET: u64 = 64 << 10;

/// Gives the header that authenticates an account.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// The header, marked sensitive; `None` if the account needs none.
    ///
    /// # Errors
    /// The credential is missing or unusable: nothing may be sent.
    fn header(&self, account: &str, mode: &str)
    -> Result<Option<(HeaderName, HeaderValue)>, CredentialError>;

    /// Whether a recorded request may still go out: its account is still at this base URL, and still has the
    /// credential with this mark (`None`: nothing is known of it, or any of the account's will do). Without knowledge
    /// of either, yes.
    ///
    /// # Errors
    /// Why it must not: a key means nothing to another account, so its replay could be a second effect.
    fn unchanged(&self, account: &str, mode: &str, base: &str, mark: Option<&str>) -> Result<(), String> {
        let _ = (account, mode, base, mark);
        Ok(())
    }

    /// A principal's own credential, if it is the one with this mark (`None`: whichever).
    ///
    /// # Errors
    /// [`NoOwn`]: nothing may be sent.
    async fn own(&self, whose: &Whose<'_>, mark: Option<&str>) -> Result<Kept, NoOwn> {
        let (account, _) = (whose.account, mark);
        Err(NoOwn::Missing(format!("no principal has a credential of its own for account {account:?} here")))
    }

    /// The provider refused a principal's token (401). Whether the next send will have another one.
    fn refused_own(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        let _ = (whose, ticket);
        false
    }

    /// The header of an account whose credential is in the user's store, or got by OAuth, if it is the one with this mark
    /// (`None`: whichever). `None`: it is not such an account.
    ///
    /// # Errors
    /// [`NoOwn`]: nothing may be sent.
    async fn kept(&self, to: &Account<'_>, mark: Option<&str>) -> Result<Option<Kept>, NoOwn> {
        let _ = (to, mark);
        Ok(None)
    }

    /// The provider refused such a token (401). Whether the next send will have another one.
    fn refused(&self, to: &Account<'_>, ticket: Ticket) -> bool {
        let _ = (to, ticket);
        false
    }

    /// Where this base URL of an account is now, if it is one that moves by itself.
    fn moved(&self, account: &str, mode: &str, base: &str) -> Option<String> {
        let _ = (account, mode, base);
        None
    }
}

/// An account, and where its request goes.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// The account of the manifest.
    pub account: &'a str,
    /// `sandbox` or `production`.
    pub mode: &'a str,
    /// Scheme, host and port.
    pub origin: &'a str,
}

/// The mark of a credential that could not be read when a request was recorded.
pub(crate) const MISSING: &str = "missing";

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretRef {
    Env(String),
    File(PathBuf),
}

impl SecretRef {
    /// Reads `${env:NAME}` or `${file:PATH}`. What is neither may be the secret itself, so it is not repeated.
    pub(crate) fn parse(text: &str) -> Result<SecretRef, String> {
        let inside =
            text.strip_prefix("${").and_then(|t| t.strip_suffix('}')).and_then(|t| t.split_once(':'));
        match inside {
            Some(("env", name)) if !name.is_empty() => Ok(SecretRef::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(SecretRef::File(path.into())),
            _ => Err("a secret is never written here; write \"${env:NAME}\" or \"${file:PATH}\"".into()),
        }
    }
}

/// How an account authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    None,
    /// By the operator's secret.
    Shared(Scheme, SecretRef),
    /// By what `counterfoil auth connect` kept.
    Stored(Scheme),
    /// By tokens of OAuth.
    OAuth(OAuth),
    /// By one that each principal has of its own.
    Own(Scheme),
    /// By tokens that each principal has of its own.
    OwnTokens(OAuth),
}

impl Auth {
    /// The header that authenticates a request, its secret masked.
    pub(crate) fn masked(&self) -> Option<(String, String)> {
        match self {
            Auth::None => None,
            Auth::Shared(scheme, _) | Auth::Stored(scheme) | Auth::Own(scheme) => Some(scheme.masked()),
            Auth::OAuth(_) | Auth::OwnTokens(_) => Some(Scheme::Bearer.masked()),
        }
    }

    /// How each principal's own is got and sent, if it has one.
    pub(crate) fn own(&self) -> Option<Arc<How>> {
        match self {
            Auth::Own(scheme) => Some(How::given(scheme.clone())),
            Auth::OwnTokens(oauth) => Some(How::oauth(oauth.clone())),
            Auth::None | Auth::Shared(..) | Auth::Stored(_) | Auth::OAuth(_) => None,
        }
    }
}

type Slot = Result<Option<Header>, String>;

/// What is known of an account.
struct Known {
    slot: Slot,
    /// Each principal has its own.
    own: Option<Arc<How>>,
    /// It is in the user's store, or got by OAuth.
    stored: Option<Arc<Stored>>,
    mark: Option<String>,
    /// The base URLs of the integrations that use it.
    bases: Vec<Base>,
}

struct Base {
    url: String,
    origin: String,
    /// What its requests are recorded with, where that has to be asked for.
    asked: Option<Arc<Mark>>,
    /// Any port will do.
    any_port: bool,
}

impl Base {
    /// Whether what was recorded as `base` is here.
    fn is(&self, base: &str) -> bool {
        self.url == base
            || (self.any_port && portless(&self.url).is_some_and(|here| Some(here) == portless(base)))
    }
}

/// A base URL without its port.
fn portless(base: &str) -> Option<url::Url> {
    let mut url = url::Url::parse(base).ok()?;
    url.set_port(None).ok()?;
    Some(url)
}

/// Credentials as the manifests name them, read once.
pub struct ConfigCredentials {
    by_account: HashMap<(String, Mode), Known>,
    own: Option<Arc<dyn OwnCredentials>>,
}

impl fmt::Debug for ConfigCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut accounts: Vec<&str> = self.by_account.keys().map(|(a, _)| a.as_str()).collect();
        accounts.sort_unstable();
        f.debug_struct("ConfigCredentials").field("accounts", &accounts).finish_non_exhaustive()
    }
}

impl ConfigCredentials {
    /// Reads the secrets of the integrations from the environment and from files. One that is missing is not an
    /// error here, see [`ConfigCredentials::missing`]: only calls that need it fail, before they send.
    ///
    /// # Errors
    /// Two integrations that describe one account differently.
    pub fn load(integrations: &[Integration]) -> Result<ConfigCredentials, ConfigError> {
        ConfigCredentials::load_with(integrations, |name| std::env::var(name).ok())
    }

    /// The same with another environment.
    ///
    /// # Errors
    /// Two integrations that describe one account differently.
    pub fn load_with(
        integrations: &[Integration],
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<ConfigCredentials, ConfigError> {
        let mut seen: HashMap<(String, Mode), (&Auth, bool, &str)> = HashMap::new();
        let mut by_account: HashMap<(String, Mode), Known> = HashMap::new();
        for i in integrations {
            let account = (i.account().to_owned(), i.mode());
            // Its client's secret is read now, and told by `missing` if it can't be.
            let _ = i.home().own.as_ref().map(|(_, how)| how.client_with(&env).is_ok());
            if let Some((other, rotates, name)) = seen.get(&account) {
                if *other != &i.auth || *rotates != i.rotates {
                    return Err(ConfigError::new(
                        i.name(),
                        format!(
                            "{name} and this both use account {:?} and authenticate differently; give one another `account`",
                            account.0
                        ),
                    ));
                }
            } else {
                seen.insert(account.clone(), (&i.auth, i.rotates, i.name()));
                let slot = resolve(&i.auth, &env);
                // A credential that can't be read now keeps nothing from being sent: there is nothing to send it with.
                let mark =
                    if i.rotates { None } else { slot.as_ref().ok().map(|header| marked(header.as_ref())) };
                let own = i.home().own.as_ref().map(|(_, how)| how.clone());
                let stored = i.stored().map(|account| Arc::new(Stored::new(account, &env)));
                let known = Known { slot, own, stored, mark, bases: Vec::new() };
                by_account.insert(account.clone(), known);
            }
            if let Some(known) = by_account.get_mut(&account) {
                known.bases.push(Base {
                    url: i.base_url().to_owned(),
                    origin: own::origin(i.base_url()),
                    asked: known.stored.as_ref().filter(|_| !i.rotates).map(|_| i.home().mark.clone()),
                    any_port: i.any_port,
                });
                // That of a principal's own is known with the principal.
                let any = i.rotates || known.own.is_some();
                let recorded = if any { None } else { known.mark.clone().or(Some(MISSING.into())) };
                i.home().mark.set(recorded);
            }
        }
        Ok(ConfigCredentials { by_account, own: None })
    }

    /// The same, with where those of principals are kept.
    #[must_use]
    pub fn with_own(self, own: Arc<dyn OwnCredentials>) -> ConfigCredentials {
        ConfigCredentials { own: Some(own), ..self }
    }

    /// The same, with the user's store.
    #[must_use]
    pub fn with_store(mut self, live: &Live) -> ConfigCredentials {
        for known in self.by_account.values_mut() {
            let Some(stored) = known.stored.as_mut().and_then(Arc::get_mut) else { continue };
            stored.open(live.clone());
            let Some(stored) = &known.stored else { continue };
            for base in &known.bases {
                if let Some(mark) = &base.asked {
                    mark.ask(mark_source(stored.clone(), base.origin.clone()));
                }
            }
        }
        self
    }

    /// The accounts whose credential is missing or unusable.
    #[must_use]
    pub fn missing(&self) -> Vec<CredentialError> {
        let mut all: Vec<CredentialError> = self
            .by_account
            .iter()
            .filter_map(|((account, mode), known)| {
                let what = match (&known.own, &known.stored) {
                    // Of each principal's own only the client is everybody's.
                    (Some(how), _) => how.client().err()?,
                    (None, Some(stored)) => known.bases.iter().find_map(|b| stored.check(&b.origin).err())?,
                    (None, None) => known.slot.as_ref().err()?.clone(),
                };
                Some(CredentialError { account: account.clone(), mode: mode.as_str().into(), what })
            })
            .collect();
        all.sort_by(|a, b| a.account.cmp(&b.account));
        all
    }
}

impl ConfigCredentials {
    fn known(&self, to: &Account<'_>) -> Option<&Known> {
        self.by_account.get(&(to.account.to_owned(), to.mode.parse().ok()?))
    }
}

#[async_trait]
impl Credentials for ConfigCredentials {
    fn header(
        &self,
        account: &str,
        mode: &str,
    ) -> Result<Option<(HeaderName, HeaderValue)>, CredentialError> {
        let fail =
            |what: String| CredentialError { account: account.to_owned(), mode: mode.to_owned(), what };
        let mode = mode.parse().map_err(|_| fail("there is no such mode".into()))?;
        match self.by_account.get(&(account.to_owned(), mode)) {
            Some(known) => known.slot.clone().map_err(fail),
            None => Err(fail("no integration describes this account any more".into())),
        }
    }

    fn unchanged(&self, account: &str, mode: &str, base: &str, mark: Option<&str>) -> Result<(), String> {
        let known = mode.parse().ok().and_then(|mode| self.by_account.get(&(account.to_owned(), mode)));
        // An account that is gone, or a credential that can't be read, is told by `header`: nothing is sent.
        let Some(known) = known else { return Ok(()) };
        if !known.bases.iter().any(|b| b.is(base)) {
            return Err(format!(
                "the base URL of account {account:?} has been changed since it was recorded"
            ));
        }
        match (mark, &known.mark) {
            (Some(then), Some(now)) if then != now => {
                Err(format!("the credential of account {account:?} has been changed since it was recorded"))
            }
            _ => Ok(()),
        }
    }

    async fn own(&self, whose: &Whose<'_>, mark: Option<&str>) -> Result<Kept, NoOwn> {
        let Whose { account, mode, .. } = *whose;
        let missing = |what: &str| NoOwn::Missing(format!("account {account:?}: {what}"));
        let known = mode.parse().ok().and_then(|mode| self.by_account.get(&(account.to_owned(), mode)));
        let how = known.and_then(|known| known.own.as_ref());
        let how = how.ok_or_else(|| missing("it is no longer one that each principal has of its own"))?;
        let kept = self.own.as_ref().ok_or_else(|| missing("no credentials of principals are kept here"))?;
        let client = how.client().map_err(|why| missing(&why))?;
        let found = kept.find(whose, client).await.map_err(|why| missing(&why))?;
        let found = found.ok_or_else(|| {
            missing(match client {
                None => "the principal has not given its credential, or took it back",
                Some(_) => "the principal has not connected it, or its authorization has ended",
            })
        })?;
        if mark.is_some_and(|then| then != found.mark) {
            return Err(NoOwn::Changed(format!(
                "the principal's credential of account {account:?} has been changed since it was recorded"
            )));
        }
        let header = how.scheme.header(&found.secret).map_err(|why| missing(&why))?;
        Ok(Kept { header, ticket: found.ticket })
    }

    fn refused_own(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        self.own.as_ref().is_some_and(|own| own.refused(whose, ticket))
    }

    async fn kept(&self, to: &Account<'_>, mark: Option<&str>) -> Result<Option<Kept>, NoOwn> {
        let Some(known) = self.known(to) else { return Ok(None) };
        let Some(stored) = &known.stored else { return Ok(None) };
        // Where it rotates, no request is recorded with a mark, and one that was before is as good.
        let mark = mark.filter(|_| known.bases.iter().any(|b| b.asked.is_some()));
        let missing = |why: String| {
            NoOwn::Missing(format!("the credential of account {:?} can't be used: {why}", to.account))
        };
        let (kept, now) = stored.find(to.origin).await.map_err(missing)?;
        if mark.is_some_and(|then| then != now) {
            return Err(NoOwn::Changed(format!(
                "another credential of account {:?} has been connected since it was recorded",
                to.account
            )));
        }
        Ok(Some(kept))
    }

    fn refused(&self, to: &Account<'_>, ticket: Ticket) -> bool {
        self.known(to).and_then(|k| k.stored.as_ref()).is_some_and(|s| s.refused(to.origin, ticket))
    }

    fn moved(&self, account: &str, mode: &str, base: &str) -> Option<String> {
        let known = self.by_account.get(&(account.to_owned(), mode.parse().ok()?))?;
        if known.bases.iter().any(|b| b.url == base) {
            return None;
        }
        known.bases.iter().find(|b| b.is(base)).map(|b| b.url.clone())
    }
}

fn resolve(auth: &Auth, env: &impl Fn(&str) -> Option<String>) -> Slot {
    match auth {
        Auth::None => Ok(None),
        Auth::Stored(_) | Auth::OAuth(_) => {
            Err("it is in the user's store, which this request does not ask".into())
        }
        Auth::Own(_) | Auth::OwnTokens(_) => {
            Err("each principal has its own, and this request names none".into())
        }
        Auth::Shared(scheme, secret) => scheme.header(&read_secret(secret, env)?).map(Some),
    }
}

/// The secret that is named.
pub(crate) fn read_secret(
    secret: &SecretRef,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let text = match secret {
        SecretRef::Env(name) => {
            env(name).ok_or_else(|| format!("the environment variable {name} is not set"))?
        }
        SecretRef::File(path) => {
            let too_large = std::fs::metadata(path).map_err(|e| e.kind()).map(|m| m.len() > MAX_SECRET);
            match too_large.and_then(|large| {
                if large { Ok(String::new()) } else { std::fs::read_to_string(path).map_err(|e| e.kind()) }
            }) {
                Ok(text) => text,
                Err(kind) => return Err(format!("its file can't be read: {kind}")),
            }
        }
    };
    let text = text.trim();
    if text.is_empty() {
        Err("it is empty, or its file is larger than 64 KiB".into())
    } else {
        Ok(text.to_owned())
    }
}
