//! Reading a request: its route, its key, its parameters from JSON or a bracket-style form.

use axum::http::{HeaderMap, Method, Uri, header};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    answer::Problem,
    class::{self, Carrier, Class, Kind},
};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub class: Class,
    pub kind: Kind,
    /// The object's id, or for a `PUT` its reference.
    pub id: Option<String>,
}

/// A request, read.
#[derive(Debug)]
pub(crate) struct Request {
    pub method: Method,
    pub path: String,
    pub route: Route,
    pub query: Vec<(String, String)>,
    /// The key, exactly as received: by the class's carrier, or `Idempotency-Key` where it honours none.
    pub key: Option<String>,
    pub params: Map<String, Value>,
    /// The parameters came from a form: numbers arrive as text.
    pub form: bool,
}

impl Route {
    /// The route of a method and path, or what is wrong with it.
    pub(crate) fn of(method: &Method, path: &str) -> Result<Route, (Class, Problem)> {
        let Some((class, rest)) = Class::of(path) else {
            let message = format!(
                "there is nothing here; the provider classes are {}; the control side is /_sandbox/effects, \
                 /_sandbox/rules, /_sandbox/reset and /_sandbox/health",
                class::prefixes()
            );
            return Err((Class::Key, Problem::invalid(404, "unknown_path", message)));
        };
        let (collection, id) = match rest.split_once('/') {
            Some((collection, id)) => (collection, Some(id)),
            None => (rest, None),
        };
        let found = Kind::of(collection).filter(|_| id.is_none_or(|id| !id.is_empty() && !id.contains('/')));
        let Some(kind) = found else {
            let message =
                format!("no such collection or object path; the collections are {}", class::collections());
            return Err((class, Problem::invalid(404, "unknown_path", message)));
        };
        let allowed = match (id, class) {
            (None, _) => "GET, POST",
            (Some(_), Class::Natural) => "GET, PUT",
            (Some(_), _) => "GET",
        };
        if !allowed.split(", ").any(|name| name == method.as_str()) {
            let message = format!("{method} is not allowed here; allowed: {allowed}");
            return Err((class, Problem::invalid(405, "method_not_allowed", message)));
        }
        let id = match id.map(|id| percent_encoding::percent_decode_str(id).decode_utf8()) {
            None => None,
            Some(Ok(id)) => Some(id.into_owned()),
            Some(Err(_)) => {
                return Err((class, Problem::invalid(400, "invalid_path", "the path is not UTF-8")));
            }
        };
        Ok(Route { class, kind, id })
    }
}

impl Request {
    /// Reads everything; nothing is applied for a request that can't be read.
    pub(crate) fn read(
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Request, (Class, Problem)> {
        let path = uri.path().to_owned();
        let route = Route::of(&method, &path)?;
        let class = route.class;
        let (mut params, form) = read_params(headers, body).map_err(|p| (class, p))?;
        let key = match class.keys().map(|keys| keys.carrier) {
            Some(Carrier::Header(name)) => read_key(headers, name).map_err(|p| (class, p))?,
            Some(Carrier::Field(names)) => take_key(&mut params, names).map_err(|p| (class, p))?,
            // Ignored by the provider, counted by the oracle.
            None => {
                headers.get("idempotency-key").map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned())
            }
        };
        let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .take(100)
            .collect();
        Ok(Request { method, path, route, query, key, params, form })
    }

