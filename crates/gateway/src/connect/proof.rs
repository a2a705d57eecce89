//! Who is at a page: who was asked, or nobody. A link alone proves nothing: whoever got it may have sent it on, to have
//! somebody else's credential stored as his own (spec: client/elicitation, "Phishing").

use crate::principal::principal_of;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use mcp::server::Authenticator;
use std::sync::Arc;

/// How people at a page prove who they are.
pub(super) enum Proof {
    /// By what they call this server with.
    Key(Arc<dyn Authenticator>),
    /// They don't: nobody is asked, and this server is this machine's only.
    Loopback,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proved {
    /// It is the principal.
    Yes,
    /// It is not, or nobody.
    No,
    /// That can't be known now.
    Unknown,
}

impl Proof {
    pub fn of(authenticator: Option<Arc<dyn Authenticator>>) -> Proof {
        authenticator.map_or(Proof::Loopback, Proof::Key)
    }

    /// Whether the page has to ask for the key.
    pub fn asks(&self) -> bool {
        matches!(self, Proof::Key(_))
    }

    /// Whether this is the key of `principal`.
    pub async fn holds(&self, principal: &str, key: &str) -> Proved {
        let Proof::Key(authenticator) = self else { return Proved::Yes };
        let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", key.trim())) else {
            return Proved::No;
        };
        value.set_sensitive(true);
        let mut request = Request::new(());
        request.headers_mut().insert(AUTHORIZATION, value);
        match authenticator.authenticate(&request.into_parts().0).await {
            Ok(who) if *principal_of(&who) == *principal => Proved::Yes,
            Err(e) if e.error.http_status.is_server_error() => Proved::Unknown,
            Ok(_) | Err(_) => Proved::No,
        }
    }
}
