//! What the text of a parameter says of idempotency. A key that the provider does not honour is worse than none: a lost
//! answer would be sent again, and be a second effect.

use crate::document::{Document, text};
use crate::parameters::Argument;
use crate::prose;

/// What a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// That it is about repeating.
    Yes,
    /// That it isn't, or not here.
    No,
}

/// The most of a text that is read, in bytes.
const MAX_READ: usize = 16 << 10;
/// Words that turn a sentence around.
const DENIES: [&str; 13] = [
    "not",
    "no",
    "non",
    "none",
    "never",
    "nor",
    "neither",
    "cannot",
    "without",
    "unsupported",
    "unrelated",
    "rather",
    "instead",
];
/// What a key is where it counts.
const COUNTS: [&str; 9] = [
    "effect",
    "enabled",
    "enforced",
    "honored",
    "honoured",
    "implemented",
    "respected",
    "support",
    "supported",
];

/// What may be said of it in other words.
const UNUSED: [&str; 2] = ["is ignored", "future use"];

/// What a parameter's descriptions say. One that is `named` as a key needs no word for it, only none against it.
pub(crate) fn said(a: &Argument<'_>, document: &Document<'_>, named: bool) -> Said {
    let schema = document.resolve(a.schema).unwrap_or(a.schema);
    let mut all = [a.said, text(a.schema, "description"), text(schema, "description")];
    all.sort_unstable();
    let mut said = Said::Nothing;
    for (i, about) in all.iter().enumerate() {
        // A property's own description is found by both ways.
        if i > 0 && all[i - 1] == *about {
            continue;
        }
        match about.map_or(Said::Nothing, |about| of_text(about, named)) {
            Said::No => return Said::No,
            Said::Yes => said = Said::Yes,
            Said::Nothing => {}
        }
    }
    said
}

fn of_text(about: &str, named: bool) -> Said {
    let end = (0..=about.len().min(MAX_READ)).rev().find(|i| about.is_char_boundary(*i)).unwrap_or(0);
    let mut said = Said::Nothing;
    for line in about[..end].lines() {
        // An apostrophe has several forms.
        let line = prose::plain(line).to_lowercase().replace('’', "'");
        for sentence in line.split(['.', ';', '!', '?']) {
            match of_sentence(sentence, named) {
                Said::No => return Said::No,
                Said::Yes => said = Said::Yes,
                Said::Nothing => {}
            }
        }
    }
    said
}

fn of_sentence(sentence: &str, named: bool) -> Said {
    let words: Vec<&str> =
        sentence.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()).collect();
    let about = |w: &str| w.contains("idempoten");
    let denied = if named {
        (0..words.len()).any(|i| denies_a_named_one(&words[..i], &words[i..]))
            || UNUSED.iter().any(|u| sentence.contains(u))
    } else {
        (0..words.len()).any(|i| {
            denies(&words[i..]) && {
                // How near it must stand: "don't use it again if a new idempotent request is wanted" denies nothing.
                let near = i.saturating_sub(5)..words.len().min(i + 8);
                words[near].iter().any(|w| about(w))
            }
        })
    };
    match (denied, words.iter().any(|w| about(w))) {
        (true, _) => Said::No,
        (false, true) => Said::Yes,
        (false, false) => Said::Nothing,
    }
}

/// Whether a word turns a sentence around; it and what follows it.
fn denies(words: &[&str]) -> bool {
    let Some((word, rest)) = words.split_first() else { return false };
    // "No more than once" is what a key is for.
    (DENIES.contains(word) || word.ends_with("n't")) && rest.first() != Some(&"more")
}

/// The same of something that is named as a key, with what stands `before` the word. The name speaks for it, and much is
/// forbidden to its values or said of requests without it: what is denied must be that it counts.
fn denies_a_named_one(before: &[&str], words: &[&str]) -> bool {
    let Some((word, rest)) = words.split_first() else { return false };
    let near = before.iter().rev().take(2).chain(rest.iter().take(3)).any(|w| w.contains("idempoten"));
    let after = |n: usize| rest.get(n).copied().unwrap_or_default();
    match *word {
        "unsupported" | "unrelated" => true,
        // "Another parameter makes for idempotency instead."
        "instead" => before.iter().rev().take(2).any(|w| w.contains("idempoten")),
        "non" | "without" | "rather" => false,
        "no" if after(0) == "idempotency" => after(1) != "key",
        _ if !denies(words) => false,
        // Not "must not be used twice".
        _ if after(0) == "used" || (["currently", "yet"].contains(&after(0)) && after(1) == "used") => true,
        _ if near && rest.iter().take(2).any(|w| w.starts_with("guarantee")) => true,
        _ => rest.iter().take(3).any(|w| COUNTS.contains(w)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sentences_say() {
        for (about, named, said) in [
            ("Makes the request idempotent.", false, Said::Yes),
            ("A request's id", false, Said::Nothing),
            ("For tracing only, not used for idempotency.", false, Said::No),
            ("An id for logs. It has nothing to do with idempotency; no idempotency here.", false, Said::No),
            ("<p>Idempotency <b>isn't</b> currently supported, but will be.</p>", false, Said::No),
            ("Idempotency isn’t supported", false, Said::No),
            ("Requests are never idempotent", false, Said::No),
            ("Without this header requests are idempotent in no way", false, Said::No),
            ("Unrelated to idempotency", false, Said::No),
            ("Non-idempotent requests are told apart by it", false, Said::No),
            ("Ensures idempotency.\nIdempotency is not guaranteed after 15 minutes", false, Said::No),
            // What only sounds so.
            ("An idempotent operation completes no more than one time.", false, Said::Yes),
            ("Don't reuse this client token if a new idempotent request is required.", false, Said::Yes),
            (
                "An idempotency token to ensure that you don't accidentally submit the same request twice",
                false,
                Said::Yes,
            ),
            ("Not longer than 36 characters. Ensures idempotency.", false, Said::Yes),
            ("A key", true, Said::Nothing),
            ("Do not use one twice.", true, Said::Nothing),
            ("Try again with the same idempotency key without worrying", true, Said::Yes),
            ("`authorization_id` is now used as idempotency instead", true, Said::No),
            ("Not supported on this endpoint.", true, Said::No),
            ("Reserved for future use", true, Said::No),
            ("Not currently used.", true, Said::No),
            ("Idempotency isn't guaranteed", true, Said::No),
            ("A text that must not be used for another request, nor been used before", true, Said::Nothing),
            ("A text whose uniqueness the server does not guarantee", true, Said::Nothing),
            ("Has no effect here", true, Said::No),
            ("No idempotency on this endpoint", true, Said::No),
            ("This header is ignored.", true, Said::No),
            ("This endpoint doesn't support idempotency keys", true, Said::No),
            ("The idempotency key must not exceed 64 characters and can't be reused", true, Said::Yes),
            ("The idempotency key is not required", true, Said::Yes),
            ("Send the same idempotency key again rather than a new one", true, Said::Yes),
            ("If no idempotency key is given, retries are not safe", true, Said::Yes),
            ("POST requests are not idempotent without it", true, Said::Yes),
            ("Makes retries of non-idempotent requests safe", true, Said::Yes),
        ] {
            assert_eq!(of_text(about, named), said, "{about}");
        }
    }
}
