//! Asking a provider about an effect: the question as an intent keeps it, and what the answers mean.
//!
//! *Not found* makes a second send possible, so nothing but whole, well-formed lists without a matching object
//! count as that, and whole is what is known to have no further pages; where only what is newer than the intent was asked for, the clocks must
//! agree too. An object that bears the effect's key and differs from what was sent may be a copy that somebody made, or
//! the effect after somebody changed it: it never counts as the receipt, and never as nothing.

mod graphql;
mod pages;
mod signs;
mod since;
mod walk;

pub(crate) use graphql::Query;
pub(crate) use pages::{Next, beside, link};
pub(crate) use signs::{Absent, More, Told};
pub(crate) use since::{DEFAULT_MARGIN, Since, SinceForm};

use crate::judge::{Answer, plain};
use crate::policy::{Policy, Word};
use crate::receipt::Receipt;
use crate::template::Spliced;
use ledger::{Asked, EffectKey, Looked};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use walk::walk;

/// Pages that are read where a manifest says how to get on and not how far.
pub(crate) const DEFAULT_PAGES: u8 = 2;
/// Objects that one look-up fetches at most.
pub(crate) const MAX_FETCHED: usize = 10;

/// A question with everything but the effect key filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LookupPlan {
    pub url: Spliced,
    /// A query that is sent there, in place of a GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphql: Option<Query>,
    /// JSON pointer to the list; `None`: the answer is the object itself, and 404 means that there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// What must equal the key or marker for an object to be ours.
    pub ours: Vec<(String, Spliced)>,
    /// What must agree besides in an object that is ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<(String, Spliced)>,
    /// What texts must hold for an object to be ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ours_within: Vec<(String, Spliced)>,
    /// What texts must hold besides in an object that is ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_within: Vec<(String, Spliced)>,
    /// JSON pointer to whatever tells of further pages.
    pub more: String,
    /// The list comes whole, by the operator's word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undivided: bool,
    /// What it means that what tells of them is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absent>,
    /// How the next page is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// Pages that are read at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u8>,
    /// Only what is newer than the intent is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// What an answer without a list says where there is nothing: JSON pointer and text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<(String, String)>,
    /// Each item only names its object, which is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Fetch>,
    /// That nothing is found proves nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absence_is_doubt: bool,
    /// What is asked for is the first answer, as the provider keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// Where a kept answer's status and body stand: JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub status: String,
    pub body: String,
}

impl Kept {
    fn status(&self, all: &RawValue) -> Option<u16> {
        let status: Value = serde_json::from_str(walk(all, &self.status)?.get()).ok()?;
        plain(&status)?.parse().ok()
    }

    /// The first answer was a definite refusal: nothing was done under the key, and nothing will be.
    fn refuses(&self, all: &RawValue, policy: &Policy) -> bool {
        self.status(all).is_some_and(|status| policy.definite.contains(&status))
    }

    /// The receipt of a kept success.
    fn receipt(&self, all: &RawValue) -> Result<Receipt, String> {
        match (self.status(all), walk(all, &self.body)) {
            (Some(status @ 200..300), Some(body)) => {
                Ok(Receipt::new(status, Some("application/json"), body.get().as_bytes()))
            }
            (Some(200..300) | None, _) => Err("the provider's kept answer can't be read".into()),
            // It broke: whoever looks there sees how.
            (Some(status), _) => Err(format!("the provider kept {status} as its first answer")),
        }
    }
}

/// How the object that an item names is fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetch {
    /// The URL around the item's name.
    pub before: Spliced,
    pub after: Spliced,
    /// JSON pointer to the name in an item.
    pub at: String,
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

/// Why nothing found says nothing, with the sign that says so.
fn further(sign: Option<&str>) -> String {
    let rest = "so nothing found says nothing; narrow its query";
    match sign {
        None => format!("the look-up has further pages, {rest}"),
        Some(sign) => format!(
            "the look-up has further pages by `{sign}` in its answer, {rest}, or say with `more` or `next` in the \
             manifest's `lookup` what tells of them"
        ),
    }
}

