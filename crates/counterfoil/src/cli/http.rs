//! A small HTTP client for the control side of the sandbox provider, on loopback.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// The largest answer that is taken, in bytes.
const MAX: usize = 16 << 20;

/// Sends one request and reads its JSON answer.
pub(super) async fn ask(
    at: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<(StatusCode, Value), String> {
    let asking = async {
        let stream = TcpStream::connect(at).await.map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        let driver = tokio::spawn(connection);
        let mut request =
            Request::builder().method(method).uri(path).header(http::header::HOST, at.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        let bytes: Bytes = body.map(|b| b.to_string().into()).unwrap_or_default();
        let request = request.body(Full::new(bytes)).map_err(|e| e.to_string())?;
        let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let (head, body) = response.into_parts();
        let bytes = Limited::new(body, MAX).collect().await.map_err(|e| e.to_string())?.to_bytes();
        driver.abort();
        let value = serde_json::from_slice(&bytes).map_err(|e| format!("the answer is not JSON: {e}"))?;
        Ok((head.status, value))
    };
    tokio::time::timeout(Duration::from_secs(10), asking)
        .await
        .unwrap_or_else(|_| Err("no answer within 10 s".into()))
}
