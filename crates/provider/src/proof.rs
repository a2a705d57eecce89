//! What authenticates a request: a secret, or several, each in its place. It is put in last, and never recorded or printed.

use crate::encode::percent;
use base64::Engine as _;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Uri, header};
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// How a secret is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Bearer,
    Basic {
        username: Option<String>,
    },
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
}

/// Where a secret goes, as people may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masked {
    /// `header`, or `query`.
    pub place: &'static str,
    /// The header's or the parameter's name.
    pub name: String,
    /// What is sent, the secret in it masked.
    pub value: String,
}

/// What stands in the place of a secret where a request is shown.
pub(crate) const MASKED: &str = "****";
/// A password of fewer bytes keeps nothing safe by itself.
const SHORT: usize = 8;

impl Scheme {
    /// What is asked for, in words.
    pub fn wanted(&self) -> String {
        match self {
            Scheme::Bearer => "an API key or access token (sent as a bearer token)".into(),
            Scheme::Basic { username: Some(user) } => format!("the password or key of {user:?}"),
            Scheme::Basic { username: None } => "user name and password, with a colon between".into(),
            Scheme::Header(name) => format!("an API key (sent in the header {name})"),
            Scheme::Query(name) => format!("an API key (sent in the query, as {name})"),
        }
    }

    /// Itself in a word or two.
    pub fn word(&self) -> String {
        match self {
            Scheme::Bearer => "bearer".into(),
            Scheme::Basic { username: Some(user) } => format!("basic {user}"),
            Scheme::Basic { username: None } => "basic".into(),
            Scheme::Header(name) => format!("header {name}"),
            Scheme::Query(name) => format!("query {name}"),
        }
    }

    /// The header that it is sent in, if it is one.
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Scheme::Bearer | Scheme::Basic { .. } => Some(&header::AUTHORIZATION),
            Scheme::Header(name) => Some(name),
            Scheme::Query(_) => None,
        }
    }

    /// The parameter of the query that it is sent in, if it is one.
    pub fn query(&self) -> Option<&str> {
        match self {
            Scheme::Query(name) => Some(name),
            Scheme::Bearer | Scheme::Basic { .. } | Scheme::Header(_) => None,
        }
    }

    /// Where it will be, its secret masked.
    pub fn masked(&self) -> Masked {
        let (place, name, value) = match self {
            Scheme::Bearer => ("header", "Authorization".into(), format!("Bearer {MASKED}")),
            Scheme::Basic { .. } => ("header", "Authorization".into(), format!("Basic {MASKED}")),
            Scheme::Header(name) => ("header", name.to_string(), MASKED.into()),
            Scheme::Query(name) => ("query", name.clone(), MASKED.into()),
        };
        Masked { place, name, value }
    }

    /// This secret in its place.
    ///
    /// # Errors
    /// It can't be sent; the reason does not repeat it.
    pub fn proof(&self, secret: &str) -> Result<Proof, String> {
        let kept = |text: &str| Zeroizing::new(text.to_owned());
        let mut secrets = vec![kept(secret)];
        let at = match self {
            Scheme::Bearer => At::header(header::AUTHORIZATION, &format!("Bearer {secret}"))?,
            Scheme::Basic { username } => {
                let pair = match username {
                    Some(user) => Zeroizing::new(format!("{user}:{secret}")),
                    None => kept(secret),
                };
                let encoded = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(&*pair));
                if let (None, Some((user, password))) = (username, secret.split_once(':')) {
                    // Where there is hardly a password, the user's name is the key.
                    secrets.push(kept(if password.len() < SHORT { user } else { password }));
                }
                secrets.push(encoded.clone());
                At::header(header::AUTHORIZATION, &format!("Basic {}", *encoded))?
            }
            Scheme::Header(name) => At::header(name.clone(), secret)?,
            Scheme::Query(name) => At::Query(name.clone(), Zeroizing::new(percent(secret))),
        };
        Ok(Proof(vec![Part { at, secrets }]))
    }
}

/// See the module.
#[derive(Clone, Default)]
pub struct Proof(Vec<Part>);

#[derive(Clone)]
struct Part {
    at: At,
    /// What must not be seen: as it was given, and as it is written.
    secrets: Vec<Zeroizing<String>>,
}

#[derive(Clone)]
enum At {
    Header(HeaderName, HeaderValue),
    /// Name, and the value as it is written.
    Query(String, Zeroizing<String>),
}

impl At {
    fn header(name: HeaderName, text: &str) -> Result<At, String> {
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| "it has characters that no header can carry".to_owned())?;
        value.set_sensitive(true);
        Ok(At::Header(name, value))
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(…)")
    }
}

impl Proof {
    /// The same, and what goes along.
    #[must_use]
    pub(crate) fn and(mut self, also: &Proof) -> Proof {
        self.0.extend(also.0.iter().cloned());
        self
    }

