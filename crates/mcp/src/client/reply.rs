//! Reading an answer: one JSON message, or an event stream that ends with it.
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::transport::{collect, reason};
use super::{Progress, Reply};
use crate::constants::method;
use crate::error::Error;
use crate::json::{Limits, Raw, RawObject};
use crate::message::Id;
use crate::sse;

/// Answers come from servers we call, so their JSON is checked for form, but not for duplicates.
pub(super) const LIMITS: Limits = Limits { depth: 128, unique_members: false };

/// The start of an answer's body that is shown when it is no MCP message.
const SHOWN: usize = 300;

pub(super) type OnProgress<'a> = Option<Box<dyn FnMut(Progress) + Send + 'a>>;

/// Whether an answer is an event stream.
pub(super) fn is_stream<B>(response: &Response<B>) -> bool {
    response.status().is_success() && media_type(response.headers()) == b"text/event-stream"
}

fn media_type(headers: &HeaderMap) -> Vec<u8> {
    let kind = headers.get(CONTENT_TYPE).map(|v| v.as_bytes()).unwrap_or_default();
    kind.split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase()
}

/// An answer that is none of those that were to come: a JSON-RPC error without an id, or HTTP alone.
pub(super) async fn refusal(response: Response<Incoming>, cap: usize) -> Error {
    // No request has this id, so only an error that names none is taken.
    match read(response, &Id::number(u64::MAX), &mut None, cap).await {
        Err(error) => error,
        Ok(_) => Error::Protocol("a response came that nobody asked for".into()),
    }
}

/// Reads to the final response. Dropping this future closes the connection, which cancels the request.
pub(super) async fn read(
    response: Response<Incoming>,
    id: &Id,
    on_progress: &mut OnProgress<'_>,
    cap: usize,
) -> Result<Reply, Error> {
    let streams = is_stream(&response);
    let (head, body) = response.into_parts();
    if streams {
        return stream(head.status, body, id, on_progress, cap).await;
    }
    let kind = media_type(&head.headers);
    let body = collect(body, cap).await.map_err(Error::Unknown)?;
    let message =
        if kind == b"application/json" { RawObject::parse(body.clone(), &LIMITS).ok() } else { None };
    let answer = message.and_then(|message| answer(head.status, &message, id));
    answer.unwrap_or_else(|| {
        let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned();
        Err(if head.status == StatusCode::OK {
            Error::Protocol(format!("the answer is not the response to this request: {shown}"))
        } else {
            Error::Http { status: head.status, headers: Box::new(head.headers), body: shown }
        })
    })
}

/// The message that an event carries. Events of other types, and primers without data, carry none.
pub(super) fn message(event: sse::Event) -> Result<Option<RawObject>, Error> {
    if event.kind != "message" || event.data.is_empty() {
        return Ok(None);
    }
    let message = RawObject::parse(event.data, &LIMITS);
    message.map(Some).map_err(|e| Error::Protocol(format!("an event is not a JSON-RPC message: {e}")))
}

async fn stream(
    status: StatusCode,
    mut body: Incoming,
    id: &Id,
    on_progress: &mut OnProgress<'_>,
    cap: usize,
) -> Result<Reply, Error> {
    let mut reader = sse::Reader::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Error::Unknown(format!("the stream broke off: {}", reason(&e))))?;
        let Ok(piece) = frame.into_data() else { continue };
        for event in reader.push(&piece) {
            let Some(message) = message(event)? else { continue };
            if let Some(answer) = answer(status, &message, id) {
                return answer;
            }
            if let (Some(on_progress), Some(progress)) = (on_progress.as_mut(), progress(&message)) {
                on_progress(progress);
            }
        }
        if reader.pending() > cap {
            return Err(Error::Unknown(format!("an event of the stream is larger than {cap} bytes")));
        }
    }
    Err(Error::Unknown("the stream ended without a response".into()))
}

/// The response in a message, if it is the response to this request (or an error that could name no request).
pub(super) fn answer(status: StatusCode, message: &RawObject, id: &Id) -> Option<Result<Reply, Error>> {
    let own = message.get("id");
    let matches = own.as_ref() == Some(id.raw());
    if let Some(error) = message.get("error").filter(|_| matches || own.is_none_or(|id| id.is_null())) {
        let error = error.object()?;
        return Some(Err(Error::Rpc {
            status,
            code: error.get("code")?.as_str().parse().ok()?,
            message: error.get("message")?.as_string()?.into_owned(),
            data: error.get("data"),
        }));
    }
    if !matches {
        return None;
    }
    let result = message.get("result")?.object()?;
    let result_type = match result.get("resultType") {
        Some(kind) => kind.as_string()?.into_owned(),
        // Servers of earlier revisions leave it out (spec: basic, "ResultType").
        None => crate::constants::result_type::COMPLETE.to_owned(),
    };
    Some(Ok(Reply { result, result_type }))
}

pub(super) fn progress(message: &RawObject) -> Option<Progress> {
    if message.get("method")?.as_string()? != method::PROGRESS {
        return None;
    }
    let params = message.get("params")?.object()?;
    let number = |raw: Raw| raw.as_str().parse::<f64>().ok();
    Some(Progress {
        progress: params.get("progress").and_then(number)?,
        total: params.get("total").and_then(number),
        message: params.get("message").and_then(|m| m.as_string().map(|s| s.into_owned())),
    })
}
