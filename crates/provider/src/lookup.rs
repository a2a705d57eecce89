//! Asking a provider about an effect: the question as an intent keeps it, and what the answer means.
//!
//! *Not found* makes a second send possible, so nothing but a whole, well-formed list without a matching object
//! and without further pages counts as that.

use crate::encode::percent;
use crate::judge::{Answer, plain};
use crate::receipt::Receipt;
use crate::template::Spliced;
use ledger::{EffectKey, Looked};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A question with everything but the effect key filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LookupPlan {
    pub url: Spliced,
    /// JSON pointer to the list; `None`: the answer is the object itself, and 404 means that there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// What must equal the key or marker for an object to be ours.
    pub ours: Vec<(String, Spliced)>,
    /// What must agree besides in an object that is ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<(String, Spliced)>,
    /// JSON pointer to whatever tells of further pages.
    pub more: String,
    /// JSON pointer to the next page's cursor, and the query parameter that takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<(String, String)>,
}

/// How an existing object is fetched after a conflict that named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConflictPlan {
    pub before: Spliced,
    pub after: String,
    /// JSON pointer to what must equal the effect key in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prove: Option<String>,
}

fn unknown(why: impl Into<String>) -> Looked {
    Looked::Unknown { why: why.into() }
}

impl LookupPlan {
    /// Where the second page is, if the first one is sound, has nothing of the effect, and names another. One page
    /// more and no further: a question that needs many is too wide.
    pub(crate) fn onward(&self, key: &EffectKey, a: &Answer) -> Option<String> {
        let (at, query) = self.next.as_ref()?;
        let items = self.items.as_ref()?;
        if a.status != 200 {
            return None;
        }
        let all: Value = serde_json::from_slice(&a.body).ok()?;
        let ours = |item: &Value| {
            self.ours.iter().all(|(pointer, want)| {
                item.pointer(pointer).and_then(plain).is_some_and(|have| have == want.with(key))
            })
        };
        if all.pointer(items)?.as_array()?.iter().any(ours) {
            return None;
        }
        let cursor = all.pointer(at).and_then(plain)?;
        let url = self.url.with(key);
        let join = if url.contains('?') { '&' } else { '?' };
        Some(format!("{url}{join}{}={}", percent(query), percent(&cursor)))
    }

    /// What an answer to the question says.
    pub(crate) fn evaluate(&self, key: &EffectKey, a: &Answer) -> Looked {
        if self.items.is_none() && a.status == 404 {
            return Looked::NotFound;
        }
        if a.status != 200 {
            return unknown(format!("the look-up was answered {}", a.status));
        }
        let Ok(all) = serde_json::from_slice::<&RawValue>(a.body.trim_ascii()) else {
            return unknown("the look-up's answer is not JSON");
        };
        let items = match &self.items {
            None => vec![all],
            Some(pointer) => match walk(all, pointer) {
                Some(list) if list.get().starts_with('[') => {
                    match serde_json::from_str::<Vec<&RawValue>>(list.get()) {
                        Ok(items) => items,
                        Err(_) => return unknown("the look-up's list can't be read"),
                    }
                }
                _ => return unknown(format!("the look-up's answer has no list at {pointer:?}")),
            },
        };
        let mut found: Vec<&RawValue> = Vec::new();
        for item in items {
            let Ok(value) = serde_json::from_str::<Value>(item.get()) else {
                return unknown("an object in the look-up's answer can't be read");
            };
            let agrees = |(pointer, want): &(String, Spliced)| {
                value.pointer(pointer).and_then(plain).is_some_and(|have| have == want.with(key))
            };
            if !self.ours.iter().all(agrees) {
                continue;
            }
            if !self.also.iter().all(agrees) {
                return unknown("an object bears this effect's key, but differs from what was sent");
            }
            found.push(item);
        }
        let receipt = |item: &RawValue| {
            Receipt::new(200, a.header("content-type"), item.get().as_bytes())
                .noted("Found by a look-up.")
                .keep()
        };
        let more = walk(all, &self.more).is_some_and(|m| !matches!(m.get(), "false" | "null" | "0" | "\"\""));
        match found.as_slice() {
            [] if more => {
                unknown("the look-up has further pages, so nothing found says nothing; narrow its query")
            }
            // The answer is one object, and it is another's.
            [] if self.items.is_none() => {
                unknown("the look-up led to an object that does not bear this effect's key")
            }
            [] => Looked::NotFound,
            [one] => Looked::Found(receipt(one)),
            [first, ..] => Looked::Several(receipt(first)),
        }
    }
}

impl ConflictPlan {
    /// Whether a fetched object is the effect's. `None`: it can't be told.
    pub(crate) fn proves(&self, key: &EffectKey, body: &[u8]) -> Option<bool> {
        let value: Value = serde_json::from_slice(body).ok()?;
        match &self.prove {
            None => Some(true),
            Some(pointer) => value.pointer(pointer).and_then(plain).map(|have| have == key.as_str()),
        }
    }
}

/// RFC 6901 on raw JSON, so that what is found keeps its bytes.
fn walk<'a>(raw: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    let mut at = raw;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        at = if at.get().starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(at.get()).ok()?;
            *items.get(part.parse::<usize>().ok()?)?
        } else {
            // A name needs no borrowing, so escapes in it do no harm.
            let fields: Vec<(String, &RawValue)> = serde_json::from_str::<Fields>(at.get()).ok()?.0;
            fields.into_iter().find(|(n, _)| *n == part)?.1
        };
    }
    Some(at)
}

struct Fields<'a>(Vec<(String, &'a RawValue)>);
impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> serde::de::Visitor<'de> for V<'a> {
            type Value = Fields<'a>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut m: A) -> Result<Fields<'a>, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = m.next_entry()? {
                    all.push(pair);
                }
                Ok(Fields(all))
            }
        }
        d.deserialize_map(V(std::marker::PhantomData))
    }
}
