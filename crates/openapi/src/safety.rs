//! What a description says of safety: whether a method changes anything, and how its effect can be repeated.

use crate::document::{Document, text};
use crate::keys::{self, Said};
use crate::keywords::types;
use crate::parameters::Argument;
use crate::schema;
use serde_json::Value;

/// What a call does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Mutating,
}

impl Effect {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Mutating => "mutating",
        }
    }
}

/// Where the effect key travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    /// The argument that it takes the place of.
    pub argument: String,
    /// `header`, `body` or `query`.
    pub place: &'static str,
    /// The provider's name of it, in a body a JSON pointer.
    pub name: String,
    /// What else is known of the provider's keys doesn't hold for it.
    pub unpublished: bool,
}

/// An effect key as it may be.
const SAMPLE: &str = "0189c9f2-7b1e-7a33-9c51-3f0b6a5d2e47";

/// First words of operations that change something, whatever their verb.
const CHANGES: [&str; 34] = [
    "accept",
    "activate",
    "add",
    "approve",
    "cancel",
    "change",
    "charge",
    "clear",
    "close",
    "commit",
    "confirm",
    "create",
    "deactivate",
    "delete",
    "disable",
    "enable",
    "execute",
    "insert",
    "invoke",
    "move",
    "pay",
    "post",
    "publish",
    "refund",
    "remove",
    "reset",
    "revoke",
    "save",
    "send",
    "set",
    "start",
    "stop",
    "trigger",
    "update",
];
/// First words of operations that only look.
const LOOKS: [&str; 10] =
    ["search", "find", "list", "query", "get", "lookup", "fetch", "count", "describe", "retrieve"];
/// More of them, where the verb says so too.
const SEES: [&str; 8] = ["read", "show", "view", "see", "check", "return", "display", "browse"];
/// Last parts of paths under which a POST only looks.
const LOOKED_AT: [&str; 8] = ["search", "_search", "query", "_query", "find", "lookup", "count", "list"];

