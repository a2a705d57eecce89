//! How much work a JSON Schema can make: counted before it is used, because a few hundred bytes of references that refer
//! to each other can cost hours.
//!
//! What is counted is evaluations: a subschema applied to one value. Subschemas that apply to the same value (`allOf`,
//! `$ref`, …) add up; of those that apply to differently named members (`properties`, `prefixItems`) only the costliest
//! counts, since a member has one name. The count is never less than what a validator does that looks at everything.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// The deepest arguments.
const DEEPEST: usize = 64;
/// The most evaluations for values nested up to three levels, one at each, whatever they are.
const MOST_OF_ONE: u64 = 1_000_000;
/// The most for a call's arguments, unless each of its values has few.
const MOST: u64 = 4_000_000;
/// So few for each value are taken, however many values there are: their number is bounded by the size of a body.
const FEW: u64 = 64;

/// The most errors that a check may collect, so that it can say what is wrong in several places.
const MOST_ERRORS: u64 = 50_000;

/// Schemas of schemas that the validator has with it, and what they cost at most for each value, at whatever depth.
const WITH_IT: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];
const COST_OF_IT: u64 = 32;

/// Keywords with one schema for the same value.
const SAME: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with schemas in a list or by name, for the same value.
const SAME_SEVERAL: [&str; 5] = ["allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"];
/// Keywords with one schema for values inside.
const INSIDE: [&str; 7] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];

/// Why there is no bound.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum NoBound {
    #[error("it refers to itself at the same place, so checking it would never end")]
    Endless,
    #[error(
        "its references add up to too many subschemas; repeat less, or refer less often to what is large"
    )]
    TooMuch,
    #[error("it refers to something that is not in it: {0:.200}")]
    Elsewhere(String),
}

/// What a schema can cost.
#[derive(Debug)]
pub(crate) struct Work {
    /// Evaluations of one value at this depth.
    at_depth: Vec<u64>,
    /// The most that one evaluation may find wrong.
    wrong: u64,
    /// The first error is found without collecting others.
    plain: bool,
}

/// What can be told about a value that doesn't fit, without collecting more errors than memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// All of them.
    All,
    /// The first one.
    First,
    /// None.
    Nothing,
}

#[derive(Default)]
struct Node {
    same: Vec<usize>,
    /// For values inside, one of them for each.
    named: Vec<usize>,
    /// For values inside, each of them.
    inside: Vec<usize>,
    /// The validator looks twice, to know what is left over.
    twice: bool,
    /// As many evaluations as comparing the value with its choices costs.
    compared: u64,
    /// Evaluations besides, at every depth.
    besides: u64,
}

/// All that can be referred to in a document.
struct Document<'a> {
    /// The document and each schema in it with an identifier of its own.
    resources: Vec<(&'a str, &'a Value)>,
    anchors: BTreeMap<&'a str, Vec<&'a Value>>,
}

impl<'a> Document<'a> {
    fn read(root: &'a Value) -> Document<'a> {
        let id = root.get("$id").and_then(Value::as_str).unwrap_or_default();
        let mut document = Document { resources: vec![(id, root)], anchors: BTreeMap::new() };
        let mut left = vec![root];
        while let Some(value) = left.pop() {
            match value {
                Value::Array(all) => left.extend(all),
                Value::Object(members) => {
                    left.extend(members.values());
                    document.named(value, members, std::ptr::eq(value, root));
                }
                _ => {}
            }
        }
        document
    }

    fn named(&mut self, value: &'a Value, members: &'a Map<String, Value>, is_root: bool) {
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(Value::String(name)) = members.get(keyword) {
                self.anchors.entry(name).or_default().push(value);
            }
        }
        match members.get("$id") {
            // Draft 7 writes anchors so.
            Some(Value::String(id)) if id.starts_with('#') => {
                self.anchors.entry(&id[1..]).or_default().push(value);
            }
            Some(Value::String(id)) if !is_root => self.resources.push((id, value)),
            _ => {}
        }
    }

    /// Whether a reference means a schema of schemas. One that this document extends is not known.
    fn is_with_it(&self, reference: &str) -> bool {
        let base = reference.split('#').next().unwrap_or_default();
        WITH_IT.contains(&base) && !self.anchors.contains_key("meta")
    }

