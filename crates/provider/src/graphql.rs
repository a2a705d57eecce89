//! GraphQL documents as methods: one fixed operation, whose variables are the arguments.
//!
//! A document is the operator's and never changes with a call, so nothing that a caller writes can become a part of it.
//! The effect key is a variable's value, or stands in a directive of the document; either way it is the gateway's.

use crate::encode::{self, Node};
use crate::method::Place;
use crate::policy::{Carrier, Keys};
use crate::template::Spliced;
use apollo_parser::cst::{self, CstNode};
use apollo_parser::{Parser, SyntaxTree};
use serde_json::{Map, Value, json};

/// The longest document, in bytes.
const MAX_DOCUMENT: usize = 64 << 10;
/// The deepest nesting of one, and its most words and signs.
const MAX_DEPTH: usize = 64;
const MAX_TOKENS: usize = 20_000;
/// What stands for the effect key in a document.
const HOLE: &str = "{$key}";
/// Where variables are in a request's body.
pub(crate) const VARIABLES: &str = "variables";

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Query,
    Mutation,
}

/// A variable that a document declares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: String,
    /// The JSON Schema of its value, as far as its type tells.
    schema: Value,
    /// It must be given: its type excludes null, and it has no default.
    required: bool,
}

/// What a directive gives as an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    Variable(String),
    /// A text that is the effect key's hole and nothing else.
    Hole,
    Other,
}

/// An argument of a directive on the operation or on the field that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directive {
    name: String,
    argument: String,
    given: Given,
}

/// What of a method stands beside its document.
pub(crate) struct Beside<'a> {
    /// Arguments in the path.
    pub path: &'a [String],
    /// Arguments that the marker's text takes up.
    pub text: &'a [String],
    pub places: &'a [(String, Place)],
    /// Fields of the body that the gateway fills.
    pub filled: &'a [&'a [String]],
}

impl Beside<'_> {
    /// How deep in a variable something is filled in by the gateway, if it is in this one.
    fn filled(&self, variable: &str) -> Option<usize> {
        let depth = |path: &&[String]| match path {
            [head, name, rest @ ..] if head == VARIABLES && name == variable => Some(rest.len() + 1),
            _ => None,
        };
        self.filled.iter().filter_map(depth).min()
    }
}

