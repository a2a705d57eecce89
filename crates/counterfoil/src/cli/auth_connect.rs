//! `auth connect`: takes a secret from a terminal or from standard input, or gets tokens by OAuth, and keeps them encrypted.

use super::fail::{Done, Fail, REFUSED, UNAVAILABLE};
use super::out::Out;
use super::place::Place;
use super::prompt::{self, Ends};
use crate::config::nearest;
use crate::run::{Loaded, credentials as kept, load};
use credentials::{About, Client, Connecting, Error, Flow, KeyAt, Secret, Store, Tokens, unix_now};
use ledger::Millis;
use provider::{Integration, StoredAccount};
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal as _, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;
use zeroize::Zeroizing;

/// The most that is read from standard input, in bytes.
const LONGEST: u64 = 16 << 10;

/// How long a command that was interrupted may take to end by itself.
const MOMENT: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(super) struct Connect {
    #[command(flatten)]
    place: Place,
    /// The integration, or the account that its manifest names
    name: String,
    /// Read the secret from standard input, not from the terminal
    #[arg(long)]
    stdin: bool,
    /// Open the page in a browser (OAuth)
    #[arg(long)]
    browser: bool,
    /// The port of the redirect on 127.0.0.1, where the authorization server wants one that it knows (OAuth)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// How long to wait for the person (OAuth)
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = provider::parse_duration)]
    wait: Millis,
    /// It is the account that is connected already: what was recorded under it may go out (OAuth)
    #[arg(long)]
    same_account: bool,
    /// Make the store's key in the session's keyring, not in a file, where there is none yet
    #[arg(long)]
    keyring: bool,
}

pub(super) async fn run(args: Connect, out: &Out) -> Done {
    // Whoever waits for a person awaits it, so that this hears of signals.
    let mut ends = Ends::listen()
        .map_err(|e| Fail::unavailable(format!("signals can't be listened for: {}", e.kind())))?;
    let mut connecting = Box::pin(connect(args, out));
    tokio::select! {
        biased;
        done = &mut connecting => done,
        () = ends.first() => {
            // A prompt hears it, too, and ends in words of its own.
            let done = tokio::time::timeout(MOMENT, connecting).await;
            done.unwrap_or_else(|_| Err(interrupted("`counterfoil auth status` shows what is kept")))
        }
    }
}

fn interrupted(left: &str) -> Fail {
    Fail::new(UNAVAILABLE, "interrupted", format!("interrupted; {left}"))
}

async fn connect(args: Connect, out: &Out) -> Done {
    let config = args.place.load()?;
    let loaded = load(&config, config.sandbox).map_err(crate::Error::from)?;
    let accounts = accounts(&loaded, &args.name)?;
    let store = kept::store().map_err(Fail::from)?;
    // What can't be kept is found before a person is asked for anything.
    let listing = store.look().map_err(Fail::from)?;
    if args.keyring && listing.as_ref().is_some_and(|l| l.key_at != KeyAt::Keyring) {
        return Err(Fail::usage(
            "the store's key is in a file; `counterfoil auth key --keyring` moves it first",
        ));
    }
    let client = accounts[0].client().map_err(Fail::usage)?;
    let work = Work { store, accounts, args, out };
    if work.args.same_account && client.as_ref().is_none_or(|c| c.flow != Flow::Code) {
        return Err(Fail::usage(
            "--same-account is for OAuth by code: of other credentials it shows, or the manifest says it (rotates)",
        ));
    }
    match client {
        None => work.secret().await,
        Some(client) if client.flow == Flow::ClientCredentials => work.client_credentials(client).await,
        Some(client) => work.code(client).await,
    }
}

