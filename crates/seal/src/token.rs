//! One token: sealed with a key, opened with the same.
//!
//! `v4.local.` and base64 of nonce, ciphertext and tag, `.` and base64 of the footer `{"kid":"…"}`. The plain text is a
//! JSON object, as PASETO asks: `e`, its end in milliseconds of the ledger's time, and the payload: `v`, if it is JSON,
//! or `b`, base64 of its bytes.

use crate::error::{Reject, SealError};
use crate::key::{Key, KeyId};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ledger::Time;
use pasetors::token::{Local, UntrustedToken};
use pasetors::version4::{LocalToken, V4};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The longest token that is made or looked at, in bytes.
pub const MAX_TOKEN: usize = 16 << 10;
/// The longest payload that surely fits into a token, in bytes, whatever it is; JSON may be a third longer.
pub const MAX_PAYLOAD: usize = 9_000;

const HEADER: &str = LocalToken::HEADER;
const BEFORE: &[u8] = b"{\"kid\":\"";
const AFTER: &[u8] = b"\"}";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    e: i64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    v: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    b: Option<Cow<'a, str>>,
}

fn footer(id: KeyId) -> Vec<u8> {
    [BEFORE, id.as_str().as_bytes(), AFTER].concat()
}

/// Seals it under a key until `end`.
pub(crate) fn seal(key: &Key, payload: &[u8], assertion: &[u8], end: Time) -> Result<String, SealError> {
    if payload.len() > MAX_TOKEN {
        return Err(SealError::TooLarge);
    }
    // JSON keeps its bytes. Blanks around it would not be kept, and `null` would be nothing: such a text is bytes.
    let json = serde_json::from_slice::<&RawValue>(payload).ok();
    let json = json.filter(|raw| raw.get().len() == payload.len() && raw.get() != "null");
    let b = json.is_none().then(|| URL_SAFE_NO_PAD.encode(payload).into());
    let body = serde_json::to_vec(&Body { e: end.0, v: json, b });
    let body = body.map_err(|e| SealError::Unavailable(format!("the token could not be written ({e})")))?;
    let sealed = LocalToken::encrypt(key.paseto(), &body, Some(&footer(key.id())), Some(assertion));
    let token =
        sealed.map_err(|_| SealError::Unavailable("the operating system gives no random numbers".into()))?;
    if token.len() > MAX_TOKEN { Err(SealError::TooLarge) } else { Ok(token) }
}

/// A token whose form is right. Nothing of it is trusted yet.
pub(crate) struct Unproved {
    pub kid: KeyId,
    token: UntrustedToken<Local, V4>,
}

/// Takes a text apart: its length before all, then header, alphabet, and the one spelling that a footer has.
pub(crate) fn parse(text: &str) -> Result<Unproved, Reject> {
    if text.len() > MAX_TOKEN {
        return Err(Reject::TooLong);
    }
    let (body, foot) =
        text.strip_prefix(HEADER).and_then(|rest| rest.split_once('.')).ok_or(Reject::Malformed)?;
    if foot.len() > 64 || body.is_empty() {
        return Err(Reject::Malformed);
    }
    let foot = URL_SAFE_NO_PAD.decode(foot).map_err(|_| Reject::Malformed)?;
    let kid = foot.strip_prefix(BEFORE).and_then(|f| f.strip_suffix(AFTER)).and_then(KeyId::read);
    let kid = kid.ok_or(Reject::Malformed)?;
    // Refuses what is not base64, in its one spelling, or shorter than nonce and tag.
    let token = UntrustedToken::try_from(text).map_err(|_| Reject::Malformed)?;
    Ok(Unproved { kid, token })
}

impl Unproved {
    /// Proves and opens it.
    pub fn open(&self, key: &Key, assertion: &[u8], now: Time) -> Result<Vec<u8>, Reject> {
        let footer = footer(self.kid);
        let proved = LocalToken::decrypt(key.paseto(), &self.token, Some(&footer), Some(assertion))
            .map_err(|_| Reject::Forged)?;
        // What holders of the ring sealed; another form is none of ours.
        let body: Body<'_> = serde_json::from_str(proved.payload()).map_err(|_| Reject::Forged)?;
        if now.0 >= body.e {
            return Err(Reject::Expired);
        }
        match (body.v, body.b) {
            (Some(json), None) => Ok(json.get().as_bytes().to_vec()),
            (None, Some(bytes)) => URL_SAFE_NO_PAD.decode(bytes.as_bytes()).map_err(|_| Reject::Forged),
            _ => Err(Reject::Forged),
        }
    }
}