/// A document, checked: one operation, and for a mutation one field, so that it is one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    text: String,
    pub kind: Kind,
    variables: Vec<Variable>,
    directives: Vec<Directive>,
    /// Under which name the first selected field is answered.
    pub field: String,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Document, String> {
        if text.len() > MAX_DOCUMENT {
            return Err(format!("the document is longer than {} KiB", MAX_DOCUMENT >> 10));
        }
        let tree: SyntaxTree = Parser::new(text).recursion_limit(MAX_DEPTH).token_limit(MAX_TOKENS).parse();
        if let Some(e) = tree.errors().next() {
            let line = text.bytes().take(e.index()).filter(|b| *b == b'\n').count() + 1;
            return Err(format!("it is not a GraphQL document, line {line} of it: {}", e.message()));
        }
        let mut operation = None;
        for definition in tree.document().definitions() {
            match definition {
                cst::Definition::OperationDefinition(o) if operation.is_none() => operation = Some(o),
                cst::Definition::OperationDefinition(_) => {
                    return Err("the document has two operations; a method is one".into());
                }
                cst::Definition::FragmentDefinition(_) => {}
                other => return Err(format!("a {} has no place in a request's document", other.kind())),
            }
        }
        let operation = operation.ok_or("the document has no operation")?;
        let kind = match operation.operation_type() {
            Some(t) if t.mutation_token().is_some() => Kind::Mutation,
            Some(t) if t.subscription_token().is_some() => {
                return Err("a subscription is no call; only queries and mutations are".into());
            }
            _ => Kind::Query,
        };
        let field = selected(&operation, kind)?;
        let mut variables: Vec<Variable> = Vec::new();
        for definition in operation.variable_definitions().iter().flat_map(|v| v.variable_definitions()) {
            let variable = variable(&definition)?;
            if variables.iter().any(|v| v.name == variable.name) {
                return Err(format!("the variable ${} is declared twice", variable.name));
            }
            variables.push(variable);
        }
        let mut directives = directives_of(operation.directives());
        directives.extend(directives_of(field.directives()));
        let name = match field.alias().and_then(|a| a.name()).or_else(|| field.name()) {
            Some(name) => name.text().to_string(),
            None => return Err("the operation selects a field without a name".into()),
        };
        Ok(Document { text: text.trim().to_owned(), kind, variables, directives, field: name })
    }

    fn declares(&self, name: &str) -> bool {
        self.variables.iter().any(|v| v.name == name)
    }

    /// The keys as this document carries them; with the reason where it has no place for one.
    ///
    /// # Errors
    /// It has a place for one that is taken.
    pub(crate) fn place(&self, keys: &Keys) -> Result<Result<Keys, String>, String> {
        let carrier = match &keys.carrier {
            Carrier::Variable(path) => {
                let first = path.first().map(String::as_str).unwrap_or_default();
                if !self.declares(first) {
                    return Ok(Err(format!(
                        "the key is the variable `{}`, and the document declares no ${first}",
                        path.join(".")
                    )));
                }
                Carrier::Body([vec![VARIABLES.to_owned()], path.clone()].concat())
            }
            Carrier::Directive { name, argument } => {
                let mut all = self.directives.iter().filter(|d| d.name == *name && d.argument == *argument);
                match (all.next(), all.next()) {
                    (None, _) => {
                        return Ok(Err(format!(
                            "the key is an argument of the directive @{name}({argument}: …), which the document has \
                             neither on its operation nor on the field that it selects"
                        )));
                    }
                    (Some(_), Some(_)) => return Err(format!("the directive @{name} stands there twice")),
                    (Some(Directive { given: Given::Hole, .. }), None) => keys.carrier.clone(),
                    (Some(Directive { given: Given::Variable(v), .. }), None) if self.declares(v) => {
                        Carrier::Body(vec![VARIABLES.to_owned(), v.clone()])
                    }
                    (Some(Directive { given: Given::Variable(v), .. }), None) => {
                        return Err(format!(
                            "the document declares no ${v}, which the directive @{name} names"
                        ));
                    }
                    (Some(_), None) => {
                        return Err(format!(
                            "the key is the gateway's: write @{name}({argument}: \"{HOLE}\"), or a variable"
                        ));
                    }
                }
            }
            Carrier::Body(path) if path.first().is_some_and(|p| p == "query") => {
                return Err("the key can't be the field `query`, which is the document".into());
            }
            other => other.clone(),
        };
        Ok(Ok(Keys { carrier, ..keys.clone() }))
    }

    /// Whether the holes in the document are where the key goes, and nowhere else.
    pub(crate) fn check_holes(&self, keys: Option<&Keys>) -> Result<(), String> {
        let carried = usize::from(matches!(keys, Some(Keys { carrier: Carrier::Directive { .. }, .. })));
        if self.text.matches(HOLE).count() == carried {
            return Ok(());
        }
        Err(format!(
            "{HOLE} stands for the effect key in the directive that carries it (carrier = \"graphql_directive\"), and \
             nowhere else"
        ))
    }

    /// Where a `params` entry leads: variables are named as such, for the rest of the body is the document's.
    pub(crate) fn param(&self, name: &str, text: &str) -> Result<String, String> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match kind {
            "variable" => {
                let path = self.variable(rest.unwrap_or(name)).map_err(|e| format!("`{name}`: {e}"))?;
                let escaped: Vec<String> =
                    path.iter().map(|p| p.replace('~', "~0").replace('/', "~1")).collect();
                Ok(format!("body:/{}", escaped.join("/")))
            }
            "body" | "document" => Err(format!(
                "`{name}`: the body is the document and its variables; write \"variable\" or \"variable:input.amount\""
            )),
            _ => Ok(text.to_owned()),
        }
    }

    /// Where a variable, or a field of one, is in the body.
    pub(crate) fn variable(&self, text: &str) -> Result<Vec<String>, String> {
        let path = crate::text::field_path(text)?;
        let first = path.first().map(String::as_str).unwrap_or_default();
        if !self.declares(first) {
            return Err(format!("the document declares no variable ${first}"));
        }
        Ok([vec![VARIABLES.to_owned()], path].concat())
    }

    /// The document of a look-up, to which these variables are given; from the second page on with a `cursor`.
    ///
    /// # Errors
    /// It is no query, or the variables are others than it declares.
    pub(crate) fn asks(text: &str, given: &[&str], cursor: Option<&str>) -> Result<String, String> {
        let document = Document::parse(text)?;
        if document.kind != Kind::Query {
            return Err("a look-up changes nothing, so its document is a query".into());
        }
        document.check_holes(None)?;
        if let Some(name) = given.iter().copied().chain(cursor).find(|name| !document.declares(name)) {
            return Err(format!("the look-up's document declares no variable ${name}"));
        }
        match document.variables.iter().find(|v| v.required && !given.contains(&v.name.as_str())) {
            Some(v) if cursor == Some(&v.name) => {
                Err(format!("the look-up's first page has no cursor, and its document needs ${}", v.name))
            }
            Some(v) => {
                Err(format!("the look-up's document needs the variable ${}; add it to `variables`", v.name))
            }
            None => Ok(document.text),
        }
    }

    /// Where an argument goes that nobody placed.
    pub(crate) fn default_place(&self, name: &str) -> Option<Place> {
        self.declares(name).then(|| Place::Body(vec![VARIABLES.to_owned(), name.to_owned()]))
    }

    /// The schema of the arguments where a manifest has none: the variables, less what has another place or is filled.
    pub(crate) fn input(&self, beside: &Beside<'_>) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for name in beside.path {
            properties.insert(name.clone(), json!({ "type": "string", "minLength": 1 }));
            required.push(name.clone());
        }
        for name in beside.places.iter().map(|(name, _)| name).chain(beside.text) {
            properties.entry(name.clone()).or_insert_with(|| json!({}));
        }
        for v in &self.variables {
            // A variable that is filled as a whole is no argument; one that is filled in parts has them as arguments.
            let placed = beside.places.iter().any(|(_, p)| into(p) == Some(&v.name));
            if beside.filled(&v.name) == Some(1) || placed {
                continue;
            }
            properties.insert(v.name.clone(), v.schema.clone());
            if v.required && beside.filled(&v.name).is_none() {
                required.push(v.name.clone());
            }
        }
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    }

    /// Whether arguments and variables agree.
    pub(crate) fn check(&self, input: &Value, beside: &Beside<'_>) -> Result<(), String> {
        let Beside { path, text, places, .. } = beside;
        let Some(properties) = input.get("properties").and_then(Value::as_object) else { return Ok(()) };
        for name in properties.keys() {
            let placed = path.contains(name) || text.contains(name) || places.iter().any(|(n, _)| n == name);
            if !placed && !self.declares(name) {
                return Err(format!(
                    "`{name}` is no variable of the document; declare ${name}, or give it a place: params = {{ {name} = \
                     \"variable:input.{name}\" }}"
                ));
            }
        }
        for v in self.variables.iter().filter(|v| v.required) {
            let given = properties.contains_key(&v.name) && !path.contains(&v.name)
                || places.iter().any(|(_, p)| into(p) == Some(&v.name))
                || beside.filled(&v.name).is_some();
            if !given {
                return Err(format!(
                    "the document needs the variable ${}, and no argument fills it; add it to `input`",
                    v.name
                ));
            }
        }
        Ok(())
    }

    /// A request's body: the document, and beside it what was filled in.
    pub(crate) fn body(&self, fields: &[(String, Node)]) -> Spliced {
        let mut out = Spliced::text("{\"query\":\"");
        for (i, piece) in self.text.split(HOLE).enumerate() {
            if i > 0 {
                out.push_key();
            }
            let quoted = Value::from(piece).to_string();
            out.push_str(quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or_default());
        }
        out.push_str("\"");
        if fields.is_empty() {
            out.push_str("}");
            return out;
        }
        let mut beside = Spliced::default();
        encode::write_json(fields, &mut beside);
        out.push_str(",");
        out.push_after("{", &beside);
        out
    }
}