/// The integrations that are connected at once: those with the account of the named one.
fn accounts(loaded: &Loaded, name: &str) -> Result<Vec<StoredAccount>, Fail> {
    let all = &loaded.integrations;
    let named = all.iter().find(|i| i.name() == name).or_else(|| all.iter().find(|i| i.account() == name));
    let Some(named) = named else {
        let hint = match nearest(name, all.iter().map(Integration::name)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "`counterfoil methods` shows what there is".into(),
        };
        return Err(Fail::usage(format!("there is no integration {name:?}; {hint}")));
    };
    if let Some(why) = named.closed() {
        return Err(Fail::usage(why.to_string()));
    }
    if named.stored().is_none() {
        return Err(Fail::usage(if named.is_per_principal() {
            format!("{name}: each principal gives its own credential at a page, when its first call needs it")
        } else if named.authenticates() {
            format!(
                "{name}: its manifest names where the secret is; to keep it in the store, write secret = \"store\" in [auth]"
            )
        } else {
            format!("{name} sends no credential; add [auth] to its manifest")
        }));
    }
    Ok(all.iter().filter(|i| i.account() == named.account()).filter_map(Integration::stored).collect())
}

struct Work<'a> {
    store: Store,
    /// At least one; all of one account.
    accounts: Vec<StoredAccount>,
    args: Connect,
    out: &'a Out,
}

