//! What a tool needs of its client, and whether a client declared it.

use mcp::error::RpcError;
use mcp::json::{Raw, RawObject};
use serde_json::{Map, Value};

/// Capabilities in the shape of `ClientCapabilities`.
#[derive(Clone, Debug)]
pub(crate) struct Requires {
    members: Map<String, Value>,
    /// It needs roots, which are deprecated.
    pub roots: bool,
    /// It needs sampling, which is deprecated.
    pub sampling: bool,
}

impl Requires {
    /// `None` if it is no object, or has something else than an object for a capability.
    pub fn read(raw: &Raw) -> Option<Requires> {
        let Ok(Value::Object(members)) = raw.read::<Value>() else { return None };
        if members.values().any(|v| !v.is_object()) {
            return None;
        }
        let has = |name: &str| members.contains_key(name);
        Some(Requires { roots: has("roots"), sampling: has("sampling"), members })
    }

    /// Whether the client declared all of it.
    ///
    /// # Errors
    /// -32021 with everything that is needed. Nothing ran.
    pub fn check(&self, declared: &Raw) -> Result<(), RpcError> {
        let declared = declared.object().unwrap_or_else(RawObject::empty);
        if covers(&declared, &self.members, true) {
            return Ok(());
        }
        Err(RpcError::missing_capability(Value::Object(self.members.clone())))
    }
}

fn covers(declared: &RawObject, needed: &Map<String, Value>, top: bool) -> bool {
    needed.iter().all(|(name, need)| {
        let Some(have) = declared.get(name).filter(|h| !h.is_null()) else { return false };
        let Value::Object(need) = need else { return true };
        let Some(have) = have.object() else { return false };
        // Spec: client/elicitation, "Capabilities": `{}` means form mode.
        let form_only = top && name == "elicitation" && have.is_empty();
        (form_only && need.keys().all(|mode| mode == "form")) || covers(&have, need, false)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Requires;
    use mcp::json::{Limits, Raw};

    fn raw(text: &str) -> Raw {
        Raw::parse(text.to_owned(), &Limits::default()).unwrap()
    }

    #[test]
    fn every_member_must_be_declared() {
        for (needs, declared, ok) in [
            (r#"{"sampling":{}}"#, r#"{"sampling":{}}"#, true),
            (r#"{"sampling":{}}"#, r#"{"sampling":{"tools":{}}}"#, true),
            (r#"{"sampling":{}}"#, "{}", false),
            (r#"{"sampling":{}}"#, r#"{"sampling":null}"#, false),
            (r#"{"sampling":{}}"#, r#"{"sampling":true}"#, false),
            (r#"{"sampling":{"tools":{}}}"#, r#"{"sampling":{}}"#, false),
            (r#"{"sampling":{},"roots":{}}"#, r#"{"sampling":{}}"#, false),
            (r#"{"elicitation":{"form":{}}}"#, r#"{"elicitation":{}}"#, true),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{}}"#, false),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{"form":{},"url":{}}}"#, true),
            (r#"{"extensions":{"io.example/x":{}}}"#, r#"{"extensions":{"io.example/x":{"a":1}}}"#, true),
            (r#"{"extensions":{"io.example/x":{}}}"#, r#"{"extensions":{}}"#, false),
        ] {
            let checked = Requires::read(&raw(needs)).unwrap().check(&raw(declared));
            assert_eq!(checked.is_ok(), ok, "{needs} {declared}");
            if let Err(e) = checked {
                assert_eq!(e.code, -32021);
                let told = e.data.unwrap()["requiredCapabilities"].clone();
                assert_eq!(told, raw(needs).read::<serde_json::Value>().unwrap());
            }
        }
        for bad in ["[]", "1", r#"{"sampling":true}"#] {
            assert!(Requires::read(&raw(bad)).is_none(), "{bad}");
        }
    }
}
