//! Per-request metadata (spec: basic, "`_meta`"): the fields this protocol defines, and raw access to all others.
use std::borrow::Cow;

use crate::constants::{SUPPORTED_VERSIONS, meta};
use crate::error::RpcError;
use crate::json::{Raw, RawObject};
use crate::message::Request;
use crate::revision::{Eras, Revision};

/// Severity of a log message, lowest first (RFC 5424; spec: logging).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    const ALL: [(LogLevel, &'static str); 8] = [
        (LogLevel::Debug, "debug"),
        (LogLevel::Info, "info"),
        (LogLevel::Notice, "notice"),
        (LogLevel::Warning, "warning"),
        (LogLevel::Error, "error"),
        (LogLevel::Critical, "critical"),
        (LogLevel::Alert, "alert"),
        (LogLevel::Emergency, "emergency"),
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The level of that name.
    pub fn parse(name: &str) -> Option<LogLevel> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(level, _)| *level)
    }
}

/// The checked `_meta` of a request. What the client says about itself is a claim, not an identity.
#[derive(Debug, Clone)]
pub struct RequestMeta {
    raw: RawObject,
    /// In the legacy era, where it isn't part of `raw`.
    revision: Option<Revision>,
    client_info: Option<Raw>,
    client_capabilities: Raw,
    progress_token: Option<Raw>,
    log_level: Option<LogLevel>,
}

impl RequestMeta {
    /// Takes it out of the request; reads and checks the fields the protocol defines.
    ///
    /// # Errors
    /// -32602 with 400 if a required field is missing or a known one has the wrong type; the message names the
    /// revisions served, since it may be all that a client of another era shows.
    pub fn of(request: &mut Request, eras: Eras) -> Result<RequestMeta, RpcError> {
        let refuse = |why: String| {
            RpcError::malformed(format!("{why} (this server speaks {})", eras.served()))
                .with_data(serde_json::json!({ "supported": SUPPORTED_VERSIONS }))
        };
        let raw = request
            .meta
            .take()
            .ok_or_else(|| refuse(format!("params._meta with {} is required", meta::PROTOCOL_VERSION)))?;
        if raw.string(meta::PROTOCOL_VERSION).is_none() {
            return Err(refuse(format!("_meta needs {} as a string", meta::PROTOCOL_VERSION)));
        }
        let client_capabilities = raw
            .get(meta::CLIENT_CAPABILITIES)
            .filter(Raw::is_object)
            .ok_or_else(|| refuse(format!("_meta needs {} as an object", meta::CLIENT_CAPABILITIES)))?;
        let client_info = raw.get(meta::CLIENT_INFO);
        if client_info.as_ref().is_some_and(|info| !info.is_object()) {
            return Err(refuse(format!("{} must be an object", meta::CLIENT_INFO)));
        }
        let progress_token = raw.get(meta::PROGRESS_TOKEN);
        if progress_token.as_ref().is_some_and(|token| !token.is_string() && !token.is_integer()) {
            return Err(refuse(format!("{} must be a string or an integer", meta::PROGRESS_TOKEN)));
        }
        let log_level = match raw.get(meta::LOG_LEVEL) {
            None => None,
            Some(level) => Some(
                level
                    .as_string()
                    .and_then(|name| LogLevel::parse(&name))
                    .ok_or_else(|| refuse(format!("{} is not a known log level", meta::LOG_LEVEL)))?,
            ),
        };
        Ok(RequestMeta { raw, revision: None, client_info, client_capabilities, progress_token, log_level })
    }

    /// Of a request of the legacy era: what the handshake said of the client, and the request's own progress token.
    ///
    /// # Errors
    /// -32602 if `_meta` isn't an object or the token has the wrong type.
    pub fn legacy(
        request: &Request,
        revision: Revision,
        capabilities: Raw,
        info: Option<Raw>,
        log_level: Option<LogLevel>,
    ) -> Result<RequestMeta, RpcError> {
        let raw = match &request.meta {
            Some(raw) => raw.clone(),
            None if request.params.as_ref().is_some_and(|p| p.text("_meta").is_some_and(|m| m != "null")) => {
                return Err(RpcError::malformed("_meta must be an object"));
            }
            None => RawObject::empty(),
        };
        let progress_token = raw.get(meta::PROGRESS_TOKEN);
        if progress_token.as_ref().is_some_and(|token| !token.is_string() && !token.is_integer()) {
            let why = format!("{} must be a string or an integer", meta::PROGRESS_TOKEN);
            return Err(RpcError::malformed(why));
        }
        Ok(RequestMeta {
            raw,
            revision: Some(revision),
            client_info: info,
            client_capabilities: capabilities,
            progress_token,
            log_level,
        })
    }

    /// The revision the request is written in.
    pub fn protocol_version(&self) -> Cow<'_, str> {
        match self.revision {
            Some(revision) => Cow::Borrowed(revision.as_str()),
            None => self.raw.string(meta::PROTOCOL_VERSION).unwrap_or_default(),
        }
    }

    /// `Implementation` of the client, for display and logs only.
    pub fn client_info(&self) -> Option<&Raw> {
        self.client_info.as_ref()
    }

    /// `ClientCapabilities` as sent.
    pub fn client_capabilities(&self) -> &Raw {
        &self.client_capabilities
    }

    /// Whether the client declared a capability, such as `elicitation`.
    pub fn has(&self, capability: &str) -> bool {
        self.client_capabilities.object().is_some_and(|all| all.get(capability).is_some_and(|c| !c.is_null()))
    }

    /// The client's settings of an extension, if it declared it.
    pub fn extension(&self, id: &str) -> Option<Raw> {
        self.client_capabilities.object()?.get("extensions")?.object()?.get(id).filter(Raw::is_object)
    }

    /// Asks for progress notifications: a string or an integer.
    pub fn progress_token(&self) -> Option<&Raw> {
        self.progress_token.as_ref()
    }

    /// Lowest level of log messages wanted; none are sent without it.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    /// Any other member, such as `dev.counterfoil/idempotency-key`.
    pub fn get(&self, key: &str) -> Option<Raw> {
        self.raw.get(key)
    }

    /// The whole `_meta`.
    pub fn raw(&self) -> &RawObject {
        &self.raw
    }
}