/// The variable that an argument with this place goes into.
fn into(place: &Place) -> Option<&String> {
    match place {
        Place::Body(path) if path.first().is_some_and(|p| p == VARIABLES) => path.get(1),
        _ => None,
    }
}

/// The first field that an operation selects; of a mutation the only one.
fn selected(operation: &cst::OperationDefinition, kind: Kind) -> Result<cst::Field, String> {
    let selections: Vec<cst::Selection> =
        operation.selection_set().iter().flat_map(|s| s.selections()).collect();
    match (kind, selections.as_slice()) {
        (Kind::Mutation, [cst::Selection::Field(one)]) => Ok(one.clone()),
        (Kind::Mutation, _) => Err(
            "a mutation must select exactly one field, so that it is one effect; make several methods of it"
                .into(),
        ),
        (Kind::Query, all) => all
            .iter()
            .find_map(|s| match s {
                cst::Selection::Field(field) => Some(field.clone()),
                _ => None,
            })
            .ok_or_else(|| "a query must select a field".into()),
    }
}

fn variable(definition: &cst::VariableDefinition) -> Result<Variable, String> {
    let name =
        definition.variable().and_then(|v| v.name()).ok_or("a variable has no name")?.text().to_string();
    let ty = definition.ty().ok_or_else(|| format!("the variable ${name} has no type"))?;
    let required = matches!(ty, cst::Type::NonNullType(_)) && definition.default_value().is_none();
    Ok(Variable { name, schema: schema_of(&ty), required })
}

