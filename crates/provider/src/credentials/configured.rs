//! The credentials of all integrations, as their manifests name them.

use super::{Account, Also, Auth, Credentials, MISSING, read_secret, with_also};
use crate::error::{ConfigError, CredentialError};
use crate::manifest::{Integration, Mode};
use crate::method::Mark;
use crate::own::{self, How, NoOwn, OwnCredentials, Whose};
use crate::proof::{Proof, marked};
use crate::stored::{Kept, Stored};
use async_trait::async_trait;
use credentials::{Live, Ticket};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

type Slot = Result<Proof, String>;

/// What is known of an account.
struct Known {
    slot: Slot,
    /// What goes along with it.
    also: Slot,
    /// Each principal has its own.
    own: Option<Arc<How>>,
    /// It is in the user's store, or got by OAuth.
    stored: Option<Arc<Stored>>,
    /// What requests are recorded with, where that is known here; with what goes along.
    mark: Option<String>,
    /// That of what goes along, if anything does and must not be another.
    also_mark: Option<String>,
    /// Why nothing is sent under it, in this mode.
    closed: Option<String>,
    /// The base URLs of the integrations that use it.
    bases: Vec<Base>,
}

impl Known {
    /// The account of an integration, its secrets read.
    fn of(i: &Integration, env: &impl Fn(&str) -> Option<String>) -> Known {
        let closed = i.closed().map(ToString::to_string);
        let slot = match &closed {
            Some(why) => Err(why.clone()),
            None => resolve(&i.auth, env),
        };
        let also = along(&i.also, env);
        let also_mark = (!i.rotates && !i.also.is_empty())
            .then(|| also.as_ref().map_or_else(|_| MISSING.to_owned(), marked));
        // A credential that can't be read now keeps nothing from being sent: there is nothing to send it with.
        let mark = match (&slot, &also, i.rotates) {
            (Ok(proof), Ok(_), false) => Some(with_also(marked(proof), also_mark.as_deref())),
            _ => None,
        };
        let own = i.home().own.as_ref().map(|(_, how)| how.clone());
        let stored = i.stored().map(|account| Arc::new(Stored::new(account, env)));
        Known { slot, also, own, stored, mark, also_mark, closed, bases: Vec::new() }
    }

    /// What is missing of it, if anything is, and whether that is what is kept.
    fn lacks(&self) -> Option<(String, bool)> {
        // Nothing of it is sent, so nothing of it is wanted.
        if self.closed.is_some() {
            return None;
        }
        let read = |what| (what, false);
        let first = match (&self.own, &self.stored) {
            // Of each principal's own only the client is everybody's.
            (Some(how), _) => how.client().err().map(read),
            (None, Some(stored)) => {
                let wrong = self.bases.iter().find_map(|b| stored.check(&b.origin).err());
                wrong.map(|what| (what, stored.is_named_right()))
            }
            (None, None) => self.slot.as_ref().err().cloned().map(read),
        };
        first.or_else(|| self.also.as_ref().err().cloned().map(read))
    }
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
    /// error here, see [`ConfigCredentials::missing`]: only calls that need it fail, before they send. Nothing is
    /// read of an account that no integration uses in this mode ([`Integration::closed`]).
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
        let mut seen: HashMap<(String, Mode), &Integration> = HashMap::new();
        let mut by_account: HashMap<(String, Mode), Known> = HashMap::new();
        // Those that are closed come last: where another one uses their account, it is the other's.
        let (open, closed): (Vec<_>, Vec<_>) = integrations.iter().partition(|i| i.closed().is_none());
        for i in open.into_iter().chain(closed) {
            let account = (i.account().to_owned(), i.mode());
            // Its client's secret is read now, and told by `missing` if it can't be.
            let _ = i.home().own.as_ref().map(|(_, how)| how.client_with(&env).is_ok());
            if let Some(other) = seen.get(&account).filter(|_| i.closed().is_none()) {
                if (&other.auth, &other.also, other.rotates) != (&i.auth, &i.also, i.rotates) {
                    return Err(ConfigError::new(
                        i.name(),
                        format!(
                            "{} and this both use account {:?} and authenticate differently; give one another `account`",
                            other.name(),
                            account.0
                        ),
                    ));
                }
            } else {
                seen.entry(account.clone()).or_insert(i);
            }
            let known = by_account.entry(account).or_insert_with(|| Known::of(i, &env));
            known.bases.push(Base {
                url: i.base_url().to_owned(),
                origin: own::origin(i.base_url()),
                asked: known.stored.as_ref().filter(|_| !i.rotates).map(|_| i.home().mark.clone()),
                any_port: i.any_port,
            });
            i.home().mark.set(match (i.rotates, &known.own) {
                (true, _) => None,
                // That of a principal's own is known with the principal; this is that of what goes along.
                (false, Some(_)) => known.also_mark.clone(),
                (false, None) => known.mark.clone().or(Some(MISSING.into())),
            });
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
                    mark.ask(mark_source(stored.clone(), base.origin.clone(), known.also_mark.clone()));
                }
            }
        }
        self
    }

    /// The accounts whose credential is missing or unusable, of those that are used in this mode.
    #[must_use]
    pub fn missing(&self) -> Vec<CredentialError> {
        let of = |((account, mode), known): (&(String, Mode), &Known)| {
            let (what, is_kept) = known.lacks()?;
            Some(CredentialError { account: account.clone(), mode: mode.as_str().into(), what, is_kept })
        };
        let mut all: Vec<CredentialError> = self.by_account.iter().filter_map(of).collect();
        all.sort_by(|a, b| a.account.cmp(&b.account));
        all
    }

    fn known(&self, account: &str, mode: &str) -> Option<&Known> {
        self.by_account.get(&(account.to_owned(), mode.parse().ok()?))
    }
}

