//! Where an integration's requests go to. They carry its credential, so methods that are there keep their address: others
//! come beside them only where they are served there too, and all of them move together or not at all.

use crate::merge::digest_of;
use crate::service::Base;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The addresses that the command line gave, now or before: they go before described ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub production: Option<String>,
    pub sandbox: Option<String>,
}

/// `base_url` as a manifest has it.
pub(crate) fn urls(base: &Base, given: &Given) -> Value {
    let mut urls = json!({});
    let trimmed = |url: &String| url.trim_end_matches('/').to_owned();
    for (mode, own, given) in
        [("sandbox", &base.sandbox, &given.sandbox), ("production", &base.production, &given.production)]
    {
        if let Some(url) = given.as_ref().or(own.as_ref()) {
            urls[mode] = json!(trimmed(url));
        }
    }
    urls
}

/// What `base_url` says, as far as addresses go.
pub(crate) fn base(urls: &Value) -> Base {
    let at = |mode: &str| urls.get(mode).and_then(Value::as_str).map(|u| u.trim_end_matches('/').to_owned());
    match urls {
        Value::String(url) => Base { production: Some(url.trim_end_matches('/').to_owned()), sandbox: None },
        _ => Base { production: at("production"), sandbox: at("sandbox") },
    }
}

/// For people.
pub(crate) fn shown(base: &Base) -> String {
    match (&base.production, &base.sandbox) {
        (Some(production), Some(sandbox)) => format!("{production:.200} (sandbox: {sandbox:.200})"),
        (Some(one), None) | (None, Some(one)) => format!("{one:.200}"),
        (None, None) => "no address".into(),
    }
}

/// Whether the addresses are the same ones, whatever modes they are taken for.
pub(crate) fn same_places(one: &Base, other: &Base) -> bool {
    let all = |b: &Base| {
        let mut all: Vec<String> = [&b.production, &b.sandbox].into_iter().flatten().cloned().collect();
        all.sort();
        all.dedup();
        all
    };
    all(one) == all(other)
}

/// Whether a method that is served at `own` may be beside those that are served at `base`: wherever the manifest leads. Where
/// it has no address for a mode, it does not matter what the method has.
pub(crate) fn fits(base: &Base, own: &Base) -> bool {
    let fits = |base: &Option<String>, own: &Option<String>| base.is_none() || own == base;
    fits(&base.production, &own.production) && fits(&base.sandbox, &own.sandbox)
}

/// What is described of the modes for which no address is given.
pub(crate) fn open(base: &Base, given: &Given) -> Base {
    let described = |url: &Option<String>, given: &Option<String>| url.clone().filter(|_| given.is_none());
    Base {
        production: described(&base.production, &given.production),
        sandbox: described(&base.sandbox, &given.sandbox),
    }
}

/// `base`, with what is described of the modes for which an address is given.
pub(crate) fn beside(base: &Base, described: Base, given: &Given) -> Base {
    let one = |own: &Option<String>, described, given: &Option<String>| match given {
        Some(_) => described,
        None => own.clone(),
    };
    Base {
        production: one(&base.production, described.production, &given.production),
        sandbox: one(&base.sandbox, described.sandbox, &given.sandbox),
    }
}

/// Where a method is served whose description names `own` first, and lists all of these, with whether each is said to be live:
/// an address that it had and that is still listed is no other one because another goes before it now. What is live, or
/// production's, is no sandbox.
pub(crate) fn still(was: &Base, own: Base, listed: &[(String, bool)]) -> Base {
    let kept = |url: &Option<String>, live: bool| {
        url.clone().filter(|url| listed.iter().any(|(listed, is_live)| listed == url && (live || !is_live)))
    };
    let production = kept(&was.production, true).or_else(|| own.production.clone());
    let no_production =
        |url: &String| Some(url) != production.as_ref() && Some(url) != own.production.as_ref();
    // One that was the sandbox, and is production's now, doesn't stand in the way of the described one.
    let sandbox =
        kept(&was.sandbox, false).filter(no_production).or_else(|| own.sandbox.clone().filter(no_production));
    Base { production, sandbox }
}

/// What keeps a sandbox that would be lost.
pub(crate) fn lost(was: &Base, now: &Base) -> String {
    let lost =
        was.sandbox.as_ref().filter(|url| now.sandbox.is_none() && now.production.as_ref() != Some(*url));
    lost.map(|url| format!(", and --sandbox-url {url:.200} keeps the sandbox")).unwrap_or_default()
}

/// Where the methods of a manifest were served at the last import: as it remembers, else by the digest of what was written
/// then, else as it says.
pub(crate) fn before(
    imported: &Value,
    base_url: Option<&Value>,
    given: &Given,
    there: &[Base],
) -> Option<Base> {
    if imported["server"].is_object() {
        return Some(base(&imported["server"]));
    }
    let digest = imported["digests"]["base_url"].as_str();
    let same = there.iter().find(|b| digest == Some(digest_of(&urls(b, given)).as_str()));
    same.cloned().or_else(|| base_url.map(base))
}