    /// A parameter, or an entry of the metadata (`metadata.marker`), as text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        text_at(&self.params, name)
    }

    /// The unique reference: of a `PUT` its path, else the parameter.
    pub(crate) fn reference(&self) -> Option<String> {
        if self.method == Method::PUT { self.route.id.clone() } else { self.text("reference") }
    }

    /// The business object that effects are counted by, as far as the request names one.
    pub(crate) fn object(&self) -> Option<String> {
        object_of(&self.params)
    }

    /// SHA-256 over method, path and parameters in sorted order: what a mismatch is judged by.
    pub(crate) fn hash(&self) -> String {
        let mut text = format!("{} {}\n", self.method, self.path);
        canonical(&Value::Object(self.params.clone()), &mut text);
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The business object that some parameters name.
pub(crate) fn object_of(params: &Map<String, Value>) -> Option<String> {
    ["order_id", "metadata.order_id", "metadata.order", "payment", "to"]
        .iter()
        .find_map(|name| text_at(params, name))
}

/// A field, or `metadata.x`, as text; lists are joined by commas.
pub(crate) fn text_at(params: &Map<String, Value>, name: &str) -> Option<String> {
    let value = match name.split_once('.') {
        Some((outer, inner)) => params.get(outer)?.get(inner)?,
        None => params.get(name)?,
    };
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Array(list) => Some(list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")),
        _ => None,
    }
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in entries {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for value in list {
                canonical(value, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn read_key(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let bad = |why: &str| Problem::invalid(400, "invalid_idempotency_key", format!("{name} {why}"));
    if all.next().is_some() {
        return Err(bad("is given twice"));
    }
    match first.to_str() {
        Ok(key) if !key.is_empty() => Ok(Some(key.to_owned())),
        _ => Err(bad("must be visible ASCII and not empty")),
    }
}

/// Takes the key out of the parameters: it names the request and is no part of what is compared.
fn take_key(params: &mut Map<String, Value>, names: &[&str]) -> Result<Option<String>, Problem> {
    let mut found = None;
    for name in names {
        let Some(value) = params.remove(*name) else { continue };
        let bad = |why: &str| {
            Problem::invalid(400, "invalid_idempotency_key", format!("{name} {why}")).about(*name)
        };
        if found.is_some() {
            return Err(bad("is given twice"));
        }
        match value {
            Value::String(key) if !key.is_empty() => found = Some(key),
            _ => return Err(bad("must be a text and not empty")),
        }
    }
    Ok(found)
}

fn read_params(headers: &HeaderMap, body: &[u8]) -> Result<(Map<String, Value>, bool), Problem> {
    if body.is_empty() {
        return Ok((Map::new(), false));
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase().as_str() {
        "application/json" => match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok((map, false)),
            Ok(_) => Err(Problem::invalid(400, "invalid_json", "the body must be a JSON object")),
            Err(error) => {
                Err(Problem::invalid(400, "invalid_json", format!("the body is not JSON: {error}")))
            }
        },
        "application/x-www-form-urlencoded" => Ok((read_form(body)?, true)),
        _ => Err(Problem::invalid(
            415,
            "unsupported_content_type",
            "Content-Type must be application/json or application/x-www-form-urlencoded",
        )),
    }
}

const MAX_PAIRS: usize = 1000;
const MAX_DEPTH: usize = 8;

/// A form with nesting by brackets: `metadata[order]=1`, `to[]=a`, `to[0]=a`.
pub(crate) fn read_form(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    let bad = |name: &str, why: &str| {
        Problem::invalid(400, "invalid_form", format!("form field {name:?}: {why}")).about(name)
    };
    let mut root = Value::Object(Map::new());
    for (count, (name, value)) in url::form_urlencoded::parse(body).enumerate() {
        if count >= MAX_PAIRS {
            return Err(bad(&name, "too many fields"));
        }
        let mut path = Vec::new();
        let (head, mut rest) = name.split_at(name.find('[').unwrap_or(name.len()));
        path.push(head);
        while let Some(open) = rest.strip_prefix('[') {
            let Some((part, after)) = open.split_once(']') else {
                return Err(bad(&name, "unclosed bracket"));
            };
            path.push(part);
            rest = after;
        }
        if !rest.is_empty() || head.is_empty() {
            return Err(bad(&name, "not of the form name[part][part]"));
        }
        if path.len() > MAX_DEPTH {
            return Err(bad(&name, "nested too deeply"));
        }
        place(&mut root, &path, &value).map_err(|why| bad(&name, why))?;
    }
    match root {
        Value::Object(map) => Ok(map),
        _ => Err(bad("", "not an object")),
    }
}

/// Puts `text` at `path`. A slot not filled yet is null; its first use decides between list and object.
fn place(slot: &mut Value, path: &[&str], text: &str) -> Result<(), &'static str> {
    let Some((part, rest)) = path.split_first() else {
        if !slot.is_null() {
            return Err("given twice");
        }
        *slot = Value::String(text.to_owned());
        return Ok(());
    };
    let index = if part.is_empty() { Some(None) } else { part.parse::<usize>().ok().map(Some) };
    if slot.is_null() {
        *slot = if index.is_some_and(|i| i.unwrap_or(0) == 0) {
            Value::Array(Vec::new())
        } else {
            Value::Object(Map::new())
        };
    }
    match (slot, index) {
        (Value::Array(list), Some(index)) => {
            let index = index.unwrap_or(list.len());
            if index > list.len() {
                return Err("list items must come in order");
            }
            if index == list.len() {
                list.push(Value::Null);
            }
            place(&mut list[index], rest, text)
        }
        (Value::Object(map), _) if !part.is_empty() => {
            place(map.entry((*part).to_owned()).or_insert(Value::Null), rest, text)
        }
        _ => Err("mixes a value, a list and an object"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn form(text: &str) -> Result<Value, String> {
        read_form(text.as_bytes()).map(Value::Object).map_err(|p| p.message)
    }

    #[test]
    fn forms_nest_by_brackets() {
        let read =
            form("amount=500&metadata[order]=1&metadata%5Bnote%5D=a+b&to[]=x&to[]=y&l[0][a]=1&l[1][a]=2");
        assert_eq!(
            read.unwrap(),
            json!({"amount": "500", "metadata": {"order": "1", "note": "a b"}, "to": ["x", "y"],
                   "l": [{"a": "1"}, {"a": "2"}]})
        );
        // An object whose first entry is not an index stays an object, numbers included.
        assert_eq!(form("m[a]=1&m[0]=2").unwrap(), json!({"m": {"a": "1", "0": "2"}}));
    }

    #[test]
    fn broken_forms_are_refused() {
        for text in ["a=1&a=2", "a[=1", "a[b]c=1", "[a]=1", "a=1&a[b]=2", "a[]=1&a[b]=2", "a[0]=1&a[5]=1"] {
            assert!(form(text).is_err(), "{text}");
        }
        assert!(form("a[b][b][b][b][b][b][b][b]=1").is_err());
    }

    #[test]
    fn the_hash_ignores_member_order_but_not_values() {
        let hash = |method: Method, path: &str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
            Request::read(method, &path.parse().unwrap(), &headers, body.as_bytes()).unwrap().hash()
        };
        let one = hash(Method::POST, "/v1/refunds", r#"{"payment":"p","amount":1}"#);
        assert_eq!(one, hash(Method::POST, "/v1/refunds", r#"{"amount":1, "payment":"p"}"#));
        assert_ne!(one, hash(Method::POST, "/v1/refunds", r#"{"amount":2,"payment":"p"}"#));
        assert_ne!(one, hash(Method::POST, "/v1/refunds", r#"{"amount":"1","payment":"p"}"#));
        assert_ne!(one, hash(Method::POST, "/v1/payments", r#"{"payment":"p","amount":1}"#));
    }
}