/// Whether a method changes anything: by its verb, unless its name says otherwise. In doubt it does: what is taken
/// for a read is not protected.
pub(crate) fn effect(verb: &str, path: &str, id: Option<&str>, summary: Option<&str>) -> Effect {
    let (path, behind) = path.split_once(['?', '#']).unwrap_or((path, ""));
    // OData's functions only look, by its specification; what acts is an action there, under POST.
    let summary = summary.filter(|s| !s.trim_start().to_ascii_lowercase().starts_with("invoke function"));
    let said = [id.and_then(last_name), summary.and_then(first_word)];
    let says = |words: &[&str]| said.iter().flatten().any(|w| words.contains(&w.as_str()));
    match verb {
        // Some APIs have actions under GET: id, summary or path begins with a word that an action has, and nothing else of
        // them with one of looking. Under HEAD they are carried out as well, and only the answer has no body.
        "GET" | "HEAD" => {
            let end = path.trim_end_matches('/').rsplit('/').next().and_then(last_name);
            let all = || said.iter().chain([&end]).flatten();
            let acts = all().any(|w| CHANGES.contains(&w.as_str()))
                && !all().any(|w| LOOKS.contains(&w.as_str()) || SEES.contains(&w.as_str()));
            if acts || acts_behind(behind) { Effect::Mutating } else { Effect::Read }
        }
        "POST" => {
            let end = path.rsplit(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
            if LOOKED_AT.contains(&end.as_str()) && says(&LOOKS) && !says(&CHANGES) && !acts_behind(behind) {
                Effect::Read
            } else {
                Effect::Mutating
            }
        }
        _ => Effect::Mutating,
    }
}

/// Whether something fixed behind a path may name an action: a value that is not said to look (`action=delete`,
/// `Action=TerminateInstances`), or a name alone that only an action has (`?stop`). Names are the publisher's, and an id that
/// begins with the verb says nothing.
fn acts_behind(behind: &str) -> bool {
    behind.split(['&', '#', '?']).any(|part| match part.split_once('=') {
        Some((_, value)) if value.starts_with('{') => false,
        // Written so that its words can't be read.
        Some((_, value)) if value.contains('%') => true,
        Some((_, value)) => action_word(value).is_some_and(|w| !LOOKS.contains(&w.as_str())),
        None => action_word(part).is_some_and(|w| CHANGES.contains(&w.as_str())),
    })
}

/// The first word of a fixed value; none of a number or a date.
fn action_word(value: &str) -> Option<String> {
    let value = value.trim_start_matches(|c: char| !c.is_alphanumeric());
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let word = last_name(value).unwrap_or_else(|| value.to_owned());
    let word = word.strip_suffix('s').map_or(word.clone(), str::to_owned);
    Some(word).filter(|w| !w.is_empty())
}

/// The first word of a text, in lower case.
fn first_word(text: &str) -> Option<String> {
    let word = text.split(|c: char| !c.is_ascii_alphabetic()).find(|w| !w.is_empty())?;
    let word = word.to_ascii_lowercase();
    // "Creates a refund" says the same as "Create a refund".
    Some(word.strip_suffix('s').map_or(word.clone(), str::to_owned))
}

/// The first word of an id's last part: `repos/sendInvite` and `repos.send_invite` say `send`.
fn last_name(id: &str) -> Option<String> {
    let last = id.rsplit(['.', '/', ':']).find(|p| !p.is_empty())?;
    let mut word = String::new();
    for c in last.chars() {
        if !c.is_ascii_alphabetic()
            || (c.is_ascii_uppercase() && word.chars().last().is_some_and(|l| l.is_ascii_lowercase()))
        {
            break;
        }
        word.push(c);
    }
    Some(word.to_ascii_lowercase()).filter(|w| !w.is_empty())
}

/// Whether repeating it changes nothing, by what HTTP says of its verb: a DELETE, or a PUT of one object. A path that
/// ends in a word may name an action, and so may what some publishers put behind it.
pub(crate) fn repeats_harmlessly(verb: &str, path: &str) -> bool {
    matches!(verb, "PUT" | "DELETE")
        && !path.contains(['?', '#'])
        && path.trim_end_matches('/').ends_with('}')
}

/// A name without what only divides it.
fn bare(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Whether a name by itself says that it carries an idempotency key: by the word, or because a provider that is known has
/// its key in a header of that name.
pub(crate) fn names_a_key(name: &str, place: &str) -> bool {
    let bare = bare(name);
    ["idempotency", "idempotent", "idempotence"].iter().any(|word| bare.contains(word))
        || (place == "header" && provider::Preset::headers().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Where the effect key can go, by the description: a parameter named so, or one whose text says so. Names of those whose
/// text says that they don't carry one go to `denied`.
pub(crate) fn carrier(
    arguments: &[Argument<'_>],
    document: &Document<'_>,
    body: &str,
    denied: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Option<Carrier> {
    let mut found: Option<(u8, Carrier)> = None;
    for a in arguments
        .iter()
        .filter(|a| !matches!(a.place, "path" | "cookie") && a.param.as_deref() != Some("document"))
    {
        let named = names_a_key(&a.original, a.place);
        if !named && !identifies_a_request(&a.original) {
            continue;
        }
        let said = keys::said(a, document, named);
        if said == Said::No {
            notes.push(format!(
                "by its description `{}` may not make repeating safe, so it carries no effect key; it stays an argument",
                a.name
            ));
            denied.push(a.name.clone());
            continue;
        }
        if !named && said == Said::Nothing {
            continue;
        }
        if a.place == "body" && body == "none" {
            continue;
        }
        if !takes_a_key(a, document) {
            notes.push(format!("`{}` is for an idempotency key, but does not take one of the gateway's; it stays an argument", a.name));
            continue;
        }
        let rank = match (named, a.place) {
            (true, "header") => 0,
            (true, _) => 1,
            (false, "header") => 2,
            (false, _) => 3,
        };
        if found.as_ref().is_none_or(|(best, _)| rank < *best) {
            let (argument, name) = (a.name.clone(), a.field());
            found = Some((rank, Carrier { argument, place: a.place, name, unpublished: false }));
        }
    }
    found.map(|(_, carrier)| carrier)
}

/// Names that carry a key where their description says so: `X-Request-Id`, `requestId`, `client_token`.
fn identifies_a_request(name: &str) -> bool {
    let bare = bare(name);
    ["requestid", "clienttoken", "clientrequesttoken", "requesttoken", "transactionid", "nonce", "requestkey"]
        .iter()
        .any(|w| bare.ends_with(w))
}

/// Whether an effect key fits: a text of 36 characters, shaped as a UUID.
fn takes_a_key(a: &Argument<'_>, document: &Document<'_>) -> bool {
    let Ok(schema) = document.resolve(a.schema) else { return false };
    let is_text = match types(schema) {
        None => true,
        Some(Value::String(one)) => one == "string",
        Some(Value::Array(several)) => several.iter().any(|t| t == "string"),
        Some(_) => false,
    };
    let longest = schema.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let shortest = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
    let length = SAMPLE.len() as u64;
    let pattern = text(schema, "pattern").is_none_or(|p| {
        let check = serde_json::json!({ "type": "string", "pattern": p });
        schema::validator(&check).is_some_and(|v| v.is_valid(&Value::from(SAMPLE)))
    });
    is_text && longest >= length && shortest <= length && pattern && schema.get("enum").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fixed_behind_a_path_may_act() {
        let read = |path, id| {
            let [get, head] = ["GET", "HEAD"].map(|verb| effect(verb, path, Some(id), None) == Effect::Read);
            assert_eq!(get, head, "{path} {id}");
            get
        };
        for path in [
            "/#Action=TerminateInstances",
            "/rpc?action=delete&id={id}",
            "/rpc?id={id}#op=ec2.stopInstances",
            "/rpc?version=2&do=_purge",
            "/rpc?do=%64elete",
            "/rpc?do=.delete",
            "/rpc?do=löschen",
            "/rpc?do=öffnen",
            "/rpc?stop&id={id}",
        ] {
            assert!(!read(path, "GET_Rpc") && !read(path, "rpcDelete"), "{path}");
        }
        for path in [
            "/#Action=DescribeInstances",
            "/rpc?action=list&id={id}",
            "/rpc?action={action}",
            "/rpc?Action=ListsThings&Version=2016-11-15",
            "/{bucket}#acl",
            "/a?",
        ] {
            assert!(read(path, "GET_Rpc"), "{path}");
        }
        assert!(!read("/rpc?action=list", "sendMessage"));
    }

    #[test]
    fn effects() {
        let read = |verb, path, id, summary| effect(verb, path, id, summary) == Effect::Read;
        assert!(read("GET", "/a", Some("listThings"), Some("List things")));
        assert!(read("GET", "/a", Some("posts.list"), None));
        assert!(!read("GET", "/send", Some("sendMessage"), Some("Sends a message")));
        assert!(!read("HEAD", "/send", Some("sendMessage"), Some("Sends a message")));
        assert!(
            read("HEAD", "/a", Some("headThing"), Some("Check a thing")) && read("HEAD", "/a", None, None)
        );
        assert!(read("GET", "/a", Some("setOfThings"), Some("List a set")));
        // One word of action is enough, unless another looks.
        for (path, id, summary) in [
            ("/sms/send", Some("SendSms"), Some("SMS to a phone")),
            ("/sms/send", Some("SendSms"), None),
            ("/sms/send", None, None),
            ("/sms/sendMessage/", None, Some("A message")),
            ("/auth.revoke", Some("auth_revoke"), None),
            ("/vault/revoke/{id}", Some("connectionsRevoke"), Some("Revoke connection")),
            ("/x", Some("deleteThing"), Some("Thing, gone")),
        ] {
            assert!(!read("GET", path, id, summary) && !read("HEAD", path, id, summary), "{path} {id:?}");
        }
        for (path, id, summary) in [
            ("/posts", Some("userPosts"), None),
            ("/{move}", None, Some("A move")),
            ("/change/{id}", Some("changeById"), Some("Shows a change")),
            ("/orders/send", Some("getSendOrders"), None),
            ("/me/microsoft.graph.delta()", Some("me.delta"), Some("Invoke function delta")),
        ] {
            assert!(read("GET", path, id, summary), "{path} {id:?}");
        }
        assert!(!read("POST", "/refunds", Some("createRefund"), None));
        assert!(read("POST", "/customers/search", Some("searchCustomers"), Some("Search customers")));
        assert!(!read("POST", "/customers/search", Some("createSearch"), Some("Create a search")));
        assert!(!read("POST", "/customers/search", None, None));
        assert!(!read("DELETE", "/a/{id}", Some("getRid"), None));
        assert!(!read("POST", "/rpc?then=/search", Some("searchThings"), None));
        assert!(read("POST", "/things/search?version=2", Some("searchThings"), None));
        assert!(!read("POST", "/things/search?action=delete", Some("searchThings"), None));
        assert!(repeats_harmlessly("DELETE", "/a/{id}") && repeats_harmlessly("PUT", "/a/{id}/"));
        assert!(
            !repeats_harmlessly("PUT", "/a/{id}?do={what}") && !repeats_harmlessly("DELETE", "/{id}#x={y}")
        );
        assert!(!repeats_harmlessly("PUT", "/a/{id}/merge") && !repeats_harmlessly("POST", "/a/{id}"));
    }
}