    /// Whatever a reference may mean: more than one where that depends on the way there.
    fn targets(&self, reference: &str) -> Vec<&'a Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment: String =
            percent_encoding::percent_decode_str(fragment).decode_utf8_lossy().into_owned();
        let meant =
            |id: &str| base.is_empty() || id.split('#').next().is_some_and(|id| same_document(id, base));
        let resources = self.resources.iter().filter(|(id, _)| meant(id)).map(|(_, value)| *value);
        match fragment.as_str() {
            "" if base.is_empty() => resources.collect(),
            "" => resources.collect(),
            pointer if pointer.starts_with('/') => resources.filter_map(|r| r.pointer(pointer)).collect(),
            anchor => self.anchors.get(anchor).cloned().unwrap_or_default(),
        }
    }
}

/// Whether a reference's base may name the document with this identifier: one of them can be relative to the other.
fn same_document(id: &str, base: &str) -> bool {
    let tail = |s: &str| s.trim_end_matches('/').rsplit('/').next().map(str::to_owned).unwrap_or_default();
    id == base || tail(id) == tail(base)
}

/// The subschemas that can be reached, and how.
struct Graph<'a> {
    document: Document<'a>,
    known: HashMap<*const Value, usize>,
    nodes: Vec<Node>,
    left: Vec<(usize, &'a Value)>,
}

impl<'a> Graph<'a> {
    fn of(root: &'a Value) -> Result<Vec<Node>, NoBound> {
        let mut graph = Graph {
            document: Document::read(root),
            known: HashMap::new(),
            nodes: Vec::new(),
            left: Vec::new(),
        };
        graph.node(root);
        while let Some((at, schema)) = graph.left.pop() {
            if let Value::Object(members) = schema {
                let node = graph.read(members)?;
                graph.nodes[at] = node;
            }
        }
        Ok(graph.nodes)
    }

    fn node(&mut self, schema: &'a Value) -> usize {
        if let Some(at) = self.known.get(&std::ptr::from_ref(schema)) {
            return *at;
        }
        let at = self.nodes.len();
        self.nodes.push(Node::default());
        self.known.insert(schema, at);
        self.left.push((at, schema));
        at
    }

    /// Those of a list or an object of schemas. Names of members, which draft 7 has among them, are none.
    fn several(&mut self, value: Option<&'a Value>) -> Vec<usize> {
        let all: Vec<&'a Value> = match value {
            Some(Value::Array(all)) => all.iter().collect(),
            Some(Value::Object(members)) => members.values().collect(),
            _ => Vec::new(),
        };
        all.into_iter().filter(|v| v.is_object() || v.is_boolean()).map(|v| self.node(v)).collect()
    }

    fn read(&mut self, members: &'a Map<String, Value>) -> Result<Node, NoBound> {
        let mut node = Node {
            twice: members.contains_key("unevaluatedProperties") || members.contains_key("unevaluatedItems"),
            ..Node::default()
        };
        if let Some(Value::Array(options)) = members.get("enum")
            && !options.iter().all(Value::is_string)
            && !options.iter().all(Value::is_number)
        {
            // Those of several kinds are compared one after the other.
            node.compared = options.len() as u64 / 8;
        }
        for keyword in ["$ref", "$dynamicRef"] {
            if let Some(Value::String(reference)) = members.get(keyword) {
                let targets = self.document.targets(reference);
                if targets.is_empty() && self.document.is_with_it(reference) {
                    node.besides = node.besides.saturating_add(COST_OF_IT);
                } else if targets.is_empty() {
                    return Err(NoBound::Elsewhere(reference.clone()));
                }
                node.same.extend(targets.into_iter().map(|t| self.node(t)));
            }
        }
        for keyword in SAME {
            node.same.extend(members.get(keyword).map(|v| self.node(v)));
        }
        for keyword in SAME_SEVERAL {
            node.same.extend(self.several(members.get(keyword)));
        }
        for keyword in ["properties", "prefixItems"] {
            node.named.extend(self.several(members.get(keyword)));
        }
        node.inside.extend(self.several(members.get("patternProperties")));
        for keyword in INSIDE {
            match members.get(keyword) {
                // Draft 7: one for each place.
                Some(list @ Value::Array(_)) => node.named.extend(self.several(Some(list))),
                Some(schema) => node.inside.push(self.node(schema)),
                None => {}
            }
        }
        Ok(node)
    }
}

/// The nodes, each behind all that apply to the same value as it does.
fn order(nodes: &[Node]) -> Result<Vec<usize>, NoBound> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let mut seen = vec![Seen::No; nodes.len()];
    let mut ordered = Vec::with_capacity(nodes.len());
    for start in 0..nodes.len() {
        let mut path = vec![(start, 0)];
        while let Some((at, next)) = path.pop() {
            if next == 0 {
                if seen[at] == Seen::Done {
                    continue;
                }
                seen[at] = Seen::Open;
            }
            match nodes[at].same.get(next) {
                Some(to) => {
                    path.push((at, next + 1));
                    match seen[*to] {
                        Seen::Open => return Err(NoBound::Endless),
                        Seen::No => path.push((*to, 0)),
                        Seen::Done => {}
                    }
                }
                None => {
                    seen[at] = Seen::Done;
                    ordered.push(at);
                }
            }
        }
    }
    Ok(ordered)
}

