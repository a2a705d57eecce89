//! Which methods are called: by a fixed seed, and of every shape that there is as many as there is room for.

use crate::arguments::Alphabet;
use crate::random::Random;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A method of a manifest.
#[derive(Clone, Debug)]
pub(super) struct Method {
    /// Its canonical id.
    pub(super) id: String,
    /// Verb and path, as described.
    pub(super) http: String,
    /// What it has of what can go wrong: its verb, the places of its arguments, its kind of body, its styles.
    pub(super) features: BTreeSet<String>,
    /// What its arguments may consist of, where their places don't take everything.
    pub(super) alphabets: BTreeMap<String, Alphabet>,
}

/// The methods of a manifest.
pub(super) fn methods(name: &str, manifest: &toml::Table) -> Result<Vec<Method>> {
    let all =
        manifest.get("methods").and_then(toml::Value::as_table).context("a manifest without methods")?;
    all.iter()
        .map(|(method, said)| {
            let text = |field: &str| said.get(field).and_then(toml::Value::as_str);
            let imported = said.get("imported").and_then(|i| i.get("http")).and_then(toml::Value::as_str);
            let http = imported.or_else(|| text("http")).with_context(|| format!("{method} has no place"))?;
            Ok(Method {
                id: format!("{name}.{method}"),
                http: http.to_owned(),
                features: features(http, said),
                alphabets: alphabets(text("http").unwrap_or_default(), said),
            })
        })
        .collect()
}

fn alphabets(http: &str, said: &toml::Value) -> BTreeMap<String, Alphabet> {
    let segments = http.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let mut all: BTreeMap<String, Alphabet> = segments.map(|s| (s.to_owned(), Alphabet::Segment)).collect();
    for (name, place) in said.get("params").and_then(toml::Value::as_table).into_iter().flatten() {
        if place.as_str().is_some_and(|p| p.starts_with("header") || p.starts_with("cookie")) {
            all.insert(name.clone(), Alphabet::Visible);
        }
    }
    all
}

fn features(http: &str, said: &toml::Value) -> BTreeSet<String> {
    let mut all = BTreeSet::from([http.split(' ').next().unwrap_or_default().to_owned()]);
    if http.contains('{') {
        all.insert("in path".into());
    }
    let table = |field: &str| said.get(field).and_then(toml::Value::as_table).into_iter().flatten();
    for (_, place) in table("params") {
        let place = place.as_str().unwrap_or_default();
        all.insert(format!("in {}", place.split(':').next().unwrap_or_default()));
    }
    for (_, style) in table("styles") {
        all.insert(format!("style {}", style.as_str().unwrap_or_default()));
    }
    if let Some(body) = said.get("body").and_then(toml::Value::as_str) {
        all.insert(format!("body {body}"));
    }
    all
}

/// So many of them: one of each shape in turn, the shapes and what is of each in an order that the seed gives.
pub(super) fn chosen(
    methods: Vec<Method>,
    count: usize,
    seed: u64,
    may_be: &mut dyn FnMut(&str) -> bool,
) -> Vec<Method> {
    let mut random = Random::new(seed, 0);
    let mut shapes: BTreeMap<BTreeSet<String>, Vec<Method>> = BTreeMap::new();
    for method in methods.into_iter().filter(|m| may_be(&m.http)) {
        shapes.entry(method.features.clone()).or_default().push(method);
    }
    let mut shapes: Vec<Vec<Method>> = shapes.into_values().collect();
    shapes.iter_mut().for_each(|of_shape| random.shuffle(of_shape));
    random.shuffle(&mut shapes);
    let mut chosen = Vec::new();
    while chosen.len() < count && shapes.iter().any(|s| !s.is_empty()) {
        let room = count - chosen.len();
        chosen.extend(shapes.iter_mut().filter_map(Vec::pop).take(room));
    }
    chosen
}

/// How many of them have what.
pub(super) fn spread(chosen: &[Method]) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for feature in chosen.iter().flat_map(|m| &m.features) {
        *all.entry(feature.clone()).or_insert(0) += 1;
    }
    all
}

/// The tools of methods by their ids, as the gateway names them.
pub(super) fn tools(listed: &Value) -> BTreeMap<String, String> {
    let all = listed["methods"].as_array().into_iter().flatten();
    all.filter_map(|m| Some((m["id"].as_str()?.to_owned(), m["tool"].as_str()?.to_owned()))).collect()
}

/// A tool's schema without arguments that are not to be made: these, and the gateway's own for the key, which is a caller's
/// word and no part of a request.
pub(super) fn without(schema: &Value, names: &[String]) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| name != "idempotency_key" && !names.contains(name));
    }
    schema
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{chosen, methods, spread};

    #[test]
    fn each_shape_is_chosen_before_any_is_chosen_twice() {
        let mut text = String::from(
            "[methods.one]\nhttp = \"PUT /x/{id}\"\nbody = \"text\"\nstyles = { a = \"comma\" }\nparams = { a = \"query\", b = \"header:X\" }\n",
        );
        for n in 0..50 {
            text.push_str(&format!(
                "[methods.m{n}]\nhttp = \"GET /m{n}\"\nimported = {{ http = \"GET /M{n}\" }}\n"
            ));
        }
        let all = methods("i", &text.parse().unwrap()).unwrap();
        for seed in 0..20 {
            let some = chosen(all.clone(), 5, seed, &mut |_| true);
            assert_eq!(some.len(), 5);
            assert_eq!(some.iter().filter(|m| m.id == "i.one").count(), 1);
            assert!(some.iter().all(|m| m.id == "i.one" || m.http.starts_with("GET /M")));
            let spread = spread(&some);
            assert_eq!(
                (spread["GET"], spread["in header"], spread["in path"], spread["style comma"]),
                (4, 1, 1, 1)
            );
        }
        assert_eq!(chosen(all, 100, 1, &mut |http| http != "GET /M7").len(), 50);
    }
}
