//! A message that isn't served, as an HTTP response.
use axum::response::Response;
use http::header::{ALLOW, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::answer::plain;
use super::{HttpRefusal, SessionRefusal, legacy};
use crate::error::RpcError;
use crate::message::{Id, Refused, Request};
use crate::revision::Revision;

/// A refusal with the id to echo, if one was read.
pub(super) struct Refusal {
    pub id: Option<Id>,
    pub headers: HeaderMap,
    pub error: RpcError,
    #[cfg(feature = "wire-log")]
    about: Option<About>,
}

/// Which message is refused.
#[derive(Clone)]
pub(super) struct About {
    id: Option<Id>,
    #[cfg(feature = "wire-log")]
    revision: Revision,
    #[cfg(feature = "wire-log")]
    method: Option<Box<str>>,
}

impl About {
    /// A request.
    pub fn request(request: &Request, _revision: Revision) -> About {
        About {
            id: Some(request.id.clone()),
            #[cfg(feature = "wire-log")]
            revision: _revision,
            #[cfg(feature = "wire-log")]
            method: Some(request.method.as_str().into()),
        }
    }

    /// A message that wants no response.
    pub fn other(_revision: Revision) -> About {
        About {
            id: None,
            #[cfg(feature = "wire-log")]
            revision: _revision,
            #[cfg(feature = "wire-log")]
            method: None,
        }
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Refusal {
        Refusal {
            id: None,
            headers: HeaderMap::new(),
            error,
            #[cfg(feature = "wire-log")]
            about: None,
        }
    }
}

impl From<Box<Refused>> for Refusal {
    fn from(refused: Box<Refused>) -> Refusal {
        let Refused { id, error } = *refused;
        Refusal { id, ..error.into() }
    }
}

impl From<HttpRefusal> for Refusal {
    fn from(refusal: HttpRefusal) -> Refusal {
        Refusal { headers: refusal.headers, ..refusal.error.into() }
    }
}

impl From<SessionRefusal> for Refusal {
    fn from(refusal: SessionRefusal) -> Refusal {
        match refusal {
            SessionRefusal::Unknown => Refusal::of(
                StatusCode::NOT_FOUND,
                "this session does not exist or has ended; open a new one with initialize",
            ),
            SessionRefusal::None => {
                Refusal::of(StatusCode::METHOD_NOT_ALLOWED, "no sessions are kept here, so none can be ended")
                    .with(ALLOW, "GET, POST")
            }
            SessionRefusal::Unavailable => Refusal::of(
                StatusCode::SERVICE_UNAVAILABLE,
                "the session can't be looked up at the moment; try again soon",
            )
            .with(RETRY_AFTER, "1"),
        }
    }
}

impl Refusal {
    pub fn of(status: StatusCode, why: impl std::fmt::Display) -> Refusal {
        RpcError::refused(status, why).into()
    }

    pub fn with(mut self, name: HeaderName, value: &'static str) -> Refusal {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// Of this message.
    pub fn about(mut self, about: &About) -> Refusal {
        self.id.clone_from(&about.id);
        #[cfg(feature = "wire-log")]
        {
            self.about = Some(about.clone());
        }
        self
    }

    /// Of a client that can't be known. An error of the server's own has an HTTP status that says so only where no
    /// JSON-RPC response carries it, which official clients take on 200 alone.
    pub fn of_client(refusal: legacy::Refusal, about: &About) -> Refusal {
        match refusal {
            // Only a DELETE asks for sessions to be kept at all.
            legacy::Refusal::Session(SessionRefusal::None) => SessionRefusal::Unknown.into(),
            legacy::Refusal::Session(SessionRefusal::Unavailable) if about.id.is_some() => {
                legacy::session_unavailable().into()
            }
            legacy::Refusal::Session(refusal) => refusal.into(),
            legacy::Refusal::Error(error) => Refusal::failed(error, about.id.is_some()),
        }
        .about(about)
    }

    /// The server failed.
    pub fn failed(mut error: RpcError, answers: bool) -> Refusal {
        if !answers {
            error.http_status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        error.into()
    }

    pub fn into_response(self) -> Response {
        let message = self.error.to_message(self.id.as_ref());
        #[cfg(feature = "wire-log")]
        {
            let about = self.about.as_ref();
            crate::wire_log::server(
                about.map(|a| a.revision),
                about.and_then(|a| a.method.as_deref()),
                &message,
            );
        }
        let mut response = plain(message, self.error.http_status);
        response.headers_mut().extend(self.headers);
        response
    }
}
