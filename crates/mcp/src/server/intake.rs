//! What a POST must bring before its message is looked at: media types, and a body within its limits.
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use super::HttpConfig;
use super::limits::within;
use super::refusal::Refusal;
use crate::error::RpcError;

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let kind = value.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    })
}

/// What the client takes. The specification has it list both media types; a client that lists none, or wildcards,
/// takes anything (RFC 9110, 12.5.1), and one that lists JSON alone never gets a stream.
pub(super) struct Accepts {
    pub json: bool,
    pub events: bool,
}

impl Accepts {
    pub fn of(headers: &HeaderMap) -> Accepts {
        let mut found = Accepts { json: false, events: false };
        let mut any = false;
        for value in headers.get_all(ACCEPT) {
            if value.as_bytes() == b"application/json, text/event-stream" {
                return Accepts { json: true, events: true };
            }
            for one in value.as_bytes().split(|b| *b == b',') {
                let mut parts = one.split(|b| *b == b';').map(<[u8]>::trim_ascii);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                if kind.is_empty() {
                    continue;
                }
                any = true;
                let refused = parts.any(|p| {
                    p.get(..2).is_some_and(|q| q.eq_ignore_ascii_case(b"q="))
                        && p[2..].iter().all(|b| matches!(b, b'0' | b'.'))
                });
                if !refused {
                    found.json |= matches!(&kind[..], b"*/*" | b"application/*" | b"application/json");
                    found.events |= matches!(&kind[..], b"*/*" | b"text/*" | b"text/event-stream");
                }
            }
        }
        if any { found } else { Accepts { json: true, events: true } }
    }
}

/// Reads the body within its limits. A body that is too large is read and thrown away up to four times the limit, so
/// that its sender, still writing, gets to see the answer.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(
    config: &HttpConfig,
    headers: &HeaderMap,
    body: B,
) -> Result<Bytes, Refusal> {
    let max = config.max_body;
    let too_large = || {
        let why = format!("the body is larger than {max} bytes");
        Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, why).with(CONNECTION, "close")
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced
        .is_some_and(|length| length > max.saturating_mul(5) || length > max && headers.contains_key(EXPECT))
    {
        return Err(too_large());
    }
    match within(config.read_timeout, collect(body, max)).await {
        Some(Ok(Some(bytes))) => Ok(bytes),
        Some(Ok(None)) => Err(too_large()),
        Some(Err(_)) => Err(RpcError::invalid_request("the body ended before it was complete").into()),
        None => {
            let why = "the body did not arrive in time";
            Err(Refusal::of(StatusCode::REQUEST_TIMEOUT, why).with(CONNECTION, "close"))
        }
    }
}

/// The whole body; `None` if it is larger than `max`. A body of one piece isn't copied.
async fn collect<B: Body<Data = Bytes> + Unpin>(mut body: B, max: usize) -> Result<Option<Bytes>, B::Error> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut total = 0usize;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        total = total.saturating_add(piece.len());
        if total > max {
            if total > max.saturating_mul(5) {
                return Ok(None);
            }
            rest = BytesMut::new();
        } else if first.is_empty() && rest.is_empty() {
            first = piece;
        } else {
            if rest.is_empty() {
                let expected = body.size_hint().exact().unwrap_or(0) as usize;
                rest.reserve((total + expected).min(max));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&piece);
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(if total > max {
        None
    } else if rest.is_empty() {
        Some(first)
    } else {
        Some(rest.freeze())
    })
}
