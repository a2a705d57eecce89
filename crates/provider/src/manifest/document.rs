//! A method that is a GraphQL document: how it differs from one whose body is made of its arguments.

use super::parts::{Wrong, wrong};
use crate::graphql::{Document, Kind, VARIABLES};
use crate::parse::Table;
use crate::policy::Keys;
use crate::raw::{RawEffect, RawMethod};

/// The method's document, if it has one.
pub(super) fn read(raw: &RawMethod, verb: &http::Method) -> Result<Option<Document>, Wrong> {
    let Some(text) = &raw.graphql else { return Ok(None) };
    if verb != http::Method::POST {
        return wrong("http", format!("a GraphQL document goes out with POST, not with {verb}"));
    }
    if raw.body.is_some() {
        return wrong("body", "the body is the document and its variables; leave `body` out");
    }
    let document = Document::parse(text).map_err(|e| ("graphql", e))?;
    if document.kind == Kind::Mutation && matches!(raw.effect, Some(RawEffect::Read)) {
        return wrong("effect", "a mutation changes something, so it can't be effect = \"read\"");
    }
    Ok(Some(document))
}

/// The keys as the method carries them, or why it carries none.
pub(super) fn keys(
    document: Option<&Document>,
    covered: Option<&Keys>,
) -> Result<(Option<Keys>, Option<String>), Wrong> {
    let Some(keys) = covered else { return Ok((None, None)) };
    let placed = match document {
        Some(document) => document.place(keys).map_err(|e| ("graphql", e))?,
        None if keys.carrier.is_graphql() => {
            Err("the provider takes a key in GraphQL documents only, and this method has none (`graphql`)"
                .into())
        }
        None => Ok(keys.clone()),
    };
    Ok(match placed {
        Ok(keys) => (Some(keys), None),
        Err(why) => (None, Some(why)),
    })
}

/// Where arguments go: with a document, into its variables.
pub(super) fn params(document: Option<&Document>, given: Table<String>) -> Result<Table<String>, Wrong> {
    let Some(document) = document else { return Ok(given) };
    let placed: Result<Vec<(String, String)>, String> =
        given.0.into_iter().map(|(name, text)| Ok((name.clone(), document.param(&name, &text)?))).collect();
    placed.map(Table).map_err(|e| ("params", e))
}

/// The argument that a field of the body is filled by.
pub(super) fn argument<'a>(document: Option<&Document>, field: &'a [String]) -> &'a [String] {
    match (document, field) {
        (Some(_), [head, rest @ ..]) if head == VARIABLES => rest,
        _ => field,
    }
}