    /// Whether the request needs none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers that it puts in, marked sensitive.
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().filter_map(|part| match &part.at {
            At::Header(name, value) => Some((name, value)),
            At::Query(..) => None,
        })
    }

    /// What must not be seen of it: each secret as it was given; of `basic` also the pair as it is written.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|part| part.secrets.iter().map(|s| s.as_str()))
    }

    /// Puts it in, over whatever stands in its places.
    ///
    /// # Errors
    /// It can't be sent with this request; the reason does not repeat it.
    pub fn put_into(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        for part in &self.0 {
            match &part.at {
                At::Header(name, value) => {
                    request.headers_mut().insert(name, value.clone());
                }
                At::Query(name, value) => *request.uri_mut() = with_parameter(request.uri(), name, value)?,
            }
        }
        Ok(())
    }
}

/// An address with this parameter, and no other of its name.
fn with_parameter(uri: &Uri, name: &str, value: &str) -> Result<Uri, String> {
    let unfit = || "it does not fit into the request's URL".to_owned();
    let mut query = String::new();
    for pair in uri.query().unwrap_or_default().split('&') {
        if !pair.is_empty() && decoded(pair.split('=').next().unwrap_or_default()) != name {
            query.push_str(pair);
            query.push('&');
        }
    }
    let whole = Zeroizing::new(format!("{}?{query}{}={value}", uri.path(), percent(name)));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(whole.as_str()).map_err(|_| unfit())?);
    Uri::from_parts(parts).map_err(|_| unfit())
}

/// A name in a query, as servers read it.
fn decoded(name: &str) -> String {
    percent_decode_str(&name.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The mark of a credential: 16 bits of a digest. One in 65,536 other credentials has it too: enough to tell a change,
/// and too little for whoever reads a ledger to find even a weak secret by trying.
pub(crate) fn marked(proof: &Proof) -> String {
    if proof.is_none() {
        return "none".into();
    }
    let mut digest = Sha256::new();
    digest.update(b"counterfoil credential");
    for part in &proof.0 {
        // No header's name begins so.
        let (mark, name, value) = match &part.at {
            At::Header(name, value) => ("", name.as_str(), value.as_bytes()),
            At::Query(name, value) => ("?", name.as_str(), value.as_bytes()),
        };
        for piece in [b"\0".as_slice(), mark.as_bytes(), name.as_bytes(), b"\0", value] {
            digest.update(piece);
        }
    }
    digest.finalize().iter().take(2).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn put(schemes: &[(Scheme, &str)], uri: &str) -> Request<Bytes> {
        let all = schemes.iter().map(|(scheme, secret)| scheme.proof(secret).unwrap());
        let proof = all.fold(Proof::default(), |all, one| all.and(&one));
        let mut request = Request::get(uri).body(Bytes::new()).unwrap();
        proof.put_into(&mut request).unwrap();
        request
    }

    #[test]
    fn each_has_its_place_and_no_other_stands_there() {
        let key = || Scheme::Query("api key".into());
        for (before, after) in [
            ("https://a.example/x", "https://a.example/x?api%20key=s%26%2Fp%20%C3%A9"),
            ("https://a.example/x?b=%2f+1", "https://a.example/x?b=%2f+1&api%20key=s%26%2Fp%20%C3%A9"),
            (
                "https://a.example/x?api+key=old&b&api%20key",
                "https://a.example/x?b&api%20key=s%26%2Fp%20%C3%A9",
            ),
        ] {
            assert_eq!(put(&[(key(), "s&/p é")], before).uri().to_string(), after);
        }
        let both = put(
            &[(Scheme::Bearer, "t"), (Scheme::Header(HeaderName::from_static("x-app")), "a")],
            "https://a.example/",
        );
        assert_eq!(
            (&both.headers()["authorization"], &both.headers()["x-app"]),
            (&"Bearer t".parse().unwrap(), &"a".parse().unwrap())
        );
        assert!(both.headers().values().all(HeaderValue::is_sensitive));
        let long = key().proof(&"x".repeat(70 << 10)).unwrap();
        assert!(long.put_into(&mut Request::get("https://a.example/").body(Bytes::new()).unwrap()).is_err());
    }

    #[test]
    fn what_must_not_be_seen_is_told_and_not_shown() {
        let secrets = |scheme: Scheme, secret: &str| {
            let proof = scheme.proof(secret).unwrap();
            assert!(!format!("{proof:?}").contains(secret));
            proof.secrets().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(secrets(Scheme::Bearer, "tok"), ["tok"]);
        assert_eq!(secrets(Scheme::Query("k".into()), "a b"), ["a b"]);
        assert_eq!(secrets(Scheme::Basic { username: Some("org".into()) }, "pw"), ["pw", "b3JnOnB3"]);
        assert_eq!(
            secrets(Scheme::Basic { username: None }, "org:a-password"),
            ["org:a-password", "a-password", "b3JnOmEtcGFzc3dvcmQ="]
        );
        assert_eq!(
            secrets(Scheme::Basic { username: None }, "sk_live:"),
            ["sk_live:", "sk_live", "c2tfbGl2ZTo="]
        );
    }

    /// Ledgers have them.
    #[test]
    fn marks_stay_what_they_were() {
        assert_eq!(marked(&Scheme::Bearer.proof("sk-one").unwrap()), MARK);
        assert_eq!(marked(&Proof::default()), "none");
        let header = Scheme::Header(HeaderName::from_static("k")).proof("s").unwrap();
        assert_ne!(marked(&header), marked(&Scheme::Query("k".into()).proof("s").unwrap()));
    }
    const MARK: &str = "bdc7";
}
