//! A provider's answer as it is kept: small, readable, its JSON byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A provider's answer. Exactly one of `json`, `text` and `base64` holds its body, or none if it had none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The provider refused, whatever its status says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// How it came to be known, where that is not the plain answer to the send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// A body that is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<Box<RawValue>>,
    /// Another body that is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Any other body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

impl Receipt {
    /// Keeps an answer.
    #[must_use]
    pub fn new(status: u16, content_type: Option<&str>, body: &[u8]) -> Receipt {
        let mut receipt = Receipt {
            status,
            refused: false,
            content_type: content_type.map(str::to_owned),
            note: None,
            json: None,
            text: None,
            base64: None,
        };
        match std::str::from_utf8(body) {
            Ok("") => {}
            Ok(text) => match RawValue::from_string(text.trim().to_owned()) {
                Ok(raw) => receipt.json = Some(raw),
                Err(_) => receipt.text = Some(text.to_owned()),
            },
            Err(_) => receipt.base64 = Some(STANDARD.encode(body)),
        }
        receipt
    }
    /// The same, with a word on how it came to be known.
    #[must_use]
    pub fn noted(mut self, note: &str) -> Receipt {
        self.note = Some(note.to_owned());
        self
    }
    /// The same, as a refusal.
    #[must_use]
    pub fn refused(mut self) -> Receipt {
        self.refused = true;
        self
    }
    /// As the ledger keeps it.
    #[must_use]
    pub fn keep(&self) -> ledger::Receipt {
        // Only texts and numbers: this can't fail.
        ledger::Receipt(serde_json::to_vec(self).unwrap_or_default())
    }
}
