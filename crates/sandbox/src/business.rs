//! What a provider does with a request that it carries out: parameters, balances, declines, objects.
//!
//! Pure: decides from the state, changes nothing.

use std::sync::Arc;

use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::{
    answer::Problem,
    class::{Class, Kind, Type},
    request::{Request, object_of, text_at},
    state::{Application, Object, State},
};

/// What carrying a request out comes to.
#[derive(Debug)]
pub(crate) struct Decision {
    pub status: u16,
    pub body: Value,
    /// Execution began: the request was well formed (what Stripe keeps, errors included).
    pub executed: bool,
    pub resource: Option<String>,
    pub object: Option<Object>,
    pub application: Option<Application>,
}

impl Decision {
    fn problem(problem: &Problem, class: Class, executed: bool) -> Self {
        Decision {
            status: problem.status,
            body: problem.value(class),
            executed,
            resource: None,
            object: None,
            application: None,
        }
    }
}

/// The amount that is always declined, as is `metadata.card_declined`.
const DECLINED_AMOUNT: u64 = 40_200;
/// What payments named `pay_demo…` start with.
const STANDING: (&str, u64) = ("pay_demo", 1_000_000);
const MAX_AMOUNT: u64 = 999_999_999_999;

/// Decides a `POST` or `PUT` at a time.
pub(crate) fn decide(state: &State, request: &Request, now: u64) -> Decision {
    let class = request.route.class;
    let fields = match read_fields(request) {
        Ok(fields) => fields,
        Err(problem) => return Decision::problem(&problem, class, false),
    };
    match create(state, request, fields, now) {
        Ok(decision) => decision,
        Err(problem) => Decision::problem(&problem, class, true),
    }
}

fn create(
    state: &State,
    request: &Request,
    mut fields: Map<String, Value>,
    now: u64,
) -> Result<Decision, Problem> {
    let (class, kind) = (request.route.class, request.route.kind);
    let spec = kind.spec();
    let reference = text_at(&fields, "reference");
    let existing =
        reference.as_deref().and_then(|reference| state.by_reference(class, kind, reference)).cloned();
    let mut old = None;
    if let Some(found) = existing {
        if class == Class::Unique {
            let message = "an object with this reference exists; fetch it by resource_id";
            let problem = Problem::invalid(409, "already_exists", message).about("reference");
            return Err(problem.resource(&found.id));
        }
        if request.method == Method::PUT {
            old = Some(found);
        }
    }
    let declined =
        text_at(&fields, "metadata.card_declined").is_some_and(|flag| flag == "true" || flag == "1");
    let moves_money = fields.contains_key("amount") || kind == Kind::Refund;
    if moves_money && (declined || fields.get("amount").and_then(Value::as_u64) == Some(DECLINED_AMOUNT)) {
        return Err(Problem::new(402, "card_error", "card_declined", "The card was declined."));
    }
    if kind == Kind::Refund {
        let amount = refundable(state, class, &fields, old.as_deref())?;
        fields.insert("amount".into(), json!(amount));
    }

    let unchanged = old
        .as_ref()
        .is_some_and(|old| spec.fields.iter().all(|(name, ..)| old.value.get(*name) == fields.get(*name)));
    let (id, created) = match &old {
        Some(old) => (old.id.clone(), old.value.get("created").cloned().unwrap_or(Value::Null)),
        None => (format!("{}_{now:011x}{:06x}", spec.id, state.seq + 1), json!(now / 1000)),
    };
    let mut value = Map::new();
    value.insert("id".into(), json!(id));
    value.insert("object".into(), json!(spec.object));
    for (name, ..) in spec.fields {
        if let Some(field) = fields.remove(*name) {
            value.insert((*name).into(), field);
        }
    }
    value.insert("status".into(), json!(spec.status));
    if kind == Kind::Payment {
        value.insert("refunded".into(), json!(0));
    }
    if let Some(key) = request.key.as_ref().filter(|_| class.keys().is_some()) {
        value.insert("idempotency_key".into(), json!(key));
    }
    value.insert("created".into(), created);

    let application = Application {
        id: id.clone(),
        class,
        kind,
        object: object_of(&value),
        key: request.key.clone(),
        amount: value.get("amount").and_then(Value::as_u64),
        effect: !unchanged,
    };
    let object = Object { id: id.clone(), class, kind, at: now, value };
    let body = if class == Class::Resend { json!({ "id": id }) } else { render(state, &object) };
    Ok(Decision {
        status: 200,
        body,
        executed: true,
        resource: Some(id),
        object: (!unchanged).then_some(object),
        application: Some(application),
    })
}

