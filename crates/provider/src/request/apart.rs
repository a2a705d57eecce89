//! No argument goes where another one goes, so that what is said of an argument (by rules and budgets, by a person) is said of all
//! that has its effect.
//!
//! The names of arguments that an open schema lets through, the names that the members of an object have in a query, and what is
//! inside an object or a list of a body are the caller's. Two names are the same here if some server might read them as the same:
//! upper and lower case, dots and blanks for underscores (PHP), and `a` for `a[b]`. What the gateway fills is guarded in the same
//! way, with what is around it: a second `Metadata` might be the one that counts, and the first is where the effect key is.

use super::MAX_URL;
use crate::encode::{self, Level, MAX_DEPTH};
use crate::error::BadArguments;
use crate::method::{Marker, Method, Place};
use crate::policy::Carrier;
use crate::raw::BodyKind;
use crate::text::read_as;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};

/// What goes where in one request. A caller may choose very many names, so each is read once and found by its text.
pub(super) struct Apart<'a> {
    method: &'a Method,
    /// Made when a caller's own name is first met, as most calls have none.
    query: Option<Query<'a>>,
    body: Option<Body<'a>>,
    /// How long the names are that callers chose in the query.
    chosen: usize,
}

/// Names in the query as [`read_as`] reads them, each with who fills it: an argument, or the gateway (`None`).
type Query<'a> = BTreeMap<String, Vec<Option<&'a str>>>;

/// What goes where in the body: by the first part of the path, as it may be read. One with a bracket stands under what is before
/// that, too, with the bracket at its end.
type Body<'a> = HashMap<String, Vec<Field<'a>>>;

/// A place in the body.
struct Field<'a> {
    /// The argument that goes there; `None`: the gateway fills it.
    by: Option<&'a str>,
    path: &'a [String],
    /// The rest of the path, as it may be read.
    inside: Vec<String>,
    /// By no word of the manifest, so that only what the manifest doesn't know can meet it.
    by_default: bool,
}

impl<'a> Apart<'a> {
    pub(super) fn new(method: &'a Method) -> Apart<'a> {
        Apart { method, query: None, body: None, chosen: 0 }
    }

    /// Whether what an argument wrote into the query, under these names, is its own. What it chose is kept for those that come
    /// after it.
    pub(super) fn stays_in_query(
        &mut self,
        name: &'a str,
        to: &str,
        written: &[String],
    ) -> Result<(), BadArguments> {
        let method = self.method;
        if method.filled_in_query().any(|filled| filled == to) {
            return Err(BadArguments::new(format!(
                "the query parameter `{to}` is filled by the gateway; leave `{name}` out"
            )));
        }
        // The manifest gave it this one.
        let given = method.declares(name).then_some(to);
        let mut own: Vec<&String> = written.iter().filter(|mine| Some(mine.as_str()) != given).collect();
        own.dedup();
        if own.is_empty() {
            return Ok(());
        }
        for mine in &own {
            self.takes(mine.len())?;
        }
        let query = self.query.get_or_insert_with(|| method.query_names());
        let own: Vec<(String, &String)> = own.into_iter().map(|mine| (read_as(mine), mine)).collect();
        for (read, mine) in &own {
            match met(query, read, name) {
                None => {}
                Some(None) => {
                    return Err(BadArguments::new(format!(
                        "the query parameter `{mine}` is filled by the gateway; leave it out of `{name}`"
                    )));
                }
                Some(Some(other)) => return Err(taken(name, mine, other)),
            }
        }
        for (read, _) in own {
            let by = query.entry(read).or_default();
            if by.last() != Some(&Some(name)) {
                by.push(Some(name));
            }
        }
        Ok(())
    }

    /// Names of so many bytes more. They all would stand in the URL.
    fn takes(&mut self, length: usize) -> Result<(), BadArguments> {
        self.chosen = self.chosen.saturating_add(length);
        if self.chosen > MAX_URL { Err(super::long_url()) } else { Ok(()) }
    }

    /// Whether what an argument writes into the body is its own.
    pub(super) fn stays_in_body(
        &mut self,
        name: &str,
        path: &[String],
        raw: &RawValue,
    ) -> Result<(), BadArguments> {
        let method = self.method;
        let Some((first, rest)) = path.split_first() else { return Ok(()) };
        let body = self.body.get_or_insert_with(|| method.body_places());
        let declared = method.declares(name);
        let read = read_as(first);
        if !declared {
            let around = before_bracket(&read).map_or_else(|| format!("{read}["), str::to_owned);
            let another = |field: &&Field<'_>| field.by != Some(name);
            if let Some(field) = body.get(&around).and_then(|fields| fields.iter().find(another)) {
                return Err(field.taken_by(name));
            }
        }
        let Some(fields) = body.get(&read) else { return Ok(()) };
        let rest: Vec<String> = rest.iter().map(|part| read_as(part)).collect();
        let (mut same, mut deeper) = (None, Vec::new());
        for field in fields.iter().filter(|field| field.by != Some(name)) {
            match field.inside.strip_prefix(rest.as_slice()) {
                Some([]) if !declared => same = same.or(Some(field)),
                Some(_) if !declared && field.has_twin(0, first) => same = same.or(Some(field)),
                Some(inside @ [_, ..]) => deeper.push((inside, field)),
                _ => {}
            }
        }
        match holds(raw, &deeper, name, 0)?.or(same) {
            Some(field) => Err(field.taken_by(name)),
            None => Ok(()),
        }
    }
}

impl Field<'_> {
    fn taken_by(&self, name: &str) -> BadArguments {
        match self.by {
            None => BadArguments::new(format!(
                "the field `{}` is filled by the gateway, and what `{name}` says may be taken for it; leave it out",
                self.path.join(".")
            )),
            Some(other) if self.by_default => taken(name, name, other),
            Some(other) => taken(name, &self.path.join("."), other),
        }
    }

