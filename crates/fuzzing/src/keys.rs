//! The carriers of an idempotency key.

use crate::input::{headers, parts};
use crate::tree::{self, Tree};
use gateway::fuzzing::{HEADER, KEY_ARGUMENT, KeyTrouble, META_KEY, find};
use ledger::{Carrier, Key};
use mcp::Revision;
use mcp::json::{Limits, RawObject};
use mcp::message::Message;
use mcp::meta::RequestMeta;

/// A header's key: an RFC 8941 string (section 3.3.3) or what stands there; `None` if it is neither.
fn header_key(value: &[u8]) -> Option<String> {
    if value.iter().any(|b| !(0x20..=0x7e).contains(b) && *b != b'\t') {
        return None;
    }
    let text = String::from_utf8(value.to_vec()).ok()?;
    let text = text.trim_matches(|c| c == ' ' || c == '\t');
    if !text.starts_with('"') {
        return if text.contains('"') { None } else { Some(text.to_owned()) };
    }
    let mut out = String::new();
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match (escaped, c) {
            (true, '"' | '\\') => out.push(c),
            (true, _) => return None,
            (false, '"') => return (i + 1 == text.len()).then_some(out),
            (false, '\\') => {}
            (false, c) => out.push(c),
        }
        escaped = !escaped && c == '\\';
    }
    None
}

/// The metadata of a call with these parameters, if it is admitted at all.
fn meta_of(params: &str) -> Option<RequestMeta> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    match mcp::message::parse(&body.into(), &Limits { depth: 65, ..Limits::default() }) {
        Ok(Message::Request(request)) => {
            RequestMeta::legacy(&request, Revision::V2025_11_25, RawObject::empty().raw(), None, None).ok()
        }
        other => panic!("a call with readable parameters is {other:?}"),
    }
}

/// All carriers that are present must say the same; a program's key is a program's, a model's is a model's; a derived
/// one depends on the values of its arguments and on nothing else. Parts: headers, `params`, arguments.
///
/// # Panics
/// A promise is broken.
pub fn keys(data: &[u8]) {
    let [head, params, arguments] = parts(data);
    let headers = headers(head, |name| name == HEADER);
    let read = |text: &[u8]| RawObject::parse(text.to_vec(), &Limits::default()).ok();
    let Some(params_object) = read(params) else { return };
    let arguments_object = read(arguments);
    let Some(meta) = meta_of(params_object.raw().as_str()) else { return };
    let tree = tree::read(params, 64, true).expect("it was read");
    let arguments_tree = tree::read(arguments, 64, true).filter(|_| arguments_object.is_some());

    // What a program says, in all its places; `None`: not readable.
    let mut said: Vec<Option<String>> = Vec::new();
    let meta_tree = tree.get("_meta").filter(|m| m.is_object());
    for value in [tree.get("idempotencyKey"), meta_tree.and_then(|m| m.get(META_KEY))].into_iter().flatten() {
        said.push(value.text().map(str::to_owned));
    }
    said.extend(headers.get_all(HEADER).iter().map(|value| header_key(value.as_bytes())));
    let said: Vec<Option<Key>> = said.into_iter().map(|text| Key::new(&text?).ok()).collect();
    let good = said.iter().all(Option::is_some) && said.windows(2).all(|two| two[0] == two[1]);
    let program = said.into_iter().flatten().next();

    for ours in [true, false] {
        let argument = arguments_tree.as_ref().and_then(|a| a.get(KEY_ARGUMENT)).filter(|_| ours);
        let model = argument.map(|value| value.text().and_then(|text| Key::new(text).ok()));
        let found = find(&headers, &meta, &params_object, arguments_object.as_ref(), ours, &[]);
        match (&program, model) {
            _ if !good => assert!(matches!(found, Err(KeyTrouble::Program(_))), "{found:?}"),
            (_, Some(None)) => assert!(matches!(found, Err(KeyTrouble::Model(_))), "{found:?}"),
            (Some(key), Some(Some(other))) if *key != other => {
                assert!(matches!(found, Err(KeyTrouble::Model(_))), "{found:?}");
            }
            (Some(key), _) => is(found, key, Carrier::Program),
            (None, Some(Some(key))) => is(found, &key, Carrier::Argument),
            (None, None) => {
                assert!(matches!(found, Ok(None)), "{found:?}");
                if let (Some(object), Some(tree)) = (&arguments_object, &arguments_tree) {
                    derived(&meta, object, tree);
                }
            }
        }
    }
}

fn is(found: Result<Option<ledger::CallerKey>, KeyTrouble>, key: &Key, carrier: Carrier) {
    let found = found.unwrap_or_else(|e| panic!("a good key is refused: {e:?}")).expect("a key was given");
    assert_eq!((&found.key, found.carrier), (key, carrier));
}

/// `key_from` over the first two arguments.
fn derived(meta: &RequestMeta, object: &RawObject, tree: &Tree) {
    let Tree::Object(all) = tree else { return };
    if all.is_empty() {
        return;
    }
    let names: Vec<String> = all.iter().take(2).map(|(name, _)| name.clone()).collect();
    let of = |object: &RawObject, names: &[String]| {
        let params = RawObject::empty();
        find(&http::HeaderMap::new(), meta, &params, Some(object), false, names).expect("nothing disagrees")
    };
    // `meta` may hold a key by itself only where that was found before.
    let found = of(object, &names);
    let null = all.iter().take(2).any(|(_, value)| *value == Tree::Null);
    assert!(!null || found.is_none(), "a key from what is null");
    let Some(found) = found else { return };
    let respelt = RawObject::parse(tree.written(&str::to_owned), &Limits::default()).expect("the same");
    assert_eq!(of(&respelt, &names).as_ref(), Some(&found), "spelling changes a derived key");
    let named: Vec<_> = all.iter().take(2).cloned().collect();
    let fewer =
        RawObject::parse(Tree::Object(named).written(&str::to_owned), &Limits::default()).expect("fewer");
    assert_eq!(of(&fewer, &names).as_ref(), Some(&found), "other arguments change a derived key");
    if names.len() == 2 {
        assert_ne!(of(object, &names[..1]).as_ref(), Some(&found), "an argument doesn't count");
        let absent = [names[0].clone(), format!("{}-{}", names[0], names[1])];
        assert!(tree.get(&absent[1]).is_some() || of(object, &absent).is_none(), "a key from what is absent");
    }
}