impl Work {
    /// Counts.
    ///
    /// # Errors
    /// [`NoBound`]: the schema is not to be used.
    pub fn of(schema: &Value) -> Result<Work, NoBound> {
        let nodes = Graph::of(schema)?;
        let ordered = order(&nodes)?;
        let mut above = vec![0_u64; nodes.len()];
        let mut at_depth = Vec::new();
        for depth in 0..=DEEPEST {
            let mut here = vec![0_u64; nodes.len()];
            for &at in &ordered {
                let node = &nodes[at];
                let own = if depth == 0 {
                    node.compared.saturating_add(1)
                } else {
                    let named = node.named.iter().map(|n| above[*n]).max().unwrap_or(0);
                    node.inside.iter().fold(named, |sum, n| sum.saturating_add(above[*n]))
                };
                let own = own.saturating_add(node.besides);
                let same = node.same.iter().fold(own, |sum, n| sum.saturating_add(here[*n]));
                here[at] = if node.twice { same.saturating_mul(2) } else { same };
            }
            if here[0] == 0 {
                break;
            }
            at_depth.push(here[0]);
            above = here;
        }
        let of_one = at_depth.iter().take(4).fold(0, |sum: u64, n| sum.saturating_add(*n));
        if of_one > MOST_OF_ONE {
            return Err(NoBound::TooMuch);
        }
        let (wrong, plain) = widest(schema);
        Ok(Work { at_depth, wrong, plain })
    }

    /// Whether a value can be checked within the bound.
    pub fn takes(&self, value: &Value) -> bool {
        self.at_depth.iter().all(|n| *n <= FEW) || self.evaluations(value) <= MOST
    }

    /// What can be told about this value, which doesn't fit.
    pub fn telling(&self, value: &Value) -> Telling {
        match self.evaluations(value).saturating_mul(self.wrong) {
            0..=MOST_ERRORS => Telling::All,
            _ if self.plain => Telling::First,
            _ => Telling::Nothing,
        }
    }

    /// The most evaluations that checking this value takes.
    fn evaluations(&self, value: &Value) -> u64 {
        let mut counts = [0_u64; DEEPEST + 1];
        let mut left = vec![(value, 0)];
        while let Some((value, depth)) = left.pop() {
            counts[depth.min(DEEPEST)] += 1;
            match value {
                Value::Array(all) => left.extend(all.iter().map(|v| (v, depth + 1))),
                Value::Object(members) => left.extend(members.values().map(|v| (v, depth + 1))),
                _ => {}
            }
        }
        counts
            .iter()
            .zip(&self.at_depth)
            .fold(0_u64, |sum, (values, each)| sum.saturating_add(values.saturating_mul(*each)))
    }
}

