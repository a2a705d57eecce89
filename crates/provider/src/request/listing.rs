//! Asking a provider what it has of ours, without a key in hand: a look-up's list, with everything left out that names
//! a key or an argument. For a ledger that was restored, and doesn't know what was done since.
//!
//! An effect key is recognised by its shape, which hardly anything else has. Whose it is can't be told: a key says
//! nothing about the ledger that it comes from.

use super::HttpIntent;
use super::recorded::VERSION;
use crate::encode::{Lists, Pairs, percent};
use crate::judge::{Answer, plain};
use crate::lookup::{self, Absent, More, Next, Told};
use crate::method::{Lookup, Match, Method};
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
    undivided: bool,
    absent: Option<Absent>,
    next: Option<Next>,
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
    /// There are no further pages, as far as is known.
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
        if self.home.own.is_some() {
            return Err("each principal has a credential of its own, and none is asked under");
        }
        let look = self.lookup.as_ref().filter(|_| !self.lookup_needs_marker());
        let look = look.ok_or("its manifest describes no look-up")?;
        let items = look.items.clone().ok_or("its look-up asks for one object, and lists none")?;
        if look.graphql.is_some() {
            return Err("its look-up is a GraphQL query for one object, and lists none without a key");
        }
        let path =
            fixed(&look.path).ok_or("its look-up's path names an argument, so there is no list of all")?;
        if look.item.is_some() {
            return Err("its look-up's list only names objects");
        }
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
            content: None,
            account: self.account().to_owned(),
            mode: self.home.mode.as_str().to_owned(),
            base: Some(self.home.base.clone()),
            credential: None,
            principal: None,
            scope: None,
            content_type: None,
            cap: self.max_response,
            policy: self.policy.clone(),
            lookup: None,
            conflict: None,
        };
        let (more, next) = (look.more.clone(), look.next.clone());
        Ok(Listing { http, items, key, more, undivided: look.undivided, absent: look.absent, next })
    }
}

fn key_pointer(look: &Lookup) -> Option<String> {
    let whole = |m: &Match| matches!(m, Match::Equals(t) if matches!(t.0.as_slice(), [Piece::Key]));
    look.matches.iter().find(|(_, m)| whole(m)).map(|(pointer, _)| pointer.clone())
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
        let (at, next) = (self.more.as_str(), self.next.as_ref());
        let more = More { at, next, undivided: self.undivided, absent: self.absent };
        let told = more.of(a, &all, &self.items, items.len());
        for item in items {
            if let Some(key) = item.pointer(&self.key).and_then(Value::as_str).filter(|k| is_effect_key(k)) {
                into.borne.push(Borne { key: key.to_owned(), id: item.get("id").and_then(plain) });
            }
        }
        if let Some(Next::Link(rel)) = &self.next {
            let here = self.first();
            let next = lookup::link(a, rel).map(|to| lookup::beside(&here, &to)).transpose()?;
            into.whole = next.is_none() && told == Told::Whole;
            return Ok(next);
        }
        into.whole = told == Told::Whole;
        let next = self.next.as_ref().filter(|_| told != Told::Whole);
        let Some(Next::Cursor(at, query)) = next else { return Ok(None) };
        let Some(cursor) = all.pointer(at).and_then(plain) else { return Ok(None) };
        let url = self.first();
        let join = if url.contains('?') { '&' } else { '?' };
        Ok(Some(format!("{url}{join}{}={}", percent(query), percent(&cursor))))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Answer, Listed, is_effect_key};
    use crate::{Format, Integration, Mode};

    const KEYS: [&str; 2] = ["0123abcd-4567-8abc-9def-0123456789ab", "1123abcd-4567-8abc-9def-0123456789ab"];

    #[test]
    fn an_effect_key_has_a_shape() {
        assert!(is_effect_key(KEYS[0]));
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

    fn integration() -> Integration {
        let method = |name: &str, how: &str| {
            format!(
                "[methods.\"{name}\"]\nhttp = \"POST /v1/refunds\"\ndescription = \"d\"\neffect = \"mutating\"\n{how}\ninput = '{{\"type\":\"object\",\"properties\":{{\"order\":{{\"type\":\"string\"}}}}}}'\n"
            )
        };
        let look = |query: &str, more: &str| {
            format!(
                "recovery = \"lookup\"\nmarker = {{ field = \"marker\" }}\nlookup = {{ {query}match = {{ \"/marker\" = \"{{key}}\" }}, {more}visibility_lag = \"1s\", processing_bound = \"1s\" }}"
            )
        };
        let listed =
            "items = \"/data\", more = \"/has_more\", next = { at = \"/last\", query = \"after\" }, ";
        let text = [
            "name = \"shop\"\nbase_url = \"http://127.0.0.1:9\"\npreset = \"none\"\n".to_owned(),
            method(
                "a.listed",
                &look("query = { marker = \"{key}\", order = \"{args.order}\", limit = \"50\" }, ", listed),
            ),
            method("b.one", &look("http = \"GET /v1/refunds/by/{key}\", ", "")),
            method("c.none", "recovery = \"none\""),
            method("d.unsaid", &look("items = \"/data\", ", "")),
        ];
        Integration::parse("shop.toml", &text.join("\n"), Format::Toml, Mode::Sandbox).unwrap()
    }

    fn page(body: &str) -> Answer {
        Answer { status: 200, headers: http::HeaderMap::new(), body: body.to_owned().into() }
    }

    #[test]
    fn a_list_is_asked_for_without_key_and_arguments_and_followed() {
        let shop = integration();
        let of = |id: &str| shop.methods().iter().find(|m| m.canonical_id() == id).unwrap().listing();
        let listing = of("shop.a.listed").unwrap();
        assert_eq!(listing.first(), "http://127.0.0.1:9/v1/refunds?limit=50");
        let mut all = Listed::default();
        let first = format!(
            r#"{{"data":[{{"id":"r1","marker":"{}"}},{{"id":"r2","marker":"a person's"}},{{"id":"r3"}}],"has_more":true,"last":"r3"}}"#,
            KEYS[0]
        );
        let next = listing.take(&page(&first), &mut all).unwrap();
        assert_eq!(next.as_deref(), Some("http://127.0.0.1:9/v1/refunds?limit=50&after=r3"));
        assert!(!all.whole);
        let last = format!(r#"{{"data":[{{"marker":"{}"}}],"has_more":false}}"#, KEYS[1]);
        assert_eq!(listing.take(&page(&last), &mut all).unwrap(), None);
        let found: Vec<(&str, Option<&str>)> =
            all.borne.iter().map(|b| (b.key.as_str(), b.id.as_deref())).collect();
        assert_eq!(found, [(KEYS[0], Some("r1")), (KEYS[1], None)]);
        assert!(all.whole && all.objects == 4);
        // A list that does not say whether it goes on.
        let mut some = Listed::default();
        let unsaid = of("shop.d.unsaid").unwrap();
        assert_eq!(unsaid.take(&page(r#"{"data":[{"marker":"x"}]}"#), &mut some).unwrap(), None);
        assert!(!some.whole && some.objects == 1);
        for bad in ["no", "{}", r#"{"data":{}}"#] {
            assert!(listing.take(&page(bad), &mut all).is_err(), "{bad}");
        }
        let refused = Answer { status: 403, ..page("{}") };
        assert_eq!(listing.take(&refused, &mut all), Err("the provider answered 403".into()));
        assert!(of("shop.b.one").is_err_and(|why| why.contains("asks for one object")));
        assert!(of("shop.c.none").is_err_and(|why| why.contains("describes no look-up")));
    }
}