/// The amount of a refund, held against what its payment has left.
fn refundable(
    state: &State,
    class: Class,
    fields: &Map<String, Value>,
    old: Option<&Object>,
) -> Result<u64, Problem> {
    let payment = text_at(fields, "payment").unwrap_or_default();
    let paid = match state.object(class, Kind::Payment, &payment) {
        Some(found) => found.value.get("amount").and_then(Value::as_u64).unwrap_or(0),
        None if payment.starts_with(STANDING.0) => STANDING.1,
        None => return Err(missing(&payment, "payment")),
    };
    let mut left = paid.saturating_sub(state.refunded(class, &payment));
    if let Some(old) = old {
        // A PUT in place of an earlier one: its amount is free again.
        if text_at(&old.value, "payment").as_deref() != Some(&payment) {
            let message = "the payment of a refund can't be changed";
            return Err(Problem::invalid(400, "parameter_immutable", message).about("payment"));
        }
        left += old.value.get("amount").and_then(Value::as_u64).unwrap_or(0);
    }
    match fields.get("amount").and_then(Value::as_u64) {
        _ if left == 0 => {
            let message = format!("Payment {payment} has already been fully refunded.");
            Err(Problem::invalid(400, "charge_already_refunded", message))
        }
        Some(amount) if amount > left => {
            let message =
                format!("Refund amount ({amount}) is greater than what remains of the payment ({left}).");
            Err(Problem::invalid(400, "amount_too_large", message).about("amount"))
        }
        Some(amount) => Ok(amount),
        None => Ok(left),
    }
}

fn missing(id: &str, param: &str) -> Problem {
    Problem::invalid(404, "resource_missing", format!("No such {param}: {id:?}")).about(param)
}

/// An object as a look-up shows it now.
pub(crate) fn render(state: &State, object: &Object) -> Value {
    let mut value = object.value.clone();
    if object.kind == Kind::Payment {
        value.insert("refunded".into(), json!(state.refunded(object.class, &object.id)));
    }
    Value::Object(value)
}

/// One object by id; under `natural` also by its reference.
pub(crate) fn fetch(
    state: &State,
    class: Class,
    kind: Kind,
    id: &str,
    shown: impl Fn(&Object) -> bool,
) -> Result<Value, Problem> {
    let mut found = state.object(class, kind, id);
    if found.is_none() && class == Class::Natural {
        found = state.by_reference(class, kind, id);
    }
    match found.filter(|object| shown(object)) {
        Some(object) => Ok(render(state, object)),
        None if kind == Kind::Payment && id.starts_with(STANDING.0) => Ok(json!({
            "id": id, "object": "payment", "amount": STANDING.1, "currency": "eur", "status": "succeeded",
            "refunded": state.refunded(class, id),
        })),
        None => Err(missing(id, kind.spec().object)),
    }
}

/// A list, filtered and cut to its limit.
pub(crate) fn list(
    state: &State,
    request: &Request,
    shown: impl Fn(&Object) -> bool,
) -> Result<Value, Problem> {
    let (class, kind) = (request.route.class, request.route.kind);
    let (mut limit, mut filters) = (10_usize, Vec::new());
    for (name, text) in &request.query {
        if name == "limit" {
            let read = text.parse().ok().filter(|limit| (1..=100).contains(limit));
            limit = read.ok_or_else(|| {
                Problem::invalid(400, "parameter_invalid_integer", "limit must be 1 to 100").about("limit")
            })?;
        } else if let Some(filter) = class.filters().iter().find(|filter| *filter == name) {
            filters.push((*filter, text.clone()));
        } else {
            let known = class.filters().join(", ");
            let message = format!("unknown parameter {name:?}; this list takes limit {known}");
            return Err(Problem::invalid(400, "parameter_unknown", message).about(name));
        }
    }
    let mut found = state.list(class, kind, &filters).filter(|object| shown(object));
    let data: Vec<_> = found.by_ref().take(limit).map(Arc::clone).collect();
    let data: Vec<_> = data.iter().map(|object| render(state, object)).collect();
    Ok(json!({"object": "list", "url": request.path, "has_more": found.next().is_some(), "data": data}))
}

