//! The loopback address at which a browser comes back (RFC 8252, section 7.3): one page, on 127.0.0.1, for one answer.

use super::answer::Answer;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// The path of the redirect.
pub(super) const PATH: &str = "/callback";
/// Connections at a time, how long a request's head may take, and how long it may be, in bytes.
const CONNECTIONS: usize = 16;
const HEAD: Duration = Duration::from_secs(5);
const MAX_HEAD: usize = 32 << 10;

/// What a browser brought.
pub(super) struct Brought {
    pub answer: Answer,
    /// What the page shall say.
    pub say: oneshot::Sender<Page>,
}

/// What a person reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Connected,
    NotConnected,
    /// Not an answer to what was asked.
    Foreign,
}

/// Serves what comes in until it is dropped. Each answer of a browser is handed over.
pub(super) async fn serve(listener: TcpListener, at: SocketAddr, hand: mpsc::Sender<Brought>) {
    let mut open = JoinSet::new();
    let hand = Arc::new(hand);
    loop {
        while open.len() >= CONNECTIONS {
            open.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let hand = hand.clone();
        open.spawn(async move {
            let service = service_fn(move |request| {
                let hand = hand.clone();
                async move { Ok::<_, Infallible>(answer(&request, at, &hand).await) }
            });
            let mut how = http1::Builder::new();
            how.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD).keep_alive(false);
            let _ = how.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: &Request<Incoming>,
    at: SocketAddr,
    hand: &mpsc::Sender<Brought>,
) -> Response<Full<Bytes>> {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok());
    // A page that had its own name lead here would come under that name.
    if host != Some(&at.to_string()) || request.method() != Method::GET || request.uri().path() != PATH {
        return shown(StatusCode::NOT_FOUND, "Not found", "There is nothing here.");
    }
    let answer = Answer::read(request.uri().query().unwrap_or_default());
    let (say, said) = oneshot::channel();
    if hand.send(Brought { answer, say }).await.is_err() {
        return shown(StatusCode::GONE, "Over", "Nothing waits for this any more.");
    }
    match said.await {
        Ok(Page::Connected) => {
            shown(StatusCode::OK, "Connected", "The credential is with Counterfoil. You can close this page.")
        }
        Ok(Page::NotConnected) => shown(
            StatusCode::BAD_REQUEST,
            "Not connected",
            "Nothing was kept. The terminal in which you began says why.",
        ),
        Ok(Page::Foreign) | Err(_) => shown(
            StatusCode::BAD_REQUEST,
            "Not taken",
            "This is not the answer to what was asked. Nothing was kept; go on in the page that you were sent to.",
        ),
    }
}

/// A page without script, and nothing of the request in it.
fn shown(status: StatusCode, title: &str, text: &str) -> Response<Full<Bytes>> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><h1>{title}</h1><p>{text}</p></html>\n"
    );
    let mut response = Response::new(Full::new(Bytes::from(page)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    response
}