    /// Whether this name, read as the part of the path that is so deep, is another than that.
    fn has_twin(&self, depth: usize, name: &str) -> bool {
        self.by.is_none() && self.path.get(depth).is_some_and(|part| part != name)
    }
}

/// What a name with a bracket begins with.
fn before_bracket(read: &str) -> Option<&str> {
    read.split_once('[').map(|(before, _)| before)
}

/// Who fills what may be read as this name, or as a part of it, or as what it is a part of: anybody but this argument itself.
fn met<'a>(query: &Query<'a>, read: &str, name: &str) -> Option<Option<&'a str>> {
    let of_another = |by: &Vec<Option<&'a str>>| by.iter().find(|by| **by != Some(name)).copied();
    let around = read.match_indices('[').map(|(at, _)| &read[..at]);
    let same = around.chain([read]).find_map(|known| query.get(known).and_then(of_another));
    same.or_else(|| {
        let inside = format!("{read}[");
        let parts = query.range(inside.clone()..).take_while(|(known, _)| known.starts_with(&inside));
        parts.map(|(_, by)| by).find_map(of_another)
    })
}

impl Method {
    /// What goes into the query by the manifest.
    fn query_names(&self) -> Query<'_> {
        let mut names = Query::new();
        let filled = self.filled_in_query().map(|to| (None, to));
        let arguments = self.in_query().map(|(name, to)| (Some(name), to));
        for (by, to) in filled.chain(arguments) {
            names.entry(read_as(to)).or_default().push(by);
        }
        names
    }

    /// What goes into the body by the manifest.
    fn body_places(&self) -> Body<'_> {
        let placed = self.places.iter().filter_map(|(name, place)| match place {
            Place::Body(path) => Some((Some(name.as_str()), path.as_slice())),
            _ => None,
        });
        let filled = self.filled_in_body().map(|path| (None, path));
        let placed = placed.chain(filled).filter_map(|(by, path)| {
            let (first, rest) = path.split_first()?;
            let inside = rest.iter().map(|part| read_as(part)).collect();
            Some((first.as_str(), Field { by, path, inside, by_default: false }))
        });
        let by_default = self
            .unplaced()
            .map(|name| (name, Field { by: Some(name), path: &[], inside: Vec::new(), by_default: true }));
        let mut all = Body::new();
        for (first, field) in placed.chain(by_default) {
            let read = read_as(first);
            if let Some(before) = before_bracket(&read) {
                let again = Field { inside: Vec::new(), ..field };
                all.entry(format!("{before}[")).or_default().push(again);
            }
            all.entry(read).or_default().push(field);
        }
        all
    }

    /// What in the body is no argument: the effect key, wherever it goes, and what the manifest puts there.
    fn filled_in_body(&self) -> impl Iterator<Item = &[String]> {
        let key = self.keys.iter().filter_map(|(keys, _)| match &keys.carrier {
            Carrier::Body(path) => Some(path),
            _ => None,
        });
        let marker = self.marker.iter().filter_map(|marker| match marker {
            Marker::Field(path) | Marker::Text(path, _) => Some(path),
            _ => None,
        });
        let unique = self.unique.iter().map(|unique| &unique.field);
        let fixed = self.fields.iter().map(|(path, _)| path);
        key.chain(marker).chain(unique).chain(fixed).map(Vec::as_slice)
    }

    /// Whether its manifest knows an argument.
    fn declares(&self, name: &str) -> bool {
        self.places.iter().any(|(n, _)| n == name)
            || self.path.args().any(|a| a == [name])
            || self.input.get("properties").is_some_and(|p| p.get(name).is_some())
    }

    /// Arguments that its schema has and that no word of the manifest places.
    fn unplaced(&self) -> impl Iterator<Item = &str> {
        let properties = self.input.get("properties").and_then(serde_json::Value::as_object);
        let all = properties.into_iter().flat_map(|p| p.keys().map(String::as_str));
        all.filter(|n| {
            self.places.iter().all(|(placed, _)| placed != n) && self.path.args().all(|a| a != [*n])
        })
    }

    /// The arguments in the query, each with its name there.
    fn in_query(&self) -> impl Iterator<Item = (&str, &str)> {
        let placed = self.places.iter().filter_map(|(name, place)| match place {
            Place::Query(to) => Some((name.as_str(), to.as_str())),
            _ => None,
        });
        let by_default = self.body == BodyKind::None && self.graphql.is_none();
        let unplaced = self.unplaced().filter(move |_| by_default).map(|name| (name, name));
        placed.chain(unplaced)
    }

    /// What in the query is no argument: the effect key, the credential, and what the manifest puts there. A second one of a
    /// name might be the one that counts.
    fn filled_in_query(&self) -> impl Iterator<Item = &str> {
        let key = self.keys.iter().filter_map(|(keys, _)| match &keys.carrier {
            Carrier::Query(name) => Some(name.as_str()),
            _ => None,
        });
        let marker = self.marker.iter().filter_map(|marker| match marker {
            Marker::Query(name) => Some(name.as_str()),
            _ => None,
        });
        let fixed = self.query.iter().map(|(name, _)| name.as_str());
        key.chain(marker).chain(fixed).chain(self.home.in_query())
    }
}

