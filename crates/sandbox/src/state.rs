//! What the providers know, in memory, and how one log entry changes it.
//!
//! [`State::apply`] is the only way in, for a live request and for a replay of the log alike, so that what a
//! restart rebuilds is what was there.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    class::{Class, Kind, Memory},
    request::{Request, text_at},
    rules::Rules,
};

/// One line of the log: what one request changed, all of it or nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<Application>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Object>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Stored>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forget: Option<Forget>,
}

/// A request carried out. An effect, unless it repeated what already was (class `natural`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Application {
    pub id: String,
    pub class: Class,
    pub kind: Kind,
    /// The business object it is counted by.
    pub object: Option<String>,
    /// The key as received, honoured or not.
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    pub effect: bool,
}

/// A payment, refund, message, …
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Object {
    pub id: String,
    pub class: Class,
    pub kind: Kind,
    /// When it was made or last changed.
    pub at: u64,
    pub value: Map<String, Value>,
}

/// A first answer, kept by key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub class: Class,
    pub key: String,
    pub at: u64,
    /// Of the request that it answered.
    pub hash: String,
    pub status: u16,
    /// The object made, if one was.
    pub resource: Option<String>,
    /// The body, byte for byte.
    pub body: Box<RawValue>,
}

/// Keys dropped on demand.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Forget {
    pub class: Class,
    /// One key, or all.
    pub key: Option<String>,
}

type Index = HashMap<(Class, Kind, &'static str, String), Vec<String>>;

/// Everything known. The last five fields are memory only.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub seq: u64,
    pub objects: HashMap<String, Arc<Object>>,
    order: HashMap<(Class, Kind), Vec<String>>,
    index: Index,
    refunded: HashMap<(Class, String), u64>,
    keys: HashMap<(Class, String), Stored>,
    applied_keys: HashSet<(Class, String)>,
    pub applications: Vec<Arc<Application>>,
    /// Changes at a reset; work begun before it is void.
    pub epoch: u64,
    pub in_flight: HashMap<(Class, String), u64>,
    pub rules: Rules,
    hidden: HashMap<String, u64>,
    prune_at: usize,
}

impl State {
    /// Nothing yet; numbering goes on after `seq`.
    pub(crate) fn after(seq: u64) -> Self {
        State { seq, ..State::default() }
    }

    /// Takes one entry in.
    pub(crate) fn apply(&mut self, entry: Entry, retention: Duration) {
        self.seq = entry.seq;
        if let Some(forget) = entry.forget {
            match forget.key {
                Some(key) => drop(self.keys.remove(&(forget.class, key))),
                None => self.keys.retain(|(class, _), _| *class != forget.class),
            }
        }
        if let Some(object) = entry.object {
            self.put(object);
        }
        if let Some(application) = entry.application {
            if let Some(key) = &application.key {
                self.applied_keys.insert((application.class, key.clone()));
            }
            self.applications.push(Arc::new(application));
        }
        if let Some(answer) = entry.answer {
            self.keys.insert((answer.class, answer.key.clone()), answer);
            if self.keys.len() > self.prune_at {
                self.keys.retain(|_, stored| !expired(stored, entry.at, retention));
                self.prune_at = (self.keys.len() * 2).max(10_000);
            }
        }
    }

    fn put(&mut self, object: Object) {
        let Object { class, kind, .. } = object;
        if kind == Kind::Refund {
            let share = |object: &Object| {
                (text_at(&object.value, "payment"), object.value.get("amount").and_then(Value::as_u64))
            };
            let earlier = self.objects.get(&object.id).map(|old| share(old));
            if let Some((Some(payment), Some(amount))) = earlier {
                let sum = self.refunded.entry((class, payment)).or_default();
                *sum = sum.saturating_sub(amount);
            }
            if let (Some(payment), Some(amount)) = share(&object) {
                *self.refunded.entry((class, payment)).or_default() += amount;
            }
        }
        let known = self.objects.contains_key(&object.id);
        for (filter, field) in FILTERS {
            if let Some(text) = text_at(&object.value, field) {
                let ids = self.index.entry((class, kind, filter, text)).or_default();
                if !known || !ids.contains(&object.id) {
                    ids.push(object.id.clone());
                }
            }
        }
        if !known {
            self.order.entry((class, kind)).or_default().push(object.id.clone());
        }
        self.objects.insert(object.id.clone(), Arc::new(object));
    }

