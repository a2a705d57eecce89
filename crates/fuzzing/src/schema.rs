//! Input schemas: what is compiled, what they accept, and the key argument that is added to some.

use crate::input::parts;
use crate::tree::{self, Tree};
use gateway::fuzzing::{KEY_ARGUMENT, Schema, allows_key, with_key, without};
use mcp::json::{Limits, Raw, RawObject, quote};

/// The most schema that is tried: larger ones cost time and show nothing new.
const MOST: usize = 16 << 10;

/// A schema is compiled or refused, both within bounds; adding the key argument changes nothing for calls without it, and
/// taking it out of a call leaves the rest.
///
/// # Panics
/// A promise is broken.
pub fn schema(data: &[u8]) {
    if data.len() > MOST {
        return;
    }
    let [schema, arguments] = parts(data);
    let Ok(raw) = Raw::parse(schema.to_vec(), &Limits::default()) else { return };
    let tree = tree::read(schema, 64, true).expect("it was read");
    let compiled = match Schema::compile(&raw) {
        Ok(compiled) => compiled,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    assert_eq!(tree.get("type").and_then(Tree::text), Some("object"));
    let root = raw.object().expect("compiled, so it is an object");
    let arguments =
        RawObject::parse(arguments.to_vec(), &Limits::default()).unwrap_or_else(|_| RawObject::empty());
    let verdict = compiled.check(&arguments);
    if let Err(why) = &verdict {
        // Five reasons of 300 characters at most, each with its place.
        let most = 5 * (1300 + 2 * arguments.raw().as_str().len());
        assert!(!why.0.is_empty() && why.0.len() < most, "{} bytes of reasons", why.0.len());
    }
    removed(&arguments);
    if !allows_key(&root) {
        return;
    }
    let more = with_key(&root);
    let extended = tree::read(more.as_str().as_bytes(), 70, true).expect("a schema with the key is JSON");
    let property = extended.get("properties").and_then(|p| p.get(KEY_ARGUMENT)).expect("it has the key");
    assert_eq!(property.get("type").and_then(Tree::text), Some("string"));
    let Ok(compiled_more) = Schema::compile(&more) else {
        panic!("with the key argument it can't be compiled any more: {more}");
    };
    // A schema that speaks of the key itself means something by it.
    let about_key = |name: &str| name.contains(KEY_ARGUMENT);
    let call = tree::read(arguments.raw().as_str().as_bytes(), 64, true).expect("it was read");
    if tree.names(&about_key)
        || tree.names(&|n| n.contains("ref") || n.contains("Ref"))
        || call.names(&about_key)
    {
        return;
    }
    assert_eq!(compiled_more.check(&arguments).is_ok(), verdict.is_ok(), "the key argument changed the rest");
    let keyed = arguments.with(&[(KEY_ARGUMENT, &quote("k"))]).object().expect("an object");
    assert_eq!(compiled_more.check(&keyed).is_ok(), verdict.is_ok(), "a key makes a difference");
    let stripped = without(&keyed, KEY_ARGUMENT);
    assert_eq!(compiled.check(&stripped).is_ok(), verdict.is_ok());
}

/// A member that is taken out is gone, and the others are as they were.
fn removed(arguments: &RawObject) {
    let Some(Tree::Object(all)) = tree::read(arguments.raw().as_str().as_bytes(), 64, true) else {
        panic!("arguments are an object");
    };
    let first = all.first().map_or_else(|| KEY_ARGUMENT.to_owned(), |(name, _)| name.clone());
    let left = without(arguments, &first);
    let wanted: Vec<_> = all.into_iter().filter(|(name, _)| *name != first).collect();
    let found = tree::read(left.raw().as_str().as_bytes(), 64, true);
    assert_eq!(found, Some(Tree::Object(wanted)));
}
