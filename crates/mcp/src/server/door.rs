//! Routes beside the endpoint that speak JSON and not MCP: what is checked at their door is what the endpoint checks, in
//! the same order and within the same bounds, and who answers learns as there whether the answer was written.
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::header::ALLOW;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::oneshot;

use super::answer::{JSON, drained, with_headers};
use super::body::{Handover, Single};
use super::connection::{Connection, Flushes};
use super::intake::{Accepts, is_json, read};
use super::refusal::Refusal;
use super::{Delivering, HttpConfig, HttpRefusal};
use crate::error::RpcError;
use crate::json::Limits;
use crate::origin::HostPolicy;

/// The checks before a route.
pub struct Door {
    config: HttpConfig,
    hosts: HostPolicy,
}

/// A POST whose body is there: JSON by its content type, not looked at yet.
pub struct Admitted {
    /// The request's headers.
    pub headers: HeaderMap,
    /// What the [`super::Authenticator`] put in, such as the principal.
    pub extensions: Extensions,
    /// The body.
    pub body: Bytes,
    flushes: Option<Arc<Flushes>>,
}

fn refuse(status: StatusCode, why: &str) -> HttpRefusal {
    RpcError::refused(status, why).into()
}

impl From<Refusal> for HttpRefusal {
    fn from(refusal: Refusal) -> HttpRefusal {
        HttpRefusal { headers: refusal.headers, error: refusal.error }
    }
}

impl Door {
    /// The door of a server with this configuration.
    #[must_use]
    pub fn new(config: &HttpConfig) -> Door {
        let hosts = HostPolicy::new(config.port, &config.allowed_hosts, &config.allowed_origins);
        Door { config: config.clone(), hosts }
    }

    /// The refusal of a request that does not name this server, or comes from a page that may not ask it: 403.
    #[must_use]
    pub fn stranger(&self, head: &Parts) -> Option<HttpRefusal> {
        self.hosts.check(head).err().map(|why| refuse(StatusCode::FORBIDDEN, why))
    }

    /// Takes a POST: host and origin, method, principal, media types, body.
    ///
    /// # Errors
    /// The refusal that is to be sent. Nothing ran.
    pub async fn admit(&self, request: Request) -> Result<Admitted, HttpRefusal> {
        let (mut head, body) = request.into_parts();
        if let Some(refusal) = self.stranger(&head) {
            return Err(refusal);
        }
        if head.method != Method::POST {
            let refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "this route takes POST only");
            let headers = HeaderMap::from_iter([(ALLOW, HeaderValue::from_static("POST"))]);
            return Err(HttpRefusal { headers, ..refusal });
        }
        if let Some(authenticator) = &self.config.authenticator {
            let known = authenticator.authenticate(&head).await?;
            head.extensions.extend(known);
        }
        if !is_json(&head.headers) {
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"));
        }
        if !Accepts::of(&head.headers).json {
            return Err(refuse(StatusCode::NOT_ACCEPTABLE, "Accept must include application/json"));
        }
        let body = read(&self.config, &head.headers, body).await?;
        let flushes = head.extensions.get::<Connection>().map(|c| c.flushes.clone());
        Ok(Admitted { headers: head.headers, extensions: head.extensions, body, flushes })
    }

    /// What a body may be.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { depth: self.config.max_depth, unique_members: true }
    }

    /// Resolves when the server shuts down and calls in flight have had their time.
    pub async fn drained(&self) {
        drained(&self.config).await;
    }
}

impl Admitted {
    /// The answer, and what comes of it.
    #[must_use]
    pub fn answer(&self, status: StatusCode, json: impl Into<Bytes>) -> (Response, Delivering) {
        let (sender, receiver) = oneshot::channel();
        let handover = Handover { answer: Some(sender), flushes: self.flushes.clone(), whole: false };
        let body = Body::new(Single::new(json.into(), handover));
        (with_headers(body, status, JSON), Delivering::of(receiver))
    }
}
