//! The address of a database, and what its `sslmode` means.
//!
//! | `sslmode` | promise |
//! | --- | --- |
//! | `disable` | no TLS |
//! | `prefer` (default) | TLS if the server offers it, whoever it is: no protection against somebody in between |
//! | `require` | TLS; the server is checked only if `sslrootcert` is given (then as for `verify-ca`) |
//! | `verify-ca` | TLS, and its certificate comes from a trusted authority |
//! | `verify-full` | that, and the certificate names the host |
//!
//! As libpq has it, so that an address means the same everywhere; two words are refused rather than guessed. Trusted are
//! the authorities of the file `sslrootcert` (PEM), else Mozilla's, compiled in. A certificate that is its own authority is
//! none for a server.

use crate::OpenError;
use std::time::Duration;
use tokio_postgres::config::SslMode;

/// How much of TLS is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Disable,
    /// Not checked at all; `must` it be there.
    Unchecked {
        must: bool,
    },
    Authority,
    Full,
}

pub(crate) struct Address {
    pub config: tokio_postgres::Config,
    pub tls: Tls,
    pub roots: Option<String>,
}

pub(crate) fn parse(text: &str) -> Result<Address, OpenError> {
    let bad = |why: &str| OpenError::Address(why.into());
    let mut url = url::Url::parse(text).map_err(|_| bad("it is no URL"))?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(bad("it does not begin with postgres://"));
    }
    let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
    for (name, value) in url.query_pairs() {
        match &*name {
            "sslmode" => mode = Some(value.into_owned()),
            "sslrootcert" => roots = Some(value.into_owned()),
            _ => rest.push((name.into_owned(), value.into_owned())),
        }
    }
    url.set_query(None);
    if !rest.is_empty() {
        // With %20 for a blank: the client's parser takes a plus sign for itself.
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&rest).finish();
        url.set_query(Some(&query.replace('+', "%20")));
    }
    // The parser's own message may quote the address.
    let mut config: tokio_postgres::Config =
        url.as_str().parse().map_err(|_| bad("a part of it is unknown or malformed"))?;
    if config.get_hosts().is_empty() {
        return Err(bad("it names no host"));
    }
    if config.get_dbname().is_none() {
        return Err(bad("it names no database"));
    }
    let tls = match mode.as_deref() {
        Some("disable") => Tls::Disable,
        None | Some("prefer") => Tls::Unchecked { must: false },
        Some("require") if roots.is_some() => Tls::Authority,
        Some("require") => Tls::Unchecked { must: true },
        Some("verify-ca") => Tls::Authority,
        Some("verify-full") => Tls::Full,
        Some(_) => return Err(bad("sslmode is one of disable, prefer, require, verify-ca and verify-full")),
    };
    config.ssl_mode(match tls {
        Tls::Disable => SslMode::Disable,
        Tls::Unchecked { must: false } => SslMode::Prefer,
        _ => SslMode::Require,
    });
    config.connect_timeout(Duration::from_secs(5));
    config
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(3));
    config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(15));
    Ok(Address { config, tls, roots })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        let tls = |q: &str| parse(&format!("postgres://u:p@localhost/db{q}")).map(|a| a.tls);
        assert_eq!(tls("").unwrap(), Tls::Unchecked { must: false });
        assert_eq!(tls("?sslmode=disable").unwrap(), Tls::Disable);
        assert_eq!(tls("?sslmode=require").unwrap(), Tls::Unchecked { must: true });
        assert_eq!(tls("?sslmode=require&sslrootcert=/x").unwrap(), Tls::Authority);
        assert_eq!(tls("?sslmode=verify-full").unwrap(), Tls::Full);
        assert!(tls("?sslmode=allow").is_err() && tls("?sslmode=VERIFY-FULL").is_err());
    }

    #[test]
    fn parameters_stay_as_they_are() {
        let a = parse("postgres://u@localhost/db?password=a%20b%2Bc&sslmode=disable").unwrap();
        assert_eq!(a.config.get_password(), Some(b"a b+c".as_slice()));
    }

    #[test]
    fn secrets_are_not_told() {
        for bad in [
            "postgres://u:hunter2@/db",
            "postgres://u:hunter2@h:x/db",
            "hunter2",
            "postgres://u:hunter2@h/db?what=1",
            "postgres://u:hunter2@h",
        ] {
            let Err(why) = parse(bad) else { panic!("{bad}") };
            assert!(!why.to_string().contains("hunter2"), "{why}");
        }
    }
}