fn taken(name: &str, mine: &str, other: &str) -> BadArguments {
    BadArguments::new(if name == mine {
        format!("`{name}` goes where `{other}` goes, and may be taken for it; leave it out")
    } else {
        format!("`{mine}` in `{name}` goes where `{other}` goes, and may be taken for it; leave it out there")
    })
}

/// Which of these places, by the rest of their paths, a value has something at. Each value is read once at each depth. An item of
/// a list counts as what stands under its number, and as what stands where the list does, as forms write the one or the other.
fn holds<'a, 'b>(
    raw: &RawValue,
    places: &[(&'b [String], &'b Field<'a>)],
    name: &str,
    depth: usize,
) -> Result<Option<&'b Field<'a>>, BadArguments> {
    if let Some((_, field)) = places.iter().find(|(rest, _)| rest.is_empty()) {
        return Ok(Some(field));
    }
    if places.is_empty() || depth > MAX_DEPTH || !raw.get().starts_with(['{', '[']) {
        return Ok(None);
    }
    let level = encode::level(raw, name)?;
    let mut by_first: HashMap<&str, Vec<(&[String], &Field<'a>)>> = HashMap::new();
    for (rest, field) in places {
        if let Some((first, rest)) = rest.split_first() {
            by_first.entry(first).or_default().push((rest, field));
        }
    }
    match level {
        Level::Object(members) => {
            for (member, value) in &members {
                let Some(places) = by_first.get(read_as(member).as_str()) else { continue };
                let twin = |(rest, field): &&(&[String], &'b Field<'a>)| {
                    field.has_twin(field.path.len().saturating_sub(rest.len() + 1), member)
                };
                let found = places.iter().find(twin).map(|(_, field)| *field);
                if let Some(field) =
                    found.map_or_else(|| holds(value, places, name, depth + 1), |f| Ok(Some(f)))?
                {
                    return Ok(Some(field));
                }
            }
        }
        Level::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let numbered = by_first.get(i.to_string().as_str());
                let here: Vec<_> = places.iter().chain(numbered.into_iter().flatten()).copied().collect();
                if let Some(field) = holds(item, &here, name, depth + 1)? {
                    return Ok(Some(field));
                }
            }
        }
        Level::Null | Level::Scalar(_) => {}
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{Query, met};
    use crate::text::read_as;

    #[test]
    fn names_that_may_be_read_as_one() {
        let meets = |a: &str, b: &str| {
            let query = Query::from([(read_as(a), vec![Some("x")]), ("aa".into(), vec![None])]);
            assert_eq!(met(&query, &read_as(b), "x"), None, "its own: {a} {b}");
            met(&query, &read_as(b), "y").is_some()
        };
        for (a, b) in [
            ("account", "account"),
            ("account", "Account"),
            ("account", " account"),
            ("a.b", "a_b"),
            ("account", "account[]"),
            ("account[x]", "account"),
            ("account[x][y]", "account"),
            ("account[x][y]", "account[X]"),
            ("page[size]", "PAGE[size]"),
            ("cents", "cent\u{17f}"),
            ("key", "\u{212a}ey"),
        ] {
            assert!(meets(a, b) && meets(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("account", "accounts"),
            ("page[size]", "page[number]"),
            ("a", "b[a]"),
            ("a[b]", "a[bc]"),
            ("a", "a-b[c]"),
        ] {
            assert!(!meets(a, b) && !meets(b, a), "{a} {b}");
        }
    }
}
