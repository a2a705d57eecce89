//! What an authorization server tells of itself (RFC 8414, OpenID Connect Discovery 1.0).

use super::http::Http;
use super::{Client, Endpoints, check_url};
use crate::error::Error;
use http::Request;
use serde::Deserialize;
use url::Url;

/// An authorization server, as it told of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub(crate) issuer: Option<String>,
    pub(crate) authorize: Option<Url>,
    pub(crate) token: Url,
    /// Its answers name it (RFC 9207): one that doesn't is not its own.
    pub(crate) names_itself: bool,
    /// It takes a client's secret in the body only.
    pub(crate) secret_in_body: bool,
}

#[derive(Deserialize)]
struct Told {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
}

/// Finds it, as the client was told.
pub(crate) async fn server(http: &Http, client: &Client) -> Result<Server, Error> {
    let url = |text: &str| check_url(text).map_err(Error::Server);
    match &client.endpoints {
        Endpoints::Given { issuer, authorize, token } => Ok(Server {
            issuer: issuer.clone(),
            authorize: authorize.as_deref().map(url).transpose()?,
            token: url(token)?,
            names_itself: false,
            secret_in_body: false,
        }),
        Endpoints::Discover { issuer } => discover(http, issuer).await,
    }
}

/// The places where it may tell, in the order in which they are asked.
fn places(issuer: &Url) -> Vec<String> {
    let root = issuer.origin().ascii_serialization();
    let path = issuer.path().trim_end_matches('/');
    let mut all = vec![
        format!("{root}/.well-known/oauth-authorization-server{path}"),
        format!("{root}{path}/.well-known/openid-configuration"),
    ];
    if !path.is_empty() {
        all.push(format!("{root}/.well-known/openid-configuration{path}"));
    }
    all
}

async fn discover(http: &Http, issuer: &str) -> Result<Server, Error> {
    let at = check_url(issuer).map_err(Error::Server)?;
    let fail = |why: String| Error::Server(format!("the authorization server {issuer} can't be used: {why}"));
    let mut last = String::new();
    for place in places(&at) {
        let request = Request::get(&place).header("accept", "application/json").body(Vec::new());
        let request = request.map_err(|_| fail("its address can't be asked".into()))?;
        let answer = http.ask(request).await.map_err(|e| fail(e.to_string()))?;
        if answer.status() != http::StatusCode::OK {
            last = format!("it answers {} where it should tell of itself", answer.status().as_u16());
            continue;
        }
        let told: Told = serde_json::from_slice(answer.body())
            .map_err(|_| fail("what it tells of itself can't be read".into()))?;
        return read(issuer, told).map_err(fail);
    }
    Err(fail(format!("{last}; set authorize_url and token_url in the manifest")))
}

fn read(issuer: &str, told: Told) -> Result<Server, String> {
    // RFC 8414, section 3.3: identical, or it is another's.
    if told.issuer != issuer {
        return Err(
            "what it tells names another issuer; write `issuer` exactly as the server names itself".into()
        );
    }
    let token = told.token_endpoint.ok_or("it tells no token endpoint")?;
    if told.code_challenge_methods_supported.is_some_and(|all| !all.iter().any(|m| m == "S256")) {
        return Err("it does not take PKCE with S256".into());
    }
    let takes = |how: &str| {
        told.token_endpoint_auth_methods_supported.as_ref().is_some_and(|all| all.iter().any(|m| m == how))
    };
    Ok(Server {
        secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
        issuer: Some(told.issuer),
        authorize: told.authorization_endpoint.as_deref().map(check_url).transpose()?,
        token: check_url(&token)?,
        names_itself: told.authorization_response_iss_parameter_supported,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(more: &serde_json::Value) -> Result<Server, String> {
        let mut all = json!({
            "issuer": "https://as.example/t",
            "authorization_endpoint": "https://as.example/authorize",
            "token_endpoint": "https://as.example/token",
        });
        for (name, value) in more.as_object().unwrap() {
            all[name] = value.clone();
        }
        read("https://as.example/t", serde_json::from_value(all).unwrap())
    }

    #[test]
    fn it_is_taken_at_its_word_where_that_is_its_own() {
        let plain = told(&json!({})).unwrap();
        assert!(!plain.names_itself && !plain.secret_in_body);
        assert!(
            told(&json!({ "authorization_response_iss_parameter_supported": true })).unwrap().names_itself
        );
        let post = json!({ "token_endpoint_auth_methods_supported": ["client_secret_post", "none"] });
        assert!(told(&post).unwrap().secret_in_body);
        assert!(told(&json!({ "code_challenge_methods_supported": ["plain", "S256"] })).is_ok());
        for bad in [
            json!({ "issuer": "https://as.example/t/" }),
            json!({ "issuer": "https://evil.example/t" }),
            json!({ "token_endpoint": "http://as.example/token" }),
            json!({ "token_endpoint": null }),
            json!({ "authorization_endpoint": "http://as.example/authorize" }),
            json!({ "code_challenge_methods_supported": ["plain"] }),
        ] {
            assert!(told(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn it_is_asked_where_the_specifications_say() {
        let of = |issuer: &str| places(&Url::parse(issuer).unwrap());
        assert_eq!(
            of("https://as.example"),
            [
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            of("https://as.example/t"),
            [
                "https://as.example/.well-known/oauth-authorization-server/t",
                "https://as.example/t/.well-known/openid-configuration",
                "https://as.example/.well-known/openid-configuration/t"
            ]
        );
    }
}