    /// What is kept under a key, if it is not past its retention.
    pub(crate) fn stored(&self, class: Class, key: &str, now: u64, retention: Duration) -> Option<&Stored> {
        self.keys.get(&(class, key.to_owned())).filter(|stored| !expired(stored, now, retention))
    }

    /// Whether the request's key, reference or marker has been met before.
    pub(crate) fn seen(&self, request: &Request) -> bool {
        let (class, kind) = (request.route.class, request.route.kind);
        let by_key = request.key.as_ref().is_some_and(|key| {
            let key = (class, key.clone());
            self.keys.contains_key(&key)
                || self.in_flight.contains_key(&key)
                || self.applied_keys.contains(&key)
        });
        let by = |filter, text: Option<String>| {
            text.is_some_and(|text| self.index.contains_key(&(class, kind, filter, text)))
        };
        by_key || by("reference", request.reference()) || by("marker", request.text("metadata.marker"))
    }

    /// How much of a payment has been refunded.
    pub(crate) fn refunded(&self, class: Class, payment: &str) -> u64 {
        self.refunded.get(&(class, payment.to_owned())).copied().unwrap_or(0)
    }

    /// An object of a class and kind, visible or not.
    pub(crate) fn object(&self, class: Class, kind: Kind, id: &str) -> Option<&Arc<Object>> {
        self.objects.get(id).filter(|object| object.class == class && object.kind == kind)
    }

    /// The object with a reference, visible or not.
    pub(crate) fn by_reference(&self, class: Class, kind: Kind, reference: &str) -> Option<&Arc<Object>> {
        let ids = self.index.get(&(class, kind, "reference", reference.to_owned()))?;
        ids.iter().find_map(|id| self.objects.get(id))
    }

    /// The objects of a collection that carry all these values, newest first.
    pub(crate) fn list<'a>(
        &'a self,
        class: Class,
        kind: Kind,
        filters: &'a [(&'static str, String)],
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let ids = match filters.first() {
            Some((filter, text)) => self.index.get(&(class, kind, *filter, text.clone())),
            None => self.order.get(&(class, kind)),
        };
        ids.into_iter().flatten().rev().filter_map(|id| self.objects.get(id)).filter(move |object| {
            filters.iter().all(|(filter, text)| {
                let field =
                    FILTERS.iter().find(|(name, _)| name == filter).map_or(*filter, |(_, field)| field);
                text_at(&object.value, field).as_ref() == Some(text)
            })
        })
    }

    /// Hides an object from look-ups until a time.
    pub(crate) fn hide(&mut self, id: String, until: u64) {
        self.hidden.insert(id, until);
    }

    /// Whether look-ups show an object yet.
    pub(crate) fn visible(&self, object: &Object, now: u64, lag: Duration) -> bool {
        let lagging = object.class == Class::Lookup && now < object.at.saturating_add(millis(lag));
        !lagging && self.hidden.get(&object.id).is_none_or(|until| now >= *until)
    }

    /// Forgets everything but the numbering.
    pub(crate) fn reset(&mut self) {
        *self = State { seq: self.seq + 1, epoch: self.epoch + 1, ..State::default() };
    }
}

/// List filters and the fields behind them.
const FILTERS: [(&str, &str); 4] = [
    ("payment", "payment"),
    ("idempotency_key", "idempotency_key"),
    ("marker", "metadata.marker"),
    ("reference", "reference"),
];

fn expired(stored: &Stored, now: u64, retention: Duration) -> bool {
    let kept = match stored.class.keys().map(|keys| keys.memory) {
        Some(Memory::Forever) => return false,
        Some(Memory::AtMost(longest)) => longest.min(retention),
        Some(Memory::Tuned) | None => retention,
    };
    now >= stored.at.saturating_add(millis(kept))
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
