//! Fields of a body that the gateway fills: nothing else may stand there.

use super::document;
use super::parts::{Wrong, wrong};
use crate::graphql::Document;
use crate::method::{Marker, Unique};
use crate::policy::{Carrier, Keys};
use crate::raw::BodyKind;
use serde_json::Value;
use serde_json::value::RawValue;

/// What fills fields.
pub(super) struct Filling<'a> {
    pub keys: Option<&'a Keys>,
    pub unique: Option<&'a Unique>,
    pub marker: Option<&'a Marker>,
}

impl Filling<'_> {
    /// The fields, each with the manifest's word for what fills it.
    pub(super) fn fields(&self) -> Vec<(&'static str, &[String])> {
        let unique = self.unique.map(|u| ("unique", u.field.as_slice()));
        let marker = match self.marker {
            Some(Marker::Field(f) | Marker::Text(f, _)) => Some(("marker", f.as_slice())),
            _ => None,
        };
        let key = match self.keys {
            Some(Keys { carrier: Carrier::Body(f), .. }) => Some(("body", f.as_slice())),
            _ => None,
        };
        [unique, marker, key].into_iter().flatten().collect()
    }

    /// The arguments that the marker's text takes up: they go nowhere else, but for a document's variables.
    pub(super) fn taken_up(&self) -> Vec<String> {
        match self.marker {
            Some(Marker::Text(_, t)) => t.args().filter_map(|a| a.first().cloned()).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the body has room for them, beside its `fixed` fields, the argument that is the `whole` of it, and the others.
    pub(super) fn check(
        &self,
        body: BodyKind,
        fixed: &[(Vec<String>, Box<RawValue>)],
        whole: Option<&String>,
        document: Option<&Document>,
        input: &Value,
    ) -> Result<(), Wrong> {
        for (field, path) in self.fields() {
            let shown = path.join(".");
            if matches!(body, BodyKind::None | BodyKind::Mail) {
                let has =
                    if body == BodyKind::Mail { "a mail has no fields" } else { "the request has no body" };
                return wrong(field, format!("the field `{shown}` is to be filled, but {has}"));
            }
            if fixed.iter().any(|(fixed, _)| fixed == path) {
                return wrong("fields", format!("`{shown}` is filled with the effect key"));
            }
            if let Some(whole) = whole {
                return wrong(
                    field,
                    format!(
                        "the field `{shown}` is to be filled, but the argument `{whole}` is the whole body"
                    ),
                );
            }
            if let [argument] = document::argument(document, path)
                && input.pointer(&format!("/properties/{argument}")).is_some()
                && !(field == "marker" && self.taken_up().contains(argument))
            {
                return wrong(
                    "input",
                    format!("`{argument}` is filled by the gateway; take it out of `input`"),
                );
            }
        }
        Ok(())
    }
}
