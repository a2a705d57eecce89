//! A GraphQL query in place of a GET: what goes out, and which answers say something.
//!
//! A query only reads, whatever it is sent with. Its answer counts as a page if it has data and no errors, and says of further
//! pages whether there are any: a list that was cut short looks like any other. An entry that lacks what was selected was not
//! read, whatever became of it: a member that is null or a list that is empty is there, one that is absent is not.

use super::walk::walk;
use crate::judge::{Answer, graphql};
use crate::template::Spliced;
use ledger::EffectKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A document with its variables, filled in but for the effect key and the cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Query {
    pub document: String,
    /// Names, and values as JSON.
    pub variables: Vec<(String, Spliced)>,
}

impl Query {
    /// A request's body; with the variable that takes the cursor of the page before.
    pub(super) fn body(&self, key: &EffectKey, cursor: Option<(&str, &str)>) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let own = self.variables.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.with(key)));
        let cursor = cursor.map(|(name, at)| format!("{}:{}", quoted(name), quoted(at)));
        let variables: Vec<String> = own.chain(cursor).collect();
        format!("{{\"query\":{},\"variables\":{{{}}}}}", quoted(&self.document), variables.join(","))
    }
}

/// Whether there are further pages.
///
/// # Errors
/// The answer says nothing, with the reason.
pub(super) fn more(a: &Answer, all: &RawValue, at: &str) -> Result<bool, String> {
    if graphql::fails(a) {
        return Err("the look-up's query was answered with errors, or without data".into());
    }
    match walk(all, at).map(RawValue::get) {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err(format!("the look-up's answer does not say at {at:?} whether there are further pages")),
    }
}

/// Whether an entry says what stands at this place, be it that nothing does.
pub(super) fn says(entry: &Value, at: &str) -> bool {
    let mut here = entry;
    for part in at.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let below = match here {
            Value::Object(members) => members.get(&part),
            // Behind the end of a list there is nothing.
            Value::Array(items) => match part.parse::<usize>() {
                Ok(index) if index >= items.len() => return true,
                Ok(index) => items.get(index),
                Err(_) => None,
            },
            // Nor in a member that is null; an entry that is null could not be read.
            Value::Null => return !std::ptr::eq(here, entry),
            _ => None,
        };
        match below {
            Some(below) => here = below,
            None => return false,
        }
    }
    !entry.is_null()
}