fn unknown(why: impl Into<String>) -> Looked {
    Looked::Unknown { why: why.into() }
}

/// What is asked: a GET of a URL, or with a body a POST there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub url: String,
    pub body: Option<String>,
}

impl Question {
    /// A GET.
    pub(crate) fn at(url: String) -> Question {
        Question { url, body: None }
    }
}

/// What one page says.
pub(crate) struct Page {
    pub items: Vec<Box<RawValue>>,
    /// What it says of further ones.
    told: Told,
    /// Where the next one is; or why it can't be asked for, which counts only if it has to be.
    pub next: Option<Result<Question, String>>,
}

/// What the pages said together.
#[derive(Default)]
pub(crate) struct Tally {
    /// Objects that are the effect's, as far as can be told.
    found: Vec<Receipt>,
    /// Objects that bear its key, and differ from what was sent.
    differing: usize,
    /// What the last page says of further ones.
    told: Option<Told>,
    /// The only object there is has another key.
    others: bool,
    /// Why what was not found may be there all the same.
    hidden: Option<&'static str>,
    fetched: usize,
}

impl Tally {
    /// One object more is to be fetched; `false`: those are too many.
    pub(crate) fn fetches(&mut self) -> bool {
        self.fetched += 1;
        self.fetched <= MAX_FETCHED
    }
}

impl LookupPlan {
    /// An earlier program would take objects for the effect's that are not, or miss it.
    pub(crate) fn is_new(&self) -> bool {
        let same = LookupPlan {
            url: self.url.clone(),
            items: self.items.clone(),
            ours: self.ours.clone(),
            also: self.also.clone(),
            more: self.more.clone(),
            next: self.next.clone().filter(|n| matches!(n, Next::Cursor(..))),
            absent: self.absent.filter(|absent| *absent == Absent::Unsaid),
            ..LookupPlan::default()
        };
        same != *self
    }

    /// The same at another base URL.
    pub(crate) fn replace_start(&mut self, from: &str, to: &str) {
        self.url.replace_start(from, to);
        if let Some(fetch) = &mut self.fetch {
            fetch.before.replace_start(from, to);
        }
    }

    /// The first page.
    ///
    /// # Errors
    /// It can't be asked for, with the reason.
    pub(crate) fn first(&self, key: &EffectKey, asked: Option<Asked>) -> Result<Question, String> {
        let url = self.url.with(key);
        let url = match (&self.since, asked) {
            (None, _) => url,
            (Some(since), Some(asked)) => since.on(&url, asked),
            (Some(_), None) => return Err("it is not known since when to look".into()),
        };
        Ok(Question { url, body: self.graphql.as_ref().map(|query| query.body(key, None)) })
    }

    /// Pages that are read at most.
    pub(crate) fn most_pages(&self) -> u8 {
        self.pages.unwrap_or(if self.next.is_some() { DEFAULT_PAGES } else { 1 })
    }

