//! What is said of the parts of a form, checked.

use super::parts::{Wrong, wrong};
use crate::content::PartHeaders;
use crate::parse::Table;
use crate::raw::BodyKind;
use http::{HeaderName, HeaderValue};

/// What the parts of a form's fields are.
pub(super) fn part_types(given: Table<String>, body: BodyKind) -> Result<Vec<(String, String)>, Wrong> {
    if body != BodyKind::Multipart && !given.0.is_empty() {
        return wrong("part_types", "only a form of parts has types of parts: body = \"multipart\"");
    }
    if let Some((field, kind)) = given.0.iter().find(|(_, kind)| !crate::content::is_media_type(kind)) {
        return wrong("part_types", format!("`{field}`: {kind:?} is not a media type like \"image/png\""));
    }
    Ok(given.0)
}

/// Headers of a part that follow from what it is.
const OWN: [&str; 6] = [
    "content-disposition",
    "content-type",
    "content-length",
    "content-encoding",
    "content-transfer-encoding",
    "transfer-encoding",
];

/// Whether a part can have this header, beside those that follow from what it is.
#[must_use]
pub fn takes_part_header(name: &str, value: &str) -> bool {
    HeaderName::try_from(name).is_ok_and(|name| !OWN.contains(&name.as_str()))
        && HeaderValue::from_str(value).is_ok()
        && value.is_ascii()
        && value.trim() == value
        && !value.contains("${")
}

/// What stands in the heads of parts: nothing that they have of their own, and no secrets.
pub(super) fn part_headers(given: Table<Table<String>>, body: BodyKind) -> Result<PartHeaders, Wrong> {
    if body != BodyKind::Multipart && !given.0.is_empty() {
        return wrong("part_headers", "only a form of parts has heads of parts: body = \"multipart\"");
    }
    for (field, all) in &given.0 {
        if let Some((name, _)) = all.0.iter().find(|(name, value)| !takes_part_header(name, value)) {
            return wrong(
                "part_headers",
                format!(
                    "`{field}`: the header {name:?} can't stand there: its value is visible ASCII and no secret, and what a part \
                     is follows from `part_types` and its file"
                ),
            );
        }
    }
    Ok(given.0.into_iter().map(|(field, all)| (field, all.0)).collect())
}