/// The most that one evaluation finds wrong (of names that must be there, each that is missing), and whether there is no
/// choice between schemas: where there is, a validator collects what is wrong with each.
fn widest(schema: &Value) -> (u64, bool) {
    let (mut most, mut plain) = (4, true);
    let mut left = vec![("", schema)];
    while let Some((word, value)) = left.pop() {
        match value {
            Value::Array(all) => {
                if word != "enum" && all.iter().all(Value::is_string) {
                    most = most.max(all.len() as u64);
                }
                left.extend(all.iter().map(|v| ("", v)));
            }
            Value::Object(members) => {
                plain &= !["anyOf", "oneOf"].iter().any(|word| members.contains_key(*word));
                left.extend(members.iter().map(|(word, v)| (word.as_str(), v)));
            }
            _ => {}
        }
    }
    (most, plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn work(schema: &Value) -> Vec<u64> {
        Work::of(schema).unwrap().at_depth
    }

    /// A chain of `levels` definitions, each of which applies the next one twice.
    fn doubling(levels: usize) -> Value {
        let mut defs = Map::new();
        for n in 0..levels {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            defs.insert(format!("d{n}"), json!({ "allOf": [next, next] }));
        }
        defs.insert(format!("d{levels}"), json!({ "type": "object" }));
        json!({ "type": "object", "$defs": defs, "$ref": "#/$defs/d0" })
    }

    #[test]
    fn what_applies_to_one_value_adds_up_and_members_do_not() {
        assert_eq!(work(&json!({ "type": "object" })), [1]);
        let flat = json!({ "properties": { "a": {}, "b": { "items": { "type": "string" } } } });
        assert_eq!(work(&flat), [1, 1, 1]);
        let both = json!({ "allOf": [{ "properties": { "a": {} } }, { "properties": { "a": {} } }] });
        assert_eq!(work(&both), [3, 2]);
        // The root, a reference to `d0`, and in it one leaf reference twice each level.
        assert_eq!(work(&doubling(2)), [1 + 1 + 2 + 2 + 4 + 4]);
    }

    #[test]
    fn references_that_fan_out_are_refused_however_they_are_written() {
        assert_eq!(Work::of(&doubling(27)).unwrap_err(), NoBound::TooMuch);
        let mut inside = doubling(27);
        let reference = inside.as_object_mut().unwrap().remove("$ref").unwrap();
        inside["properties"] = json!({ "a": { "$ref": reference } });
        assert_eq!(Work::of(&inside).unwrap_err(), NoBound::TooMuch);
        let anchored = json!({ "$ref": "#a", "$defs": { "a": { "$anchor": "a", "type": "object" } } });
        assert_eq!(work(&anchored), [2]);
        let resource = json!({ "$id": "https://example.com/a", "$ref": "b#/$defs/c",
            "$defs": { "b": { "$id": "b", "$defs": { "c": { "items": {} } } } } });
        assert_eq!(work(&resource), [2, 1]);
    }

    #[test]
    fn what_never_ends_is_refused_and_recursion_into_values_is_not() {
        let endless = json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "$ref": "#/$defs/a" } },
            "properties": { "x": { "$ref": "#/$defs/a" } } });
        assert_eq!(Work::of(&endless).unwrap_err(), NoBound::Endless);
        assert_eq!(Work::of(&json!({ "$ref": "#" })).unwrap_err(), NoBound::Endless);
        assert!(matches!(Work::of(&json!({ "$ref": "#/nowhere" })), Err(NoBound::Elsewhere(_))));
        let tree = json!({ "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } } });
        assert!(work(&tree).iter().all(|n| *n <= 2));
    }

    #[test]
    fn arguments_that_would_take_too_long_are_told_apart() {
        // Three kinds of node, each of which may hold any of them: three times as much with every level.
        let kind = json!({ "properties": { "next": { "$ref": "#/$defs/any" } } });
        let schema = json!({ "$defs": { "any": { "anyOf": [kind, kind, kind] } }, "$ref": "#/$defs/any" });
        let work = Work::of(&schema).unwrap();
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({ "next": inner }));
        assert!(work.takes(&nested(6)));
        assert!(!work.takes(&nested(40)));
        let many = json!({ "next": vec![json!(1); 50_000] });
        assert!(work.takes(&many));
    }

    #[test]
    fn schemas_of_schemas_can_be_referred_to_unless_they_are_extended() {
        for with_it in WITH_IT {
            for reference in [with_it.to_owned(), format!("{with_it}#")] {
                let schema = json!({ "properties": { "schema": { "$ref": reference } } });
                assert_eq!(work(&schema)[1], 1 + COST_OF_IT);
                let mut extended = schema;
                extended["$dynamicAnchor"] = json!("meta");
                assert!(matches!(Work::of(&extended), Err(NoBound::Elsewhere(_))));
            }
        }
    }

    #[test]
    fn long_choices_of_several_kinds_count() {
        let options: Vec<Value> = (0..5000).map(|n| json!(n)).collect();
        let same = json!({ "items": { "enum": options } });
        let of_two_kinds = [options, vec![json!("one")]].concat();
        let mixed = json!({ "items": { "enum": of_two_kinds } });
        let many = json!(vec![1; 20_000]);
        assert!(Work::of(&same).unwrap().takes(&many));
        assert!(!Work::of(&mixed).unwrap().takes(&many));
        assert!(Work::of(&mixed).unwrap().takes(&json!(vec![1; 2000])));
    }

    #[test]
    fn no_more_errors_are_collected_than_memory_is_for() {
        let names: Vec<String> = (0..100).map(|n| format!("member{n}")).collect();
        let all = |n| json!(vec![json!({}); n]);
        let plain = Work::of(&json!({ "items": { "required": names } })).unwrap();
        assert_eq!(plain.telling(&all(100)), Telling::All);
        assert_eq!(plain.telling(&all(20_000)), Telling::First);
        let either = Work::of(&json!({ "items": { "anyOf": [{ "required": names }] } })).unwrap();
        assert_eq!(either.telling(&all(20_000)), Telling::Nothing);
    }
}