/// Checks every parameter against the collection's table.
fn read_fields(request: &Request) -> Result<Map<String, Value>, Problem> {
    let spec = request.route.kind.spec();
    let mut fields = Map::new();
    for (name, value) in &request.params {
        let Some((known, kind, _)) = spec.fields.iter().find(|(known, ..)| known == name) else {
            let known: Vec<_> = spec.fields.iter().map(|(known, ..)| *known).collect();
            let message = format!("Received unknown parameter: {name}; this takes {}", known.join(", "));
            return Err(Problem::invalid(400, "parameter_unknown", message).about(name));
        };
        if value.is_null() {
            continue;
        }
        fields.insert((*known).into(), read_field(known, *kind, value, request.form)?);
    }
    if request.method == Method::PUT
        && let Some(reference) = &request.route.id
    {
        if text_at(&fields, "reference").is_some_and(|given| given != *reference) {
            let message = "reference differs from the path";
            return Err(Problem::invalid(400, "parameter_invalid", message).about("reference"));
        }
        fields.insert("reference".into(), read_field("reference", Type::Name, &json!(reference), false)?);
    }
    for (name, _, required) in spec.fields {
        if *required && !fields.contains_key(*name) {
            let message = format!("Missing required parameter: {name}");
            return Err(Problem::invalid(400, "parameter_missing", message).about(*name));
        }
    }
    Ok(fields)
}

fn read_field(name: &str, kind: Type, value: &Value, form: bool) -> Result<Value, Problem> {
    let bad = |code, why: &str| Problem::invalid(400, code, format!("{name} {why}")).about(name);
    let invalid = |why| bad("parameter_invalid", why);
    match kind {
        Type::Amount => {
            let amount = match value {
                Value::Number(number) => number.as_u64(),
                Value::String(text) if form && text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
                _ => None,
            };
            match amount {
                Some(amount) if (1..=MAX_AMOUNT).contains(&amount) => Ok(json!(amount)),
                _ => Err(bad(
                    "parameter_invalid_integer",
                    "must be an integer in minor units, 1 to 999999999999",
                )),
            }
        }
        Type::Currency => match value.as_str() {
            Some(code) if code.len() == 3 && code.bytes().all(|b| b.is_ascii_alphabetic()) => {
                Ok(json!(code.to_ascii_lowercase()))
            }
            _ => Err(invalid("must be a three-letter currency code")),
        },
        Type::Text if value.is_string() => Ok(value.clone()),
        Type::Text => Err(invalid("must be a string")),
        Type::Name => match value.as_str() {
            Some(text) if (1..=255).contains(&text.chars().count()) => Ok(value.clone()),
            _ => Err(invalid("must be a string of 1 to 255 characters")),
        },
        Type::Recipients => {
            let one = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
            let good = match value {
                Value::Array(list) => (1..=50).contains(&list.len()) && list.iter().all(one),
                value => one(value),
            };
            if good { Ok(value.clone()) } else { Err(invalid("must be an address or a list of 1 to 50")) }
        }
        Type::Metadata => {
            let flat = |map: &Map<String, Value>| {
                map.len() <= 50 && map.values().all(|v| !v.is_object() && !v.is_array() && !v.is_null())
            };
            match value {
                Value::Object(map) if flat(map) => Ok(value.clone()),
                _ => Err(invalid("must be a flat object of at most 50 entries")),
            }
        }
    }
}