#[async_trait]
impl Credentials for ConfigCredentials {
    fn proof(&self, account: &str, mode: &str) -> Result<Proof, CredentialError> {
        let fail = |what: String| {
            let (account, mode) = (account.to_owned(), mode.to_owned());
            CredentialError { account, mode, what, is_kept: false }
        };
        let _: Mode = mode.parse().map_err(|_| fail("there is no such mode".into()))?;
        let Some(known) = self.known(account, mode) else {
            return Err(fail("no integration describes this account any more".into()));
        };
        let first = known.slot.clone().map_err(fail)?;
        Ok(first.and(known.also.as_ref().map_err(|why| fail(why.clone()))?))
    }

    fn unchanged(&self, account: &str, mode: &str, base: &str, mark: Option<&str>) -> Result<(), String> {
        // An account that is gone, or a credential that can't be read, is told by `proof`: nothing is sent.
        let Some(known) = self.known(account, mode) else { return Ok(()) };
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
        let known = self.known(account, mode);
        if let Some(why) = known.and_then(|known| known.closed.as_ref()) {
            return Err(missing(why));
        }
        let how = known.and_then(|known| Some((known, known.own.as_ref()?)));
        let (known, how) =
            how.ok_or_else(|| missing("it is no longer one that each principal has of its own"))?;
        let kept = self.own.as_ref().ok_or_else(|| missing("no credentials of principals are kept here"))?;
        let client = how.client().map_err(|why| missing(&why))?;
        let also = known.also.as_ref().map_err(|why| missing(why))?;
        let found = kept.find(whose, client).await.map_err(|why| missing(&why))?;
        let found = found.ok_or_else(|| {
            missing(match client {
                None => "the principal has not given its credential, or took it back",
                Some(_) => "the principal has not connected it, or its authorization has ended",
            })
        })?;
        let now = with_also(found.mark, known.also_mark.as_deref());
        if mark.is_some_and(|then| then != now) {
            return Err(NoOwn::Changed(format!(
                "the principal's credential of account {account:?} has been changed since it was recorded"
            )));
        }
        let proof = how.scheme.proof(&found.secret).map_err(|why| missing(&why))?;
        Ok(Kept { proof: proof.and(also), ticket: found.ticket })
    }

    fn refused_own(&self, whose: &Whose<'_>, ticket: Ticket) -> bool {
        self.own.as_ref().is_some_and(|own| own.refused(whose, ticket))
    }

    async fn kept(&self, to: &Account<'_>, mark: Option<&str>) -> Result<Option<Kept>, NoOwn> {
        let Some(known) = self.known(to.account, to.mode) else { return Ok(None) };
        let Some(stored) = &known.stored else { return Ok(None) };
        // Where it rotates, no request is recorded with a mark, and one that was before is as good.
        let mark = mark.filter(|_| known.bases.iter().any(|b| b.asked.is_some()));
        let missing = |why: String| {
            NoOwn::Missing(format!("the credential of account {:?} can't be used: {why}", to.account))
        };
        let also = known.also.clone().map_err(missing)?;
        let (Kept { proof, ticket }, now) = stored.find(to.origin).await.map_err(missing)?;
        let now = with_also(now, known.also_mark.as_deref());
        if mark.is_some_and(|then| then != now) {
            return Err(NoOwn::Changed(format!(
                "another credential of account {:?} has been connected since it was recorded",
                to.account
            )));
        }
        Ok(Some(Kept { proof: proof.and(&also), ticket }))
    }

    fn refused(&self, to: &Account<'_>, ticket: Ticket) -> bool {
        let stored = self.known(to.account, to.mode).and_then(|k| k.stored.as_ref());
        stored.is_some_and(|s| s.refused(to.origin, ticket))
    }

    fn moved(&self, account: &str, mode: &str, base: &str) -> Option<String> {
        let known = self.known(account, mode)?;
        if known.bases.iter().any(|b| b.url == base) {
            return None;
        }
        known.bases.iter().find(|b| b.is(base)).map(|b| b.url.clone())
    }
}

fn resolve(auth: &Auth, env: &impl Fn(&str) -> Option<String>) -> Slot {
    match auth {
        Auth::None => Ok(Proof::default()),
        Auth::Stored(_) | Auth::OAuth(_) => {
            Err("it is in the user's store, which this request does not ask".into())
        }
        Auth::Own(_) | Auth::OwnTokens(_) => {
            Err("each principal has its own, and this request names none".into())
        }
        Auth::Shared(scheme, secret) => scheme.proof(&read_secret(secret, env)?),
    }
}

/// What goes along with a credential.
fn along(also: &[Also], env: &impl Fn(&str) -> Option<String>) -> Slot {
    also.iter().try_fold(Proof::default(), |all, (scheme, secret)| {
        let one = read_secret(secret, env).and_then(|text| scheme.proof(&text));
        Ok(all.and(&one.map_err(|why| format!("`also` ({}): {why}", scheme.word()))?))
    })
}

/// Tells what requests of an account are recorded with.
fn mark_source(
    stored: Arc<Stored>,
    origin: String,
    also: Option<String>,
) -> Arc<dyn Fn() -> Option<String> + Send + Sync> {
    Arc::new(move || stored.mark(&origin).map(|mark| with_also(mark, also.as_deref())))
}