/// Chooses the address of the described ones. `there` are those of the methods that are in the manifest, which were served
/// at `was`, `new` those of others. With `stays` there are methods of which it isn't known that they move too.
pub(crate) fn choose(was: Option<&Base>, there: &[Base], new: &[Base], stays: bool) -> Base {
    let Some(was) = was.filter(|_| stays || !there.is_empty()) else {
        return most(if there.is_empty() { new } else { there });
    };
    if let Some(first) = there.first().filter(|first| there.iter().all(|b| b == *first)) {
        // A further address is not taken from under those who have none: they are chosen, and may come yet.
        let only_more = fits(was, first) && new.contains(was);
        if same_places(first, was) || !(stays || only_more) {
            return first.clone();
        }
    }
    // An address that is for another mode now has not moved.
    let same = there.iter().find(|b| *b == was).or_else(|| there.iter().find(|b| same_places(b, was)));
    same.unwrap_or(was).clone()
}

/// The most frequent, and of those the first, so that the same description gives the same manifest.
fn most(bases: &[Base]) -> Base {
    let mut counts: HashMap<&Base, usize> = HashMap::new();
    for base in bases {
        *counts.entry(base).or_default() += 1;
    }
    let most = counts.values().max().copied().unwrap_or_default();
    bases.iter().find(|b| counts.get(b) == Some(&most)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(production: &str, sandbox: &str) -> Base {
        let one = |url: &str| Some(url.to_owned()).filter(|url| !url.is_empty());
        Base { production: one(production), sandbox: one(sandbox) }
    }

    #[test]
    fn what_is_there_decides() {
        let (x, y, pair) = (at("x", ""), at("y", ""), at("x", "s"));
        for (was, there, new, stays, chosen) in [
            (None, vec![], vec![&x, &y, &y], false, &y),
            (None, vec![], vec![&x, &y], false, &x),
            (Some(&x), vec![&x], vec![&y, &y], false, &x),
            (Some(&x), vec![&x, &y, &y], vec![], false, &x),
            (Some(&x), vec![&y, &y], vec![&x], false, &y),
            (Some(&x), vec![&y, &y], vec![], true, &x),
            (Some(&x), vec![&y, &pair], vec![], false, &x),
            (Some(&x), vec![], vec![&y], false, &y),
            (Some(&x), vec![], vec![&y], true, &x),
            // One more address: for all, but not where somebody hasn't it, nor from under those who stay.
            (Some(&x), vec![&pair], vec![], false, &pair),
            (Some(&x), vec![&pair], vec![&x], false, &x),
            (Some(&x), vec![&pair], vec![], true, &x),
            // An address that was the sandbox's by mistake.
            (Some(&at("", "x")), vec![&x], vec![&y], true, &x),
            (Some(&at("", "x")), vec![&x, &y], vec![], true, &x),
        ] {
            let owned = |all: &[&Base]| all.iter().map(|b| (*b).clone()).collect::<Vec<_>>();
            let got = choose(was, &owned(&there), &owned(&new), stays);
            assert_eq!(&got, chosen, "{was:?} {there:?} {new:?} {stays}");
        }
    }

    #[test]
    fn beside_others_only_where_they_are() {
        let (x, pair, none) = (at("x", ""), at("x", "s"), at("", ""));
        for (base, own, fit) in [
            (&x, &x, true),
            (&x, &pair, true),
            (&pair, &x, false),
            (&x, &at("y", ""), false),
            (&x, &none, false),
            (&none, &x, true),
        ] {
            assert_eq!(fits(base, own), fit, "{base:?} {own:?}");
        }
        // What is given counts, and nothing that is described of its mode.
        let local = Given { production: None, sandbox: Some("local".into()) };
        assert_eq!((open(&pair, &local), beside(&x, pair.clone(), &local)), (x, pair));
    }

    #[test]
    fn what_is_still_listed_has_not_moved() {
        for (was, own, listed, is) in [
            (("a", ""), ("b", ""), "b a", ("a", "")),
            (("a", ""), ("b", ""), "b", ("b", "")),
            // An address that is the sandbox's by the rule, and was production's, is still that.
            (("a", ""), ("b", "a"), "a b", ("a", "")),
            (("a", "d"), ("a", ""), "d a", ("a", "d")),
            (("a", "d"), ("a", "s"), "d s a", ("a", "d")),
            (("a", "d"), ("a", ""), "a", ("a", "")),
            // What is production's is no sandbox.
            (("", "a"), ("a", ""), "a", ("a", "")),
            (("a", "d"), ("d", ""), "d a", ("a", "")),
            (("", "a"), ("a", "s"), "a s", ("a", "s")),
            (("", "a"), ("a", "s"), "a! s", ("a", "s")),
            (("a", "d"), ("a", ""), "a! d!", ("a", "")),
        ] {
            let listed: Vec<(String, bool)> = listed
                .split(' ')
                .map(|url| (url.trim_end_matches('!').to_owned(), url.ends_with('!')))
                .collect();
            assert_eq!(
                still(&at(was.0, was.1), at(own.0, own.1), &listed),
                at(is.0, is.1),
                "{was:?} {own:?}"
            );
        }
    }
}
