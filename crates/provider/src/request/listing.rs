//! Asking a provider what it has of ours, without a key in hand: a look-up's list, with everything left out that names
//! a key or an argument. For a ledger that was restored, and doesn't know what was done since.
//!
//! An effect key is recognised by its shape, which hardly anything else has. Whose it is can't be told: a key says
//! nothing about the ledger that it comes from.

use super::{HttpIntent, VERSION};
use crate::encode::{Lists, Pairs, percent};
use crate::judge::{Answer, plain};
use crate::method::{Lookup, Method};
use crate::template::{Piece, Spliced, Template};
use serde_json::Value;

/// A question for all objects that a look-up could find.
#[derive(Clone, Debug)]
pub struct Listing {
    pub(crate) http: HttpIntent,
    items: String,
    /// JSON pointer to the effect key in an item.
    key: String,
    more: String,
    next: Option<(String, String)>,
}

/// An object that bears an effect key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borne {
    /// The key.
    pub key: String,
    /// The provider's name for the object (its member `id`), if it has one.
    pub id: Option<String>,
}

/// What a provider listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Objects that bear effect keys, in the provider's order.
    pub borne: Vec<Borne>,
    /// All that were listed.
    pub objects: usize,
    /// There are no further pages.
    pub whole: bool,
}

/// Nothing of an argument or key in it.
fn fixed(template: &Template) -> Option<String> {
    let pieces = template.0.iter().map(|piece| match piece {
        Piece::Text(t) => Some(t.as_str()),
        Piece::Key | Piece::Arg(_) => None,
    });
    pieces.collect()
}

/// The shape of an effect key: a UUID of version 8 (RFC 9562).
fn is_effect_key(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() == 36
        && b[14] == b'8'
        && matches!(b[19], b'8' | b'9' | b'a' | b'b')
        && b.iter().enumerate().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => *c == b'-',
            _ => matches!(c, b'0'..=b'9' | b'a'..=b'f'),
        })
}

impl Method {
    /// The question for this method's objects.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub fn listing(&self) -> Result<Listing, &'static str> {
        let look = self.lookup.as_ref().filter(|_| !self.lookup_needs_marker());
        let look = look.ok_or("its manifest describes no look-up")?;
        let items = look.items.clone().ok_or("its look-up asks for one object, and lists none")?;
        let path = fixed(&look.path).ok_or("its look-up's path names an argument, so there is no list of all")?;
        let key = key_pointer(look).ok_or("its look-up compares no field with the key alone")?;
        let mut url = format!("{}{path}", self.home.base);
        let mut query = Pairs::new(Lists::Repeat);
        for (name, template) in &look.query {
            // A parameter with the key narrows to one object, one with an argument to those of a call.
            if let Some(value) = fixed(template) {
                query.text(name, &value);
            }
        }
        if !query.is_empty() {
            url.push('?');
            url.push_str(&query.out.shown());
        }
        let headers = self.home.headers.iter().chain(&self.headers);
        let http = HttpIntent {
            v: VERSION,
            method: "GET".into(),
            url: Spliced::text(url),
            headers: headers.map(|(n, v)| (n.clone(), Spliced::text(v))).collect(),
            body: None,
            account: self.account().to_owned(),
            mode: self.home.mode.as_str().to_owned(),
            base: None,
            credential: None,
            scope: None,
            content_type: None,
            cap: self.max_response,
            policy: self.policy.clone(),
            lookup: None,
            conflict: None,
        };
        Ok(Listing { http, items, key, more: look.more.clone(), next: look.next.clone() })
    }
}

fn key_pointer(look: &Lookup) -> Option<String> {
    let whole = |t: &Template| matches!(t.0.as_slice(), [Piece::Key]);
    look.matches.iter().find(|(_, t)| whole(t)).map(|(pointer, _)| pointer.clone())
}

impl Listing {
    /// The first page.
    pub(crate) fn first(&self) -> String {
        self.http.url.shown()
    }

    /// Takes what a page says, and gives the next page, if it names one.
    ///
    /// # Errors
    /// Why it says nothing.
    pub(crate) fn take(&self, a: &Answer, into: &mut Listed) -> Result<Option<String>, String> {
        if a.status != 200 {
            return Err(format!("the provider answered {}", a.status));
        }
        let all: Value =
            serde_json::from_slice(&a.body).map_err(|_| "the provider's answer is not JSON".to_owned())?;
        let items = all.pointer(&self.items).and_then(Value::as_array);
        let items = items.ok_or_else(|| format!("the provider's answer has no list at {:?}", self.items))?;
        into.objects += items.len();
        for item in items {
            if let Some(key) = item.pointer(&self.key).and_then(Value::as_str).filter(|k| is_effect_key(k)) {
                into.borne.push(Borne { key: key.to_owned(), id: item.get("id").and_then(plain) });
            }
        }
        let more = all.pointer(&self.more).is_some_and(|m| {
            !matches!(m, Value::Null | Value::Bool(false)) && m.as_i64() != Some(0) && m.as_str() != Some("")
        });
        into.whole = !more;
        let Some((at, query)) = self.next.as_ref().filter(|_| more) else { return Ok(None) };
        let Some(cursor) = all.pointer(at).and_then(plain) else { return Ok(None) };
        let url = self.first();
        let join = if url.contains('?') { '&' } else { '?' };
        Ok(Some(format!("{url}{join}{}={}", percent(query), percent(&cursor))))
    }
}

#[cfg(test)]
mod tests {
    use super::is_effect_key;

    #[test]
    fn an_effect_key_has_a_shape() {
        assert!(is_effect_key("0123abcd-4567-8abc-9def-0123456789ab"));
        for other in [
            "",
            "0123abcd-4567-4abc-9def-0123456789ab",
            "0123abcd-4567-8abc-cdef-0123456789ab",
            "0123ABCD-4567-8abc-9def-0123456789ab",
            "0123abcd-4567-8abc-9def-0123456789abc",
            "0123abcd/4567-8abc-9def-0123456789ab",
        ] {
            assert!(!is_effect_key(other), "{other}");
        }
    }
}
