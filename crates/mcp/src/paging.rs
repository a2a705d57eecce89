//! Opaque cursors (spec: utilities/pagination). A cursor says after which entry of which list the next page begins,
//! by the entry's name, so that it stays good when the list changes. Deterministic, without state or secrets.
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::RpcError;
use crate::json::RawObject;

const MARK: &str = "c1";

/// The cursor for what follows the entry named `after` in the list `list` (such as `tools`).
pub fn encode(list: &str, after: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{MARK}\n{list}\n{after}"))
}

/// The entry name that a cursor of this list stands for.
///
/// # Errors
/// -32602 if the cursor isn't one of ours for this list.
pub fn decode(list: &str, cursor: &str) -> Result<String, RpcError> {
    URL_SAFE_NO_PAD
        .decode(cursor)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| {
            let after =
                text.strip_prefix(MARK)?.strip_prefix('\n')?.strip_prefix(list)?.strip_prefix('\n')?;
            Some(after.to_owned())
        })
        .ok_or_else(|| {
            RpcError::invalid_params("this cursor was not issued for this list; list again without a cursor")
        })
}

/// The entry after which the page asked for by `params.cursor` begins; `None` for the first page.
///
/// # Errors
/// -32602 if `cursor` isn't a string or isn't one of ours.
pub fn requested(list: &str, params: Option<&RawObject>) -> Result<Option<String>, RpcError> {
    match params.and_then(|p| p.get("cursor")) {
        None => Ok(None),
        Some(raw) => match raw.as_string() {
            Some(cursor) => decode(list, &cursor).map(Some),
            None => Err(RpcError::malformed("cursor must be a string")),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_cursor_is_stable_and_bound_to_its_list() {
        let cursor = encode("tools", "pay\nments");
        assert_eq!(cursor, encode("tools", "pay\nments"));
        assert_eq!(decode("tools", &cursor).unwrap(), "pay\nments");
        for (list, bad) in [("prompts", cursor.as_str()), ("tools", ""), ("tools", "!!"), ("tools", "MTox")] {
            assert_eq!(decode(list, bad).unwrap_err().code, -32602);
        }
    }
}
