//! Which capabilities of a client a request needs, and whether they were declared (spec: client/elicitation,
//! client/sampling, client/roots, each "Capabilities"; basic/patterns/mrtr, "Server Requirements").
use serde_json::{Map, Value, json};

use super::{Ask, InputRequest};
use crate::error::RpcError;
use crate::json::{Raw, RawObject};
use crate::revision::Revision;

/// The modes of elicitation came with 2025-11-25, and so did the members of `sampling`.
fn has_members(revision: Revision) -> bool {
    revision >= Revision::V2025_11_25
}

/// What a request needs, in the shape of `ClientCapabilities`.
pub fn needs(request: &InputRequest, revision: Revision) -> Value {
    let detailed = has_members(revision);
    match request.ask() {
        Ask::Form { .. } if detailed => json!({ "elicitation": { "form": {} } }),
        Ask::Form { .. } => json!({ "elicitation": {} }),
        Ask::Page { .. } => json!({ "elicitation": { "url": {} } }),
        Ask::Sampling(sampling) => {
            let mut inner = Map::new();
            if sampling.uses_tools() {
                inner.insert("tools".into(), json!({}));
            }
            if sampling.includes_context() && detailed {
                inner.insert("context".into(), json!({}));
            }
            json!({ "sampling": inner })
        }
        Ask::Roots => json!({ "roots": {} }),
    }
}

/// Whether a client that declared `declared` (its `ClientCapabilities`) may be asked all of these.
///
/// # Errors
/// -32021 with everything that they need together in `data.requiredCapabilities`.
pub fn check<'a>(
    requests: impl IntoIterator<Item = &'a InputRequest>,
    declared: &Raw,
    revision: Revision,
) -> Result<(), RpcError> {
    let declared = declared.object().unwrap_or_else(RawObject::empty);
    let mut all = Map::new();
    let mut missing = false;
    for request in requests {
        let Value::Object(need) = needs(request, revision) else { continue };
        missing |= !covers(&declared, &need, revision);
        for (name, members) in need {
            let known = all.entry(name).or_insert_with(|| json!({}));
            if let (Value::Object(known), Value::Object(members)) = (known, members) {
                known.extend(members);
            }
        }
    }
    if missing { Err(RpcError::missing_capability(Value::Object(all))) } else { Ok(()) }
}

fn covers(declared: &RawObject, need: &Map<String, Value>, revision: Revision) -> bool {
    need.iter().all(|(name, members)| {
        let Some(have) = declared.get(name).and_then(|have| have.object()) else { return false };
        let has = |member: &str| have.get(member).is_some_and(|settings| settings.is_object());
        // An empty object means forms alone.
        let implied = |member: &str| {
            name == "elicitation" && member == "form" && (have.is_empty() || !has_members(revision))
        };
        members.as_object().is_none_or(|all| all.keys().all(|member| has(member) || implied(member)))
    })
}
