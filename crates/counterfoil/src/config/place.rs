//! `[ledger]` and `[bus]`: where the ledger is, and how its replicas tell each other news.

use super::environment::Environment;
use super::error::At;
use super::node::Reader;
use super::{DATA, tools, values};
use ledger::Millis;
use std::path::{Path, PathBuf};

/// `[ledger]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// Where it is.
    pub place: LedgerPlace,
    /// How long a silent replica counts as alive. An SQLite ledger has one process and needs none.
    pub lease: Millis,
    /// How long operations are kept after their end, unless their tool says otherwise.
    pub retention: Millis,
    /// It was restored from a backup: new operations wait for `ops release`. Only `serve --restored` says so.
    pub restored: bool,
}

/// Where a ledger is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerPlace {
    /// In an SQLite database, whose directory holds the lock and the sockets too. One process.
    Sqlite(PathBuf),
    /// In PostgreSQL. Any number of processes.
    Postgres(Postgres),
}

/// A ledger in PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postgres {
    /// The database.
    pub url: SecretUrl,
    /// The schema in it.
    pub schema: String,
    /// This replica's name, which no other replica has; none: a new one at every start.
    pub replica: Option<String>,
    /// Every acknowledged write is on any server that is ever promoted, so a failover loses nothing.
    pub synchronous_standby: bool,
    /// The directory for the sockets of this process, and the sandbox provider's state.
    pub data: PathBuf,
}

/// How replicas tell each other what changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusConfig {
    /// By the ledger's own means: inside the process, or LISTEN and NOTIFY.
    Auto,
    /// By a NATS server.
    Nats(SecretUrl),
}

/// An address that may hold a password. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The address, to connect to.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Scheme, hosts and path, for people: no user, no password, no parameters.
    #[must_use]
    pub fn shown(&self) -> String {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", ""));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        // The last @ before the path: a password's own must be written %40, but it is nobody's to show either way.
        let (authority, path) = rest.split_at(rest.rfind('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}{path}")
    }
}

impl std::fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretUrl(…)")
    }
}

impl LedgerConfig {
    /// The directory of the sockets, and of an SQLite ledger with its lock.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match &self.place {
            LedgerPlace::Sqlite(path) => match path.parent() {
                Some(dir) if !dir.as_os_str().is_empty() => dir,
                _ => Path::new("."),
            },
            LedgerPlace::Postgres(p) => &p.data,
        }
    }

    /// Moves the directory, and an SQLite ledger with it.
    pub fn set_directory(&mut self, data: &Path) {
        match &mut self.place {
            LedgerPlace::Sqlite(path) => *path = data.join("ledger.db"),
            LedgerPlace::Postgres(p) => p.data = data.to_owned(),
        }
    }

    /// The database file, where there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.place {
            LedgerPlace::Sqlite(path) => Some(path),
            LedgerPlace::Postgres(_) => None,
        }
    }

    /// The database server, where there is one.
    #[must_use]
    pub fn postgres(&self) -> Option<&Postgres> {
        match &self.place {
            LedgerPlace::Sqlite(_) => None,
            LedgerPlace::Postgres(p) => Some(p),
        }
    }
}

/// How a ledger's `url` begins.
fn is_postgres(text: &str) -> bool {
    text.starts_with("postgres:") || text.starts_with("postgresql:")
}

fn sqlite(text: &str) -> Result<PathBuf, String> {
    if text.contains("${") {
        return Err("a path is no secret, and ${…} is for secrets only; write the path itself".into());
    }
    let Some(path) = text.strip_prefix("sqlite:") else {
        return Err("must be \"sqlite:PATH\" or \"postgres://USER@HOST:PORT/DATABASE\"".into());
    };
    let path = path.strip_prefix("//").unwrap_or(path);
    match path {
        "" | ":memory:" => {
            Err("a ledger lives in a file; write for example \"sqlite:.counterfoil/ledger.db\"".into())
        }
        p if p.ends_with('/') || p.contains('?') => {
            Err(format!("{p:?} is not a file; write for example \"sqlite:.counterfoil/ledger.db\""))
        }
        p => Ok(PathBuf::from(p)),
    }
}

/// A server's address. Its parts are never in a message: one of them is a secret.
fn server(text: &str, wants_path: bool) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|e| format!("not an address ({e})"))?;
    let socket = url.query_pairs().any(|(name, value)| name == "host" && !value.is_empty());
    if url.host_str().is_none_or(str::is_empty) && !socket {
        return Err("names no host".into());
    }
    if wants_path && url.path().trim_matches('/').is_empty() && !url.query_pairs().any(|(n, _)| n == "dbname")
    {
        return Err("names no database; write \"postgres://USER@HOST:PORT/DATABASE\"".into());
    }
    if url.fragment().is_some() {
        return Err("must have no fragment; a # in a password is written %23".into());
    }
    Ok(url)
}

fn has_password(url: &url::Url) -> bool {
    url.password().is_some() || url.query_pairs().any(|(name, _)| name == "password")
}

/// A secret is named: one that is written into the file is refused. In the environment it is where it belongs.
fn written(text: &str, at: &At) -> bool {
    matches!(at, At::Line(..)) && !text.contains("${")
}

/// A word of a schema or a replica.
fn plain(text: &str) -> Result<String, String> {
    values::name(text)
}

/// A schema's name needs no quotes.
fn schema(text: &str) -> Result<String, String> {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let goes_on = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if begins && goes_on && text.len() <= 63 && !text.starts_with("pg_") {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not a plain schema name; use 1 to 63 of a-z 0-9 _, no digit first, not pg_…"
        ))
    }
}

