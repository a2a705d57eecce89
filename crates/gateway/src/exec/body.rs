//! The body of `POST /api/v1/exec`, read into what can't be wrong.

use super::key::{Step, checked};
use crate::call::shorten;
use ledger::Key;
use mcp::json::{Limits, Raw, RawObject, quote};

/// The members that it may have.
pub(super) const MEMBERS: [&str; 6] = ["id", "arguments", "key", "operation", "step", "dryRun"];
/// The longest id of a method that is looked for, in bytes.
const MAX_ID: usize = 256;

/// What is asked.
#[derive(Debug)]
pub(super) struct Body {
    /// The method, by its id or its name on the wire.
    pub id: String,
    pub arguments: Option<RawObject>,
    pub key: Option<Key>,
    pub step: Option<Step>,
    pub dry_run: bool,
}

/// Reads it.
///
/// # Errors
/// What is wrong, for whoever wrote the program.
pub(super) fn read(bytes: bytes::Bytes, limits: &Limits) -> Result<Body, String> {
    let object =
        RawObject::parse(bytes, limits).map_err(|e| format!("the body is not a JSON object: {e}"))?;
    for (name, _) in object.iter() {
        if name == "principal" {
            return Err("principal: an execution is always the caller's own; leave it out".into());
        }
        if !MEMBERS.contains(&&*name) {
            let name = quote(&shorten(&name));
            return Err(format!("there is no member {name}; the members are {}", MEMBERS.join(", ")));
        }
    }
    let id = text(&object, "id")?.ok_or("id: the method's id is missing")?;
    if id.is_empty() || id.len() > MAX_ID {
        return Err(format!("id: a method's id has 1 to {MAX_ID} characters"));
    }
    let arguments = match given(&object, "arguments") {
        None => None,
        Some(raw) => Some(raw.object().ok_or("arguments: must be an object")?),
    };
    let key = text(&object, "key")?.map(|key| Key::new(&key)).transpose().map_err(|e| format!("key: {e}"))?;
    let step = match (name(&object, "operation")?, name(&object, "step")?) {
        (Some(operation), name) => Some(Step { operation, name }),
        (None, Some(_)) => return Err("step: a step belongs to an `operation`; give that too".into()),
        (None, None) => None,
    };
    let dry_run = match given(&object, "dryRun") {
        None => false,
        Some(raw) => raw.as_bool().ok_or("dryRun: must be true or false")?,
    };
    Ok(Body { id, arguments, key, step, dry_run })
}

/// A member that is there and not null.
fn given(object: &RawObject, member: &str) -> Option<Raw> {
    object.get(member).filter(|raw| !raw.is_null())
}

fn text(object: &RawObject, member: &str) -> Result<Option<String>, String> {
    match given(object, member) {
        None => Ok(None),
        Some(raw) => match raw.as_string() {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(format!("{member}: must be a string")),
        },
    }
}

fn name(object: &RawObject, member: &str) -> Result<Option<String>, String> {
    let Some(text) = text(object, member)? else { return Ok(None) };
    checked(&text).map_err(|why| format!("{member}: the name {why}"))?;
    Ok(Some(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Body, String> {
        read(text.to_owned().into(), &Limits::default())
    }

    #[test]
    fn bodies_are_read() {
        let body =
            of(r#"{"id":"a.b","arguments":{"n":1.10},"operation":"job-1","step":"x","key":null}"#).unwrap();
        assert_eq!(body.id, "a.b");
        assert_eq!(body.arguments.unwrap().as_str(), r#"{"n":1.10}"#);
        assert_eq!(body.step, Some(Step { operation: "job-1".into(), name: Some("x".into()) }));
        assert!(body.key.is_none() && !body.dry_run);
        assert!(of(r#"{"id":"a","dryRun":true}"#).unwrap().dry_run);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = "x".repeat(300);
        for (text, says) in [
            ("", "not a JSON object"),
            ("[]", "not a JSON object"),
            ("{", "not a JSON object"),
            (r#"{"id":"a","id":"b"}"#, "two members"),
            (r#"{}"#, "id is missing"),
            (r#"{"id":1}"#, "id: must be a string"),
            (r#"{"id":""}"#, "1 to 256"),
            (r#"{"id":"a","arguments":[]}"#, "arguments: must be an object"),
            (r#"{"id":"a","argument":{}}"#, "there is no member \"argument\""),
            (r#"{"id":"a","principal":"b"}"#, "caller's own"),
            (r#"{"id":"a","key":1}"#, "key: must be a string"),
            (r#"{"id":"a","key":""}"#, "key: the idempotency key is empty"),
            (r#"{"id":"a","key":"a b"}"#, "visible ASCII"),
            (r#"{"id":"a","key":"op_x"}"#, "operation ids"),
            (r#"{"id":"a","operation":""}"#, "operation: the name is empty"),
            (r#"{"id":"a","operation":"é"}"#, "operation: the name has a character"),
            (r#"{"id":"a","step":"s"}"#, "belongs to an `operation`"),
            (r#"{"id":"a","operation":"o","step":2}"#, "step: must be a string"),
            (r#"{"id":"a","dryRun":"yes"}"#, "dryRun: must be true or false"),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
        assert!(of(&format!(r#"{{"id":"{long}"}}"#)).is_err());
        assert!(of(&format!(r#"{{"id":"a","key":"{long}"}}"#)).unwrap_err().contains("at most 255"));
        assert!(of(&format!(r#"{{"id":"a","operation":"{long}"}}"#)).unwrap_err().contains("at most 255"));
        assert!(!of(&format!(r#"{{"{long}":1}}"#)).unwrap_err().contains(&long));
    }
}
