//! Requests in the words of earlier revisions, which know fewer of them.
use serde_json::{Value, json};

use super::{Ask, InputRequest};
use crate::json::Raw;
use crate::revision::Revision;

/// A revision has no words for a request, whatever its client declared. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a client of revision {revision} can't be asked this: {why}")]
pub struct Unspoken {
    /// The revision.
    pub revision: Revision,
    /// What it lacks.
    pub why: String,
}

impl InputRequest {
    /// The `params` of the JSON-RPC request that asks it in a legacy revision; `None` for `roots/list`. `id`: that
    /// request's id, which is unique, and so names a page too (`elicitationId` of 2025-11-25).
    ///
    /// # Errors
    /// [`Unspoken`].
    pub fn legacy_params(&self, revision: Revision, id: &str) -> Result<Option<Raw>, Unspoken> {
        debug_assert!(revision.is_legacy());
        let unspoken = |why: String| Err(Unspoken { revision, why });
        let object = |value: Value| Ok(Some(Raw::trusted(value.to_string())));
        match self.ask() {
            Ask::Form { .. } | Ask::Page { .. } if revision < Revision::V2025_06_18 => {
                unspoken("it has no elicitation".into())
            }
            Ask::Form { message, form } if revision < Revision::V2025_11_25 => {
                match form.to_value_2025_06_18() {
                    Ok(schema) => object(json!({ "message": message, "requestedSchema": schema })),
                    Err(name) => {
                        let name = super::form::short(name);
                        unspoken(format!("{name} takes several values, which its forms can't"))
                    }
                }
            }
            Ask::Page { .. } if revision < Revision::V2025_11_25 => {
                unspoken("it has no elicitation by a page".into())
            }
            Ask::Page { message, url } => {
                object(json!({ "mode": "url", "message": message, "elicitationId": id, "url": url }))
            }
            Ask::Sampling(sampling) if revision < Revision::V2025_11_25 => {
                if sampling.uses_tools() {
                    return unspoken("it has no tools in sampling".into());
                }
                match sampling.with_single_blocks() {
                    Some(params) => Ok(Some(params)),
                    None => unspoken("it has one block of content a message".into()),
                }
            }
            Ask::Form { .. } | Ask::Sampling(_) | Ask::Roots => Ok(self.params()),
        }
    }
}
