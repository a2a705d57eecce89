//! The carriers of an idempotency key. All that are present must be equal.
//!
//! Programs use `params.idempotencyKey`, `_meta["dev.counterfoil/idempotency-key"]` or the HTTP header
//! `Idempotency-Key` (an RFC 8941 string, or bare); a model uses the argument `idempotency_key`. A tool may
//! derive one from arguments that already name the intent (`key_from`); an explicit key overrides it.
//!
//! A call without any of these may have a name instead ([`META_CALL`]), given by a part of this server that sends it again
//! where its client asked once. A name is a weak key: it finds its own operation, however long ago; where there is none,
//! the call is what it would be without it.

use crate::arguments::KEY_ARGUMENT;
use calls::key::{Carried, Carriers, Trouble};
use http::{Extensions, HeaderMap};
use ledger::canonical::canonicalise;
use ledger::operation::Unkeyed;
use ledger::{CallError, CallerKey, Carrier, Key};
use mcp::error::RpcError;
use mcp::json::{Raw, RawObject};
use mcp::meta::RequestMeta;
use mcp::server::{Caller, InBatch};

pub use calls::key::{HEADER, META_KEY};

/// The place of a call's name in `_meta`.
pub const META_CALL: &str = "dev.counterfoil/call";
/// The longest name, in bytes.
const MAX_NAME: usize = 128;

/// Says, in [`mcp::server::Caller::extensions`], that the names of this caller's calls are to be believed: whoever made
/// them never gives two calls the same one, and sends a call again only when its answer can't come any more.
#[derive(Clone, Copy, Debug)]
pub struct NamesCalls;

/// The name of a call without a key, as the weak key that it is. None where nobody vouches for names, where every call
/// must have a key of its own, and where it is no name.
pub(crate) fn name(extensions: &Extensions, meta: &RequestMeta, unkeyed: Unkeyed) -> Option<CallerKey> {
    if unkeyed == Unkeyed::Reject || extensions.get::<NamesCalls>().is_none() {
        return None;
    }
    let name = meta.get(META_CALL)?;
    let name = name.as_string().filter(|n| !n.is_empty() && n.len() <= MAX_NAME)?;
    // As a model's: its twin is looked for where the key is not known.
    Key::new(&format!("call-{name}")).ok().map(|key| CallerKey { key, carrier: Carrier::Argument })
}

/// A key that can't be taken: told to whoever can act on it.
#[derive(Debug)]
pub enum KeyTrouble {
    /// A program's: the request is malformed.
    Program(Box<RpcError>),
    /// A model's: a tool error.
    Model(Box<CallError>),
}

/// Whether the header is the key of one call alone: in a batch it would be that of all.
///
/// # Errors
/// -32602. Nothing ran.
pub fn not_shared(caller: &Caller) -> Result<(), RpcError> {
    let several = caller.extensions.get::<InBatch>().is_some_and(|batch| batch.calls > 1);
    if several && caller.headers.contains_key(HEADER) {
        return Err(RpcError::malformed(
            "Idempotency-Key: one header can't be the key of several calls in a batch; give each call its own in its \
             params",
        ));
    }
    Ok(())
}

impl From<Trouble> for KeyTrouble {
    fn from(trouble: Trouble) -> KeyTrouble {
        match trouble {
            Trouble::Program(why) => KeyTrouble::Program(Box::new(RpcError::malformed(why))),
            Trouble::Model(e) => KeyTrouble::Model(e),
        }
    }
}

/// The key of an execution outside of MCP, where it is carried beside the body: in the header, or in the argument.
///
/// # Errors
/// [`KeyTrouble`], as of [`find`].
pub(crate) fn beside(
    headers: &HeaderMap,
    arguments: Option<&RawObject>,
    argument_is_ours: bool,
) -> Result<Option<CallerKey>, KeyTrouble> {
    let argument = arguments.filter(|_| argument_is_ours).and_then(|a| a.get(KEY_ARGUMENT));
    let argument = carried(argument.as_ref());
    Ok(calls::key::find(Carriers { params: Carried::Absent, meta: Carried::Absent, headers, argument })?)
}