/// What JSON a type admits. Of input objects, enumerations and scalars of a provider's own nothing is known here.
fn schema_of(ty: &cst::Type) -> Value {
    let named = |name: Option<cst::NamedType>| match name
        .and_then(|n| n.name())
        .map(|n| n.text().to_string())
        .as_deref()
    {
        Some("String" | "ID") => json!({ "type": "string" }),
        Some("Int") => json!({ "type": "integer" }),
        Some("Float") => json!({ "type": "number" }),
        Some("Boolean") => json!({ "type": "boolean" }),
        _ => json!({}),
    };
    let list = |list: Option<cst::ListType>| match list.and_then(|l| l.ty()) {
        Some(of) => json!({ "type": "array", "items": schema_of(&of) }),
        None => json!({ "type": "array" }),
    };
    match ty {
        cst::Type::NamedType(name) => named(Some(name.clone())),
        cst::Type::ListType(of) => list(Some(of.clone())),
        cst::Type::NonNullType(of) => match of.list_type() {
            Some(of) => list(Some(of)),
            None => named(of.named_type()),
        },
    }
}

fn directives_of(all: Option<cst::Directives>) -> Vec<Directive> {
    let mut out = Vec::new();
    for directive in all.iter().flat_map(|d| d.directives()) {
        let Some(name) = directive.name() else { continue };
        for argument in directive.arguments().iter().flat_map(|a| a.arguments()) {
            let Some(of) = argument.name() else { continue };
            let given = match argument.value() {
                Some(cst::Value::Variable(v)) => match v.name() {
                    Some(v) => Given::Variable(v.text().to_string()),
                    None => Given::Other,
                },
                Some(cst::Value::StringValue(text))
                    if text.source_string().trim() == format!("\"{HOLE}\"") =>
                {
                    Given::Hole
                }
                _ => Given::Other,
            };
            out.push(Directive { name: name.text().to_string(), argument: of.text().to_string(), given });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_operation_and_of_a_mutation_one_field() {
        let d = Document::parse(
            "mutation Refund($input: RefundInput!, $n: Int = 1, $ids: [ID!]!) { done: refund(input: $input) { id } }",
        )
        .unwrap();
        assert_eq!((d.kind, d.field.as_str()), (Kind::Mutation, "done"));
        assert_eq!(
            d.input(&Beside { path: &[], text: &[], places: &[], filled: &[] }),
            json!({
                "type": "object",
                "properties": {
                    "input": {}, "n": { "type": "integer" },
                    "ids": { "type": "array", "items": { "type": "string" } }
                },
                "required": ["input", "ids"], "additionalProperties": false
            })
        );
        assert_eq!(Document::parse("{ shop { name } }").unwrap().kind, Kind::Query);
        for (text, why) in [
            ("", "line 1"),
            ("fragment F on T { a }", "no operation"),
            ("mutation { a b }", "exactly one field"),
            ("mutation { ...F } fragment F on M { a }", "exactly one field"),
            ("query { ...F } fragment F on Q { a }", "must select a field"),
            ("subscription { a }", "no call"),
            ("query A { a } query B { b }", "two operations"),
            ("type T { a: Int }", "no place"),
            ("mutation { a(", "line 1"),
            ("mutation M($a: Int, $a: Int) { b }", "twice"),
        ] {
            let e = Document::parse(text).unwrap_err();
            assert!(e.contains(why), "{text}: {e}");
        }
        let deep = format!("{{{}}}", "a{".repeat(500));
        assert!(Document::parse(&deep).is_err());
        assert!(Document::parse(&"a".repeat(MAX_DOCUMENT + 1)).unwrap_err().contains("KiB"));
    }
}