/// Reads `[ledger]`.
pub(super) fn ledger(section: &Reader<'_>, environment: &Environment, base: &Path) -> LedgerConfig {
    let span =
        |key, least, most| section.parsed(key, move |t| values::duration(t, least, most)).map(|(d, _)| d);
    let lease = span("lease", Millis(500), Millis::secs(600));
    let retention = span("retention", Millis::secs(60), tools::MAX_RETENTION);
    let place = place(section, environment, base);
    section.finish();
    LedgerConfig {
        place,
        lease: lease.unwrap_or(Millis::secs(15)),
        retention: retention.unwrap_or(Millis::secs(7 * 86_400)),
        restored: false,
    }
}

fn place(section: &Reader<'_>, environment: &Environment, base: &Path) -> LedgerPlace {
    let faults = section.faults;
    let default = LedgerPlace::Sqlite(base.join(DATA).join("ledger.db"));
    let written_url = section.secret("url");
    let password = section.secret("password");
    let data = section.text("data");
    let schema = section.parsed("schema", schema);
    let replica = section.parsed("replica", plain);
    let standby = section.parsed("failover", |text| match text {
        "hold" => Ok(false),
        "synchronous" => Ok(true),
        _ => Err(format!("{text:?} is unknown; use \"hold\" or \"synchronous\"")),
    });
    let url = match &written_url {
        None => None,
        Some((text, at)) => match environment.secret(text, base) {
            Ok(url) => Some((url, written(text, at), at)),
            Err(why) => {
                faults.add(at, format!("url: {why}"));
                return default;
            }
        },
    };
    let Some((text, in_file, at)) = url.filter(|(text, ..)| is_postgres(text)) else {
        for key in ["password", "data", "schema", "replica", "failover"] {
            if !section.lacks(key) {
                faults.add(
                    &section.place(key),
                    format!(
                        "{key} is for a ledger in PostgreSQL; take it out, or set url = \"postgres://…\""
                    ),
                );
            }
        }
        return match written_url {
            None => default,
            Some((text, at)) => match sqlite(&text) {
                Ok(path) => LedgerPlace::Sqlite(base.join(path)),
                Err(why) => {
                    faults.add(&at, format!("url: {why}"));
                    default
                }
            },
        };
    };
    let mut url = match server(&text, true) {
        Ok(url) => url,
        Err(why) => {
            faults.add(at, format!("url: {why}"));
            return default;
        }
    };
    if in_file && has_password(&url) {
        faults.add(
            at,
            "url: a password is not written into the file; set password = \"${env:NAME}\" or \"${file:PATH}\", or the whole url so",
        );
    }
    if let Some((text, password_at)) = &password {
        match environment.secret(text, base) {
            _ if written(text, password_at) => faults.add(
                password_at,
                "password: a secret is named, \"${env:NAME}\" or \"${file:PATH}\", never written",
            ),
            _ if has_password(&url) => {
                faults.add(password_at, "password: the url has one already; take one of them out")
            }
            Ok(secret) => {
                // Nothing encodes a % for us, and not everybody reads + as a blank.
                let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
                let encoded = encoded.replace('+', "%20");
                // A socket's address has no place for it before the host.
                if url.set_password(Some(&encoded)).is_err() {
                    let query = url.query().map(|q| format!("{q}&")).unwrap_or_default();
                    url.set_query(Some(&format!("{query}password={encoded}")));
                }
            }
            Err(why) => faults.add(password_at, format!("password: {why}")),
        }
    }
    LedgerPlace::Postgres(Postgres {
        url: SecretUrl(url.into()),
        schema: schema.map_or_else(|| "counterfoil".into(), |(s, _)| s),
        replica: replica.map(|(name, _)| name),
        synchronous_standby: standby.is_some_and(|(s, _)| s),
        data: base.join(data.map_or_else(|| PathBuf::from(DATA), |(d, _)| d.into())),
    })
}

/// Reads `[bus]`.
pub(super) fn bus(
    section: &Reader<'_>,
    environment: &Environment,
    base: &Path,
    ledger: &LedgerConfig,
) -> BusConfig {
    let url = section.secret("url");
    section.finish();
    let Some((text, at)) = url else { return BusConfig::Auto };
    let read = environment.secret(&text, base).and_then(|url| {
        if url == "auto" {
            return Ok(BusConfig::Auto);
        }
        if !["nats://", "tls://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err("must be \"auto\", \"nats://HOST:PORT\" or \"tls://HOST:PORT\"".into());
        }
        let parsed = server(&url, false)?;
        if written(&text, &at) && (parsed.password().is_some() || !parsed.username().is_empty()) {
            return Err("a password or token is not written into the file; set the whole url as \"${env:NAME}\" or \"${file:PATH}\"".into());
        }
        if ledger.postgres().is_none() {
            return Err("a ledger on SQLite has one process, and nobody to tell; take it out, or set [ledger] url = \"postgres://…\"".into());
        }
        Ok(BusConfig::Nats(SecretUrl(url)))
    });
    read.unwrap_or_else(|why| {
        section.faults.add(&at, format!("url: {why}"));
        BusConfig::Auto
    })
}

#[cfg(test)]
mod tests {
    use super::SecretUrl;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("postgres://u:hunter2@db.example:5432/cf?sslmode=require", "postgres://db.example:5432/cf"),
            ("postgres://u:hunter2@db/cf?password=hunter2", "postgres://db/cf"),
            ("postgresql:///cf?host=/run/pg&password=hunter2", "postgresql:///cf"),
            ("postgres://u:hun@ter2@db/cf", "postgres://db/cf"),
            ("nats://hunter2@n:4222", "nats://n:4222"),
        ] {
            let url = SecretUrl(url.to_owned());
            assert_eq!(url.shown(), shown);
            assert!(!format!("{url:?}").contains("hunter2"));
        }
    }
}