    /// What is on a page. `first` is the question for the first page, `here` that for this one.
    ///
    /// # Errors
    /// The page says nothing, with the reason.
    pub(crate) fn read(
        &self,
        key: &EffectKey,
        first: &Question,
        here: &Question,
        a: &Answer,
        policy: &Policy,
    ) -> Result<Page, String> {
        let nothing = || Page { items: Vec::new(), told: Told::Whole, next: None };
        if self.items.is_none() && a.status == 404 {
            return Ok(nothing());
        }
        let all = whole(a, policy)?;
        let said = self.graphql.as_ref().map(|_| graphql::more(a, all, &self.more)).transpose()?;
        if self.kept.as_ref().is_some_and(|kept| kept.refuses(all, policy)) {
            return Ok(nothing());
        }
        let listed = match &self.items {
            None => Some(vec![all.to_owned()]),
            Some(pointer) => match walk(all, pointer) {
                Some(list) if list.get().starts_with('[') => Some(
                    serde_json::from_str::<Vec<Box<RawValue>>>(list.get())
                        .map_err(|_| "the look-up's list can't be read".to_owned())?,
                ),
                _ => None,
            },
        };
        let items = match listed {
            Some(items) => items,
            None if self.says_empty(all) => Vec::new(),
            None => {
                let at = self.items.as_deref().unwrap_or_default();
                return Err(format!("the look-up's answer has no list at {at:?}"));
            }
        };
        let told = match said {
            Some(true) => Told::Further(None),
            Some(false) => Told::Whole,
            None => self.told(a, all, items.len()),
        };
        let next = match &self.next {
            Some(Next::Link(rel)) => {
                pages::link(a, rel).map(|to| pages::beside(&here.url, &to).map(Question::at))
            }
            Some(Next::Cursor(at, name)) => {
                let cursor =
                    serde_json::from_str::<Value>(all.get()).ok().and_then(|v| plain(v.pointer(at)?));
                // Behind a last page there may be a cursor, too.
                let cursor = cursor.filter(|_| told != Told::Whole);
                cursor.map(|c| {
                    Ok(match &self.graphql {
                        None => Question::at(pages::with(&first.url, name, &c)),
                        Some(query) => {
                            Question { url: first.url.clone(), body: Some(query.body(key, Some((name, &c)))) }
                        }
                    })
                })
            }
            None => None,
        };
        Ok(Page { items, told, next })
    }

    fn says(&self) -> More<'_> {
        More { at: &self.more, next: self.next.as_ref(), undivided: self.undivided, absent: self.absent }
    }

    /// What an answer says of further pages of a list of which so many objects came.
    fn told(&self, a: &Answer, all: &RawValue, count: usize) -> Told {
        let says = self.says();
        match &self.items {
            Some(items) => {
                serde_json::from_str(all.get()).map_or(Told::Unsaid, |all| says.of(a, &all, items, count))
            }
            None if walk(all, &self.more)
                .is_some_and(|m| !matches!(m.get(), "false" | "null" | "0" | "\"\"")) =>
            {
                Told::Further(None)
            }
            None => Told::Whole,
        }
    }

    fn says_empty(&self, all: &RawValue) -> bool {
        let Ok(value) = serde_json::from_str::<Value>(all.get()) else { return false };
        !self.empty.is_empty()
            && self.empty.iter().all(|(at, want)| value.pointer(at).and_then(plain).as_deref() == Some(want))
    }

    /// Takes the objects of a page, and what it says of further ones and of the provider's clock.
    ///
    /// # Errors
    /// It says nothing, with the reason.
    pub(crate) fn take(
        &self,
        key: &EffectKey,
        page: &Page,
        a: &Answer,
        asked: Option<Asked>,
        tally: &mut Tally,
    ) -> Result<(), String> {
        for object in &page.items {
            if let Some(kept) = &self.kept {
                tally.found.push(kept.receipt(object)?.noted("Found by a look-up."));
                continue;
            }
            let value: Value = serde_json::from_str(object.get())
                .map_err(|_| "an object in the look-up's answer can't be read".to_owned())?;
            if !self.bears(&value, key) {
                tally.others = self.items.is_none();
                if self.graphql.is_some() && !self.can_tell(&value) {
                    tally.hidden =
                        tally.hidden.or(Some("an entry of the list does not have what `match` compares"));
                }
            } else if is(&value, &self.ours, key)
                && holds(&value, &self.ours_within, key)
                && is(&value, &self.also, key)
                && holds(&value, &self.also_within, key)
            {
                let receipt = Receipt::new(200, a.header("content-type"), object.get().as_bytes());
                tally.found.push(receipt.noted("Found by a look-up."));
            } else {
                tally.differing += 1;
            }
        }
        tally.told = Some(page.told.clone());
        if let (Some(since), Some(asked)) = (&self.since, asked) {
            tally.hidden = tally.hidden.or(since.hides(a, asked));
        }
        Ok(())
    }

    /// Whether an object has the key in any of the places where it would be. One that has lost it in another place is
    /// the effect's all the same, and never as nothing.
    fn bears(&self, value: &Value, key: &EffectKey) -> bool {
        use std::slice::from_ref;
        self.ours.iter().any(|w| is(value, from_ref(w), key))
            || self.ours_within.iter().any(|w| holds(value, from_ref(w), key))
    }

    /// Whether an entry has each place where the key would be.
    fn can_tell(&self, value: &Value) -> bool {
        self.ours.iter().chain(&self.ours_within).all(|(at, _)| graphql::says(value, at))
    }

    /// Whether what was read is enough.
    pub(crate) fn is_enough(tally: &Tally) -> bool {
        !tally.found.is_empty() || tally.differing > 0
    }

    /// What the pages say together.
    pub(crate) fn verdict(&self, tally: &Tally) -> Looked {
        let mut found = tally.found.iter();
        match (found.next(), found.next()) {
            (Some(one), None) if tally.differing == 0 => return Looked::Found(one.keep()),
            // A second one, or something with its key: somebody should look.
            (Some(first), _) => return Looked::Several(first.keep()),
            (None, _) => {}
        }
        if tally.differing > 0 {
            return unknown("an object bears this effect's key, but differs from what was sent");
        }
        match &tally.told {
            Some(Told::Further(sign)) => return unknown(further(sign.as_deref())),
            Some(Told::Unsaid) => return unknown(self.says().unsaid()),
            Some(Told::Whole) | None => {}
        }
        if tally.others {
            return unknown("the look-up led to an object that does not bear this effect's key");
        }
        if let Some(why) = tally.hidden {
            return unknown(why);
        }
        if self.absence_is_doubt {
            return unknown(
                "nothing was found, which proves nothing with this provider (not_found = \"in_doubt\")",
            );
        }
        Looked::NotFound
    }
}

