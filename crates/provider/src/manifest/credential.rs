//! A credential is put in last, over whatever stands in its place: so nothing else may have a place there.

use super::Integration;
use super::parts::Wrong;
use crate::method::{Marker, Method, Place};
use crate::policy::Carrier;
use serde_json::Value;

/// Refuses a method that would lose its effect key, or a part of what it is asked for, to the credential.
pub(super) fn has_its_places(method: &Method) -> Result<(), Wrong> {
    let home = &method.home;
    let in_query = |name: &str| home.has_in_query(name);
    let taken = |what: &str| format!("{what} carries the credential of [auth]");
    match method.keys.as_ref().map(|(keys, _)| &keys.carrier) {
        Some(Carrier::Header(name))
            if home.masked.iter().any(|m| m.place == "header" && m.name.eq_ignore_ascii_case(name)) =>
        {
            return Err(("idempotency", taken(&format!("the header {name}"))));
        }
        Some(Carrier::Query(name)) if in_query(name) => {
            return Err(("idempotency", taken(&format!("the query parameter `{name}`"))));
        }
        _ => {}
    }
    if let Some(Marker::Query(name)) =
        method.marker.as_ref().filter(|m| matches!(m, Marker::Query(n) if in_query(n)))
    {
        return Err(("marker", taken(&format!("the query parameter `{name}`"))));
    }
    if let Some((name, _)) = method.query.iter().find(|(name, _)| in_query(name)) {
        return Err(("query", taken(&format!("the query parameter `{name}`"))));
    }
    let properties = method.input.get("properties").and_then(Value::as_object);
    let named =
        method.places.iter().map(|(name, _)| name).chain(properties.into_iter().flat_map(|p| p.keys()));
    for name in named {
        if let Ok(Place::Query(to)) = method.place(name)
            && in_query(&to)
        {
            return Err((
                "params",
                taken(&format!("the query parameter `{to}`, which is the argument `{name}` too,")),
            ));
        }
    }
    Ok(())
}

/// How the names of credentials end, words being joined or apart.
const ENDINGS: [&str; 7] = ["key", "token", "secret", "password", "passwd", "authorization", "credential"];

/// Whether something of this name is likely a credential.
fn is_like_a_secret(name: &str) -> bool {
    let (mut words, mut before) = (String::new(), ' ');
    for c in name.chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            words.push(' ');
        }
        words.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
        before = c;
    }
    words.split(' ').any(|word| ENDINGS.iter().any(|e| word.trim_end_matches('s').ends_with(e)))
}

impl Integration {
    /// What its manifest gives of headers, query parameters and fields that is named like a credential, each once, in words:
    /// such things are recorded and shown.
    #[must_use]
    pub fn looks_secret(&self) -> Vec<String> {
        let home = self.home().headers.iter().map(|(name, _)| ("header", name.as_str()));
        let each = self.methods().iter().flat_map(|m| {
            let headers = m.headers.iter().map(|(name, _)| ("header", name.as_str()));
            let query = m.query.iter().map(|(name, _)| ("query parameter", name.as_str()));
            let texts = m.fields.iter().filter(|(_, value)| value.get().starts_with('"'));
            let fields = texts.filter_map(|(path, _)| Some(("field", path.last()?.as_str())));
            headers.chain(query).chain(fields)
        });
        let mut all: Vec<String> = Vec::new();
        for (place, name) in home.chain(each).filter(|(_, name)| is_like_a_secret(name)) {
            let said = format!("the {place} {name}");
            if !all.contains(&said) {
                all.push(said);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::is_like_a_secret;

    #[test]
    fn names_of_credentials_are_known() {
        for name in
            ["DD-APPLICATION-KEY", "api_key", "apikey", "accessToken", "X-Auth-Token", "keys", "clientSecret"]
        {
            assert!(is_like_a_secret(name), "{name}");
        }
        for name in ["Accept", "X-Version", "keyword", "tokenizer", "limit", "Notion-Version", ""] {
            assert!(!is_like_a_secret(name), "{name}");
        }
    }
}
