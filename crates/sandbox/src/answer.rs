//! Answers and problems, in the shape that each provider gives them, and how an answer leaves the socket.

use std::time::Duration;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::class::Class;

/// An answer before it meets the wire.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Bytes,
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// A JSON answer from a value.
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, "application/json", Bytes::from(body.to_string()))
    }

    /// An answer of exactly these bytes.
    pub(crate) fn bytes(status: u16, content_type: &'static str, body: Bytes) -> Self {
        Self { status, body, content_type, headers: Vec::new() }
    }

    /// The same with one more header.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The HTTP response, with the instructions for the connection attached.
    pub(crate) fn into_response(self, play: Play) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response.extensions_mut().insert(play);
        response
    }
}

/// What the connection does with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Send it.
    Send,
    /// Close without a byte.
    Cut,
    /// Say nothing until the client leaves or the longest wait is over.
    Hang,
    /// Send half of the body under its full `Content-Length`, then close.
    Torn,
    /// Send the body byte by byte, with a pause before each.
    Trickle(Duration),
}

/// A fate, and how long to wait before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Play {
    pub fate: Fate,
    pub after: Duration,
}

impl Play {
    /// Send at once.
    pub(crate) const SEND: Play = Play { fate: Fate::Send, after: Duration::ZERO };
    /// Close at once without a byte.
    pub(crate) const CUT: Play = Play { fate: Fate::Cut, after: Duration::ZERO };
}

/// Something the provider refuses, in its own shape.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub status: u16,
    pub kind: &'static str,
    pub code: &'static str,
    pub message: String,
    pub param: Option<String>,
    pub resource: Option<String>,
}

impl Problem {
    /// A problem of any type.
    pub(crate) fn new(
        status: u16,
        kind: &'static str,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { status, kind, code, message: message.into(), param: None, resource: None }
    }

    /// An `invalid_request_error`.
    pub(crate) fn invalid(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, message)
    }

    /// The same, about one parameter.
    pub(crate) fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// The same, pointing to an existing object.
    pub(crate) fn resource(mut self, id: impl Into<String>) -> Self {
        self.resource = Some(id.into());
        self
    }

    /// Its JSON, in the shape of the class.
    pub(crate) fn value(&self, class: Class) -> Value {
        match class {
            Class::Resend => json!({"statusCode": self.status, "name": self.code, "message": self.message}),
            Class::Increase => {
                let mut value = json!({"type": self.code, "title": self.message, "detail": self.param, "status": self.status});
                if let Some(id) = &self.resource {
                    value["resource_id"] = json!(id);
                }
                value
            }
            Class::ModernTreasury => {
                json!({"errors": {"code": self.code, "message": self.message, "parameter": self.param}})
            }
            Class::Square => {
                let category =
                    if self.status == 402 { "PAYMENT_METHOD_ERROR" } else { "INVALID_REQUEST_ERROR" };
                json!({"errors": [{"category": category, "code": self.code.to_ascii_uppercase(), "detail": self.message, "field": self.param}]})
            }
            Class::Paypal => {
                let issue = self.code.to_ascii_uppercase();
                json!({"name": "UNPROCESSABLE_ENTITY", "message": self.message, "details": [{"issue": issue, "field": self.param}]})
            }
            Class::Adyen => {
                json!({"status": self.status, "errorCode": self.code, "message": self.message, "errorType": "validation"})
            }
            Class::Checkout => json!({"error_type": "request_invalid", "error_codes": [self.code]}),
            Class::Aws => {
                json!({"__type": format!("com.amazonaws.sandbox#{}", self.code), "message": self.message})
            }
            _ => {
                let mut error = json!({"type": self.kind, "code": self.code, "message": self.message});
                if let Some(param) = &self.param {
                    error["param"] = json!(param);
                }
                if let Some(id) = &self.resource {
                    error["resource_id"] = json!(id);
                }
                json!({ "error": error })
            }
        }
    }

    /// The answer that carries it.
    pub(crate) fn answer(&self, class: Class) -> Answer {
        Answer::json(self.status, &self.value(class))
    }
}