impl Work<'_> {
    fn first(&self) -> &StoredAccount {
        &self.accounts[0]
    }

    fn origins(&self) -> Vec<String> {
        let mut all: Vec<String> = self.accounts.iter().map(|a| a.origin.clone()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn about(&self, mark: String, client: Option<&Client>) -> About {
        let first = self.first();
        About {
            account: first.account.clone(),
            mode: first.mode.as_str().into(),
            kind: first.kind(),
            origins: self.origins(),
            issuer: client.map(|c| c.endpoints.identity().to_owned()),
            client: client.map(|c| c.id.clone()),
            mark,
            since: unix_now(),
            renewed: None,
            expires: None,
            renewable: false,
            scopes: Vec::new(),
            refused: None,
        }
    }

    fn keep(&self, about: About, secret: &Secret) -> Result<(), Error> {
        let at = if self.args.keyring { KeyAt::Keyring } else { KeyAt::File };
        self.store.connect(about, secret, at)
    }

    /// Says where it will go, before it is given.
    fn announce(&self) {
        let first = self.first();
        eprintln!(
            "account {} for {}, {}: sent to {} only",
            first.account,
            first.provider,
            first.mode,
            self.origins().join(", ")
        );
    }

    async fn ask(&self, what: &str) -> Result<Zeroizing<String>, Fail> {
        let text = if self.args.stdin {
            // In a thread of its own: an interruption leaves it where it is.
            let read = tokio::task::spawn_blocking(|| {
                let mut text = Zeroizing::new(String::new());
                std::io::stdin().take(LONGEST + 1).read_to_string(&mut text).map(|_| text)
            });
            let text = read.await.ok().and_then(Result::ok);
            text.ok_or_else(|| Fail::usage("what came on standard input is not text; nothing was kept"))?
        } else if std::io::stdin().is_terminal() {
            prompt::ask(what).await.map_err(|e| match e.kind() {
                ErrorKind::Interrupted => interrupted("nothing was kept"),
                ErrorKind::UnexpectedEof => {
                    Fail::usage("the input ended before a secret was given; nothing was kept")
                }
                other => Fail::usage(format!("the terminal can't be read: {other}; nothing was kept")),
            })?
        } else {
            return Err(Fail::usage("this is no terminal; give the secret on standard input with --stdin"));
        };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(Fail::usage("no secret was given; nothing was kept"));
        }
        if trimmed.len() > credentials::MAX_SECRET {
            return Err(Fail::usage("a secret has 8 KiB at most; nothing was kept"));
        }
        Ok(Zeroizing::new(trimmed.to_owned()))
    }

    async fn secret(&self) -> Done {
        self.announce();
        let secret = self.ask(&self.first().wanted()).await?;
        let mark =
            self.first().mark(&secret).map_err(|why| Fail::usage(format!("{why}; nothing was kept")))?;
        let about = self.about(mark, None);
        self.keep(about.clone(), &Secret { secret: Some(secret), ..Secret::default() })
            .map_err(Fail::from)?;
        Ok(self.done(&about, true))
    }

    async fn client_credentials(&self, mut client: Client) -> Done {
        self.announce();
        let kept = self.first().keeps_client_secret();
        if kept {
            client.secret = Some(self.ask("the client's secret").await?);
        }
        let tokens = credentials::client_credentials(&client).await.map_err(refused)?;
        // Who has id and secret is the account: the tokens are not kept, and requests are not recorded with this.
        let mut about = self.about("client".into(), Some(&client));
        about.scopes = tokens.scopes;
        about.renewable = true;
        if kept {
            let secret = Secret { client_secret: client.secret, ..Secret::default() };
            self.keep(about.clone(), &secret).map_err(Fail::from)?;
        }
        Ok(self.done(&about, kept))
    }

    async fn code(self, mut client: Client) -> Done {
        let mark = self.connection(&client)?;
        self.announce();
        if self.first().keeps_client_secret() {
            client.secret = Some(self.ask("the client's secret").await?);
        }
        let about = self.about(mark, Some(&client));
        let own = client.secret.clone().filter(|_| self.first().keeps_client_secret());
        let connecting = Connecting::begin(client, self.args.port).await.map_err(refused)?;
        eprintln!("open this page, and come back:\n\n{}\n", connecting.url);
        if self.args.browser {
            browse(connecting.url.as_str());
        }
        let keep = |tokens: Tokens| {
            let about = About {
                expires: tokens.expires,
                renewable: tokens.refresh.is_some(),
                scopes: tokens.scopes,
                ..about
            };
            let secret = Secret {
                access: Some(tokens.access),
                refresh: tokens.refresh,
                client_secret: own,
                ..Secret::default()
            };
            self.keep(about.clone(), &secret)?;
            Ok(about)
        };
        let about = connecting.finish(self.args.wait.duration(), keep).await.map_err(refused)?;
        Ok(self.done(&about, true))
    }

    /// What requests are recorded with: another one for each account that is connected.
    fn connection(&self, client: &Client) -> Result<String, Fail> {
        if self.args.same_account {
            let listing = self.store.look().map_err(Fail::from)?;
            let (first, issuer) = (self.first(), client.endpoints.identity());
            let same = listing.iter().flat_map(|l| &l.entries).find(|e| {
                e.about.account == first.account
                    && e.about.mode == first.mode.as_str()
                    && e.about.issuer.as_deref() == Some(issuer)
                    && e.about.origins.contains(&first.origin)
            });
            return same.map(|e| e.about.mark.clone()).ok_or_else(|| {
                Fail::usage(
                    "--same-account: nothing is connected yet that it could be the same as; leave it out",
                )
            });
        }
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|_| Fail::from(Error::Random))?;
        Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
    }

    fn done(&self, about: &About, kept: bool) -> u8 {
        let mut document = told(about);
        document["kept"] = json!(kept);
        document["store"] = json!(self.store.file().display().to_string());
        self.out.document(&document);
        let account = &about.account;
        self.out.say(if kept {
            format!(
                "connected: account {account} for {}; a running gateway uses it from its next request on",
                about.mode
            )
        } else {
            format!("account {account}: the authorization server gives tokens; nothing has to be kept")
        });
        0
    }
}

/// What is told of a credential.
pub(super) fn told(about: &About) -> Value {
    json!({
        "account": about.account,
        "mode": about.mode,
        "kind": about.kind,
        "sentTo": about.origins,
        "issuer": about.issuer,
        "client": about.client,
        "since": time(about.since),
        "renewed": about.renewed.map(time),
        "expires": about.expires.map(time),
        "renewable": about.renewable,
        "scopes": about.scopes,
    })
}

/// Seconds since 1970 as RFC 3339.
pub(super) fn time(at: i64) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(at).ok();
    at.and_then(|t| t.format(&time::format_description::well_known::Rfc3339).ok()).unwrap_or_default()
}

fn refused(e: Error) -> Fail {
    match e {
        Error::Refused(_) => {
            Fail { code: REFUSED, kind: "refused".into(), message: e.to_string(), detail: None }
        }
        other => Fail::from(other),
    }
}

/// Opens a page; if that can't be done, the person has the address.
fn browse(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        eprintln!("no browser could be started here ({program}); open the page by hand");
    }
}
