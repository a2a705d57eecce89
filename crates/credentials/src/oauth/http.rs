//! Questions to authorization servers: bounded in length and time, never following a redirect.

use super::check_url;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;

/// How long one question may take, and how long an answer may be, in bytes.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 256 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Why there is no answer. Nothing of the request is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoAnswer(pub String);

impl Http {
    /// With the public certificate roots compiled in.
    pub(crate) fn new() -> Http {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // Rarely two questions in a row: nothing is kept.
        Http(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
    }

    /// One question.
    pub(crate) async fn ask(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, NoAnswer> {
        let no = |why: &str| NoAnswer(why.to_owned());
        check_url(&request.uri().to_string()).map_err(NoAnswer)?;
        let request = request.map(|body| Full::new(Bytes::from(body)));
        let asked = async {
            let answer = self.0.request(request).await.map_err(|e| {
                no(if e.is_connect() { "it can't be reached" } else { "the connection was lost" })
            })?;
            let (head, body) = answer.into_parts();
            if head.status.is_redirection() {
                return Err(no("it redirects, which is not followed"));
            }
            let body = Limited::new(body, LONGEST).collect().await;
            let body = body.map_err(|_| no("its answer broke off, or is longer than 256 KiB"))?;
            Ok(Response::from_parts(head, body.to_bytes().to_vec()))
        };
        let late = |_| NoAnswer(format!("it gave no answer within {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, asked).await.map_err(late)?
    }
}