/// Finds the call's key.
///
/// # Errors
/// [`KeyTrouble`]: a carrier is malformed, or two disagree. Nothing ran.
pub fn find(
    headers: &HeaderMap,
    meta: &RequestMeta,
    params: &RawObject,
    arguments: Option<&RawObject>,
    argument_is_ours: bool,
    key_from: &[String],
) -> Result<Option<CallerKey>, KeyTrouble> {
    let params = params.get("idempotencyKey");
    let of_meta = meta.get(META_KEY);
    let argument = arguments.filter(|_| argument_is_ours).and_then(|a| a.get(KEY_ARGUMENT));
    let carriers = Carriers {
        params: carried(params.as_ref()),
        meta: carried(of_meta.as_ref()),
        headers,
        argument: carried(argument.as_ref()),
    };
    let mut found = calls::key::find(carriers)?;
    if found.is_none() {
        found = derived(arguments, key_from);
    }
    Ok(found)
}

fn carried(value: Option<&Raw>) -> Carried<'_> {
    match value.map(Raw::as_string) {
        None => Carried::Absent,
        Some(Some(text)) => Carried::Text(text),
        Some(None) => Carried::Other,
    }
}

/// A key from the arguments that name the intent; none if there are no such, or one of them is absent or null.
pub(crate) fn derived(arguments: Option<&RawObject>, names: &[String]) -> Option<CallerKey> {
    use sha2::{Digest, Sha256};
    if names.is_empty() {
        return None;
    }
    let mut h = Sha256::new();
    for name in names {
        let v = arguments?.get(name).filter(|v| !v.is_null())?;
        let canonical = canonicalise(v.as_str()).ok()?;
        for part in [name.as_bytes(), canonical.as_str().as_bytes()] {
            h.update((part.len() as u64).to_be_bytes());
            h.update(part);
        }
    }
    let hex = ledger::effect::hex(&h.finalize());
    Key::new(&format!("from-{hex}")).ok().map(|key| CallerKey { key, carrier: Carrier::Program })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_weak_key_where_somebody_vouches_for_it() {
        let meta = |name: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{{{META_CALL:?}:{name}}}}}}}"#
            );
            let message = mcp::message::parse(&text.into(), &mcp::json::Limits::default()).unwrap();
            let mcp::message::Message::Request(request) = message else { panic!("no request") };
            let nothing = RawObject::empty().raw();
            RequestMeta::legacy(&request, mcp::Revision::V2025_11_25, nothing, None, None).unwrap()
        };
        let (nobody, mut vouched) = (Extensions::new(), Extensions::new());
        vouched.insert(NamesCalls);
        for policy in [Unkeyed::Guard, Unkeyed::New] {
            let found = name(&vouched, &meta("\"front-1\""), policy).unwrap();
            assert_eq!((found.key.as_str(), found.carrier), ("call-front-1", Carrier::Argument));
        }
        assert!(name(&nobody, &meta("\"front-1\""), Unkeyed::Guard).is_none());
        assert!(name(&vouched, &meta("\"front-1\""), Unkeyed::Reject).is_none());
        let long = format!("{:?}", "x".repeat(129));
        for odd in ["7", "null", "\"\"", "\"a\\nb\"", long.as_str()] {
            assert!(name(&vouched, &meta(odd), Unkeyed::Guard).is_none(), "{odd}");
        }
    }

    #[test]
    fn keys_are_derived_from_values_not_spelling() {
        let a = |s: &str| mcp::json::RawObject::parse(s.to_owned(), &mcp::json::Limits::default()).unwrap();
        let names = vec!["order_id".to_owned()];
        let one = derived(Some(&a(r#"{"order_id":1.0,"x":1}"#)), &names).unwrap();
        let same = derived(Some(&a(r#"{"order_id":1,"x":2}"#)), &names).unwrap();
        let other = derived(Some(&a(r#"{"order_id":2}"#)), &names).unwrap();
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert!(derived(Some(&a("{}")), &names).is_none());
        assert!(derived(Some(&a(r#"{"order_id":null}"#)), &names).is_none());
    }
}