/// An answer's JSON, if it is a success.
///
/// # Errors
/// It is none, with the reason.
pub(crate) fn whole<'a>(a: &'a Answer, policy: &Policy) -> Result<&'a RawValue, String> {
    if a.status != 200 {
        return Err(format!("the look-up was answered {}", a.status));
    }
    let all = serde_json::from_slice::<&RawValue>(a.body.trim_ascii())
        .map_err(|_| "the look-up's answer is not JSON".to_owned())?;
    match policy.word_of(&a.body) {
        None | Some(Word::Success) => Ok(all),
        Some(Word::Refusal(code)) => Err(format!("the look-up was refused: {code}")),
        Some(Word::Nothing) => Err("the look-up's answer does not say whether it is one".into()),
    }
}

fn is(value: &Value, wanted: &[(String, Spliced)], key: &EffectKey) -> bool {
    wanted
        .iter()
        .all(|(at, want)| value.pointer(at).and_then(plain).is_some_and(|have| have == want.with(key)))
}

fn holds(value: &Value, wanted: &[(String, Spliced)], key: &EffectKey) -> bool {
    wanted.iter().all(|(at, want)| {
        value.pointer(at).and_then(Value::as_str).is_some_and(|t| t.contains(&want.with(key)))
    })
}

impl Fetch {
    /// The URL of the object that an item names.
    ///
    /// # Errors
    /// It names none that can be part of a URL.
    pub(crate) fn url(&self, key: &EffectKey, item: &RawValue) -> Result<String, String> {
        let value: Value = serde_json::from_str(item.get())
            .map_err(|_| "an object in the look-up's answer can't be read".to_owned())?;
        let name = value.pointer(&self.at).and_then(plain);
        let name = name.filter(|n| n != "." && n != ".." && n.len() <= 256);
        let name =
            name.ok_or_else(|| format!("an item of the look-up's list has no name at {:?}", self.at))?;
        Ok(format!("{}{}{}", self.before.with(key), crate::encode::percent(&name), self.after.with(key)))
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
