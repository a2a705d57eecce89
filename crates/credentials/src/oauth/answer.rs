//! What a browser brings back from an authorization server, and whether it is that server's word.

use super::known;
use super::metadata::Server;
use crate::error::Error;
use oauth2::AuthorizationCode;
use std::collections::HashMap;
use zeroize::Zeroizing;

/// See the module. Not printed.
#[derive(Default)]
pub struct Answer {
    parameters: HashMap<String, Zeroizing<String>>,
    /// A parameter was given twice (RFC 6749, section 3.1: must not be).
    twice: bool,
}

/// What is exchanged for tokens, once.
pub struct Code(pub(super) AuthorizationCode);

impl Answer {
    /// What a browser came back with.
    #[must_use]
    pub fn read(query: &str) -> Answer {
        let mut answer = Answer::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let before = answer.parameters.insert(name.into_owned(), Zeroizing::new(value.into_owned()));
            answer.twice |= before.is_some();
        }
        answer
    }

    /// The state: whoever does not know it did not come from what was asked (RFC 6749, section 10.12).
    #[must_use]
    pub fn state(&self) -> Option<&String> {
        self.get("state")
    }

    fn get(&self, name: &str) -> Option<&String> {
        self.parameters.get(name).map(|value| &**value)
    }

    /// The code, if the answer is the server's own.
    ///
    /// # Errors
    /// It is not, or the server or the person refused. Nothing of the answer is repeated.
    pub fn code(&self, server: &Server) -> Result<Code, Error> {
        let refused = |why: &str| Error::Server(format!("the answer was refused: {why}. Nothing was kept"));
        if self.twice {
            return Err(refused("it has a parameter twice"));
        }
        // RFC 9207, section 2.4: before anything else of it counts.
        match (self.get("iss"), &server.issuer) {
            (Some(iss), Some(issuer)) if iss == issuer => {}
            (Some(_), Some(_)) => {
                return Err(refused(
                    "it names another issuer than the one that was asked (a mix-up of servers)",
                ));
            }
            (Some(_), None) => {
                return Err(refused(
                    "it names its issuer, and the manifest has none to compare with; set `issuer` in [auth]",
                ));
            }
            (None, _) if server.names_itself => {
                return Err(refused("it does not name its issuer, and this server always does"));
            }
            (None, _) => {}
        }
        if let Some(error) = self.get("error") {
            return Err(Error::Refused(known(error).into()));
        }
        match self.get("code") {
            Some(code) if !code.is_empty() => Ok(Code(AuthorizationCode::new(code.clone()))),
            _ => Err(refused("it has no code")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn server(issuer: Option<&str>, names_itself: bool) -> Server {
        Server {
            issuer: issuer.map(str::to_owned),
            authorize: None,
            token: "https://as.example/token".parse().unwrap(),
            names_itself,
            secret_in_body: false,
        }
    }

    fn told(parameters: &[(&str, &str)], server: &Server) -> String {
        let query: String =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        Answer::read(&query).code(server).map_or_else(|e| e.to_string(), |code| code.0.secret().clone())
    }

    #[test]
    fn an_answer_is_taken_from_the_server_that_was_asked_only() {
        let (plain, strict) = (server(Some("https://as"), false), server(Some("https://as"), true));
        assert_eq!(told(&[("code", "c")], &plain), "c");
        assert_eq!(told(&[("code", "c"), ("iss", "https://as")], &plain), "c");
        assert_eq!(told(&[("code", "c"), ("iss", "https://as")], &strict), "c");
        assert!(told(&[("code", "c")], &strict).contains("does not name its issuer"));
        for server in [&plain, &strict] {
            assert!(told(&[("code", "c"), ("iss", "https://as/")], server).contains("mix-up"));
            // Before the error is believed.
            assert!(told(&[("error", "access_denied"), ("iss", "https://evil")], server).contains("mix-up"));
        }
        assert!(told(&[("code", "c"), ("iss", "https://as")], &server(None, false)).contains("set `issuer`"));
        assert!(told(&[("error", "access_denied")], &plain).contains("access_denied"));
        assert!(!told(&[("error", "CANARY")], &plain).contains("CANARY"));
        assert!(told(&[], &plain).contains("no code"));
        assert!(told(&[("code", "c"), ("x", "1"), ("x", "1")], &plain).contains("twice"));
    }
}
