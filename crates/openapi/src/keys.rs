//! What the text of a parameter says of idempotency. A key that the provider does not honour is worse than none: a lost
//! answer would be sent again, and be a second effect.

use crate::document::{Document, is, text};
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
/// How many words of a clause are read on each side of one.
const CLAUSE: usize = 32;
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

/// What is done with one that counts; of requests and of values the same may be said.
const TAKEN: [&str; 14] = [
    "accept",
    "accepted",
    "applicable",
    "apply",
    "available",
    "consider",
    "considered",
    "evaluate",
    "evaluated",
    "honor",
    "honour",
    "read",
    "recognised",
    "recognized",
];
/// What one is that counts for nothing.
const IDLE: [&str; 4] = ["disabled", "disregarded", "ignored", "obsolete"];
/// Words between one that denies and what it denies.
const BETWEEN: [&str; 7] = ["actually", "being", "currently", "longer", "now", "presently", "yet"];
/// Words before one that stands for a value: "an unused value".
const ARTICLES: [&str; 7] = ["a", "an", "any", "fresh", "new", "previously", "unique"];
/// What tells a sentence of a value's further uses: "do not use it again".
const AGAIN: [&str; 10] =
    ["again", "another", "different", "multiple", "other", "same", "several", "than", "twice", "two"];
/// What tells a sentence of requests: "duplicate requests are ignored".
const REPEATED: [&str; 6] = ["duplicate", "duplicated", "duplicates", "repeated", "same", "subsequent"];
const REQUESTS: [&str; 8] =
    ["attempt", "attempts", "call", "calls", "request", "requests", "retries", "retry"];
/// What may stand before one of those and after it.
const ASIDE: [&str; 16] = [
    "a", "all", "an", "any", "are", "be", "being", "is", "may", "such", "that", "the", "then", "this", "was",
    "will",
];

/// What texts say, taken together.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Something of idempotency.
    about: bool,
    /// That there is none.
    denied: bool,
    /// That what they are about is out of use.
    unused: bool,
}

impl Seen {
    fn and(self, other: Seen) -> Seen {
        Seen {
            about: self.about || other.about,
            denied: self.denied || other.denied,
            unused: self.unused || other.unused,
        }
    }

    fn says(self, named: bool) -> Said {
        match self {
            Seen { denied: true, .. } => Said::No,
            Seen { unused: true, about, .. } if named || about => Said::No,
            Seen { about: true, .. } => Said::Yes,
            _ => Said::Nothing,
        }
    }
}

/// What a parameter's descriptions say. One that is `named` as a key needs no word for it, only none against it.
pub(crate) fn said(a: &Argument<'_>, document: &Document<'_>, named: bool) -> Said {
    let schema = document.resolve(a.schema).unwrap_or(a.schema);
    // A property's own description is found by both ways.
    let own = text(a.schema, "description").filter(|_| !std::ptr::eq(a.schema, schema));
    let all = [a.said, own, text(schema, "description")];
    let mut seen = all.iter().flatten().fold(Seen::default(), |seen, about| seen.and(of_text(about, named)));
    // What is going out of use is honoured only where that is said.
    let deprecated = a.deprecated || is(a.schema, "deprecated") || is(schema, "deprecated");
    seen.unused |= deprecated && !seen.about;
    seen.says(named)
}

fn of_text(about: &str, named: bool) -> Seen {
    let end = (0..=about.len().min(MAX_READ)).rev().find(|i| about.is_char_boundary(*i)).unwrap_or(0);
    let mut seen = Seen::default();
    for line in about[..end].lines() {
        // An apostrophe has several forms.
        let line = prose::plain(line).to_lowercase().replace('’', "'");
        for sentence in line.split(['.', ';', '!', '?']) {
            seen = seen.and(of_sentence(sentence, named));
        }
    }
    seen
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()).collect()
}

fn of_sentence(sentence: &str, named: bool) -> Seen {
    let all = words(sentence);
    let about = |w: &str| w.contains("idempoten");
    let denied = if named {
        (0..all.len()).any(|i| denies_a_named_one(&all[..i], &all[i..]))
    } else {
        (0..all.len()).any(|i| {
            denies(&all[i..]) && {
                // How near it must stand: "don't use it again if a new idempotent request is wanted" denies nothing.
                let near = i.saturating_sub(5)..all.len().min(i + 8);
                all[near].iter().any(|w| about(w))
            }
        })
    };
    let clauses = sentence.split([',', ':', '(', ')', '–', '—']);
    let unused = sentence.contains("future use")
        || sentence.trim() == "n/a"
        || clauses.map(words).any(|clause| {
            (0..clause.len()).any(|i| {
                let (from, to) = (i.saturating_sub(CLAUSE), clause.len().min(i + CLAUSE));
                is_unused(&clause[from..i], &clause[i..to])
            })
        });
    Seen { about: all.iter().any(|w| about(w)), denied, unused }
}

/// Whether a word of a clause says that what it is about is out of use: it with what stands `before` it and follows it.
fn is_unused(before: &[&str], words: &[&str]) -> bool {
    let Some((word, rest)) = words.split_first() else { return false };
    // "Ignored if it is empty", "ignored for GET requests".
    let conditional = matches!(rest, ["if" | "when" | "unless", ..] | ["for", "get", ..]);
    match *word {
        "unused" => !conditional && before.last().is_none_or(|w| !ARTICLES.contains(w)),
        word if IDLE.contains(&word) => !conditional && !of_requests(before),
        "non" | "none" | "without" | "unsupported" | "unrelated" | "rather" | "instead" => false,
        _ if !denies(words) => false,
        word => {
            let next = &rest[rest.iter().take_while(|w| BETWEEN.contains(w)).count()..];
            let again = next.get(1) == Some(&"one") || next.iter().any(|w| AGAIN.contains(w));
            let longer = rest.first() == Some(&"longer");
            let of_requests = of_requests(before);
            let taken = |w: &&str| {
                !of_requests
                    && (COUNTS.contains(w) || ((word != "no" || longer) && TAKEN.contains(w) && !again))
            };
            match next {
                ["used", ..] | ["in", "use", ..] => true,
                ["use" | "op", ..] if word == "no" => true,
                ["use", ..] | ["be", "used", ..] => !again && !of_requests,
                _ => next.iter().take(3).any(taken),
            }
        }
    }
}

/// Whether what stands before a verb says that it is about requests, or repeated ones: of those much is forbidden or ignored.
fn of_requests(before: &[&str]) -> bool {
    let mut subject = before.iter().filter(|w| !ASIDE.contains(w));
    let alone = subject.next().is_some_and(|w| REQUESTS.contains(w)) && subject.next().is_none();
    let apart = before.first().is_some_and(|w| ["for", "in", "on", "with"].contains(w));
    alone || (!apart && before.iter().any(|w| REPEATED.contains(w)))
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
            // What is out of use.
            ("Deprecated. No longer used.", true, Said::No),
            ("Unused.", true, Said::No),
            ("Currently unused, kept for older clients", true, Said::No),
            ("Ignored.", true, Said::No),
            ("This header is currently ignored.", true, Said::No),
            ("Will be ignored.", true, Said::No),
            ("On this endpoint the header is ignored", true, Said::No),
            ("Deprecated, do not use.", true, Said::No),
            ("Do not use it, use another header", true, Said::No),
            ("Don't use this header any more (use the other one)", true, Said::No),
            ("It should not be used", true, Said::No),
            ("Not available on this endpoint.", true, Said::No),
            ("Not applicable.", true, Said::No),
            ("N/A", true, Said::No),
            ("Idempotency keys are no longer accepted.", true, Said::No),
            ("Idempotency is not available for this endpoint.", true, Said::No),
            ("Idempotency for this request is never evaluated", true, Said::No),
            ("It isn't read, nor considered", true, Said::No),
            ("The header is no longer honoured", true, Said::No),
            ("The provider does not honour it", true, Said::No),
            ("Has no use here", true, Said::No),
            ("No longer in use", true, Said::No),
            ("Makes the request idempotent. No longer used.", false, Said::No),
            ("An id for logs. No longer used.", false, Said::Nothing),
            // What only sounds so.
            ("Ensures idempotency. Subsequent retries have no additional effect", false, Said::Yes),
            ("A previously unused UUID", true, Said::Nothing),
            ("Any unused text", true, Said::Nothing),
            ("Unused if the body has one", true, Said::Nothing),
            ("Ignored when empty", true, Said::Nothing),
            ("Ignored for GET requests", true, Said::Nothing),
            ("Duplicate requests with one key will be ignored", true, Said::Nothing),
            ("A second request with the same key is not accepted", true, Said::Nothing),
            ("If it was seen before, the request will be ignored", true, Said::Nothing),
            ("Do not use the same key for two requests", true, Said::Nothing),
            ("Do not use it again", true, Said::Nothing),
            ("Keys longer than 64 characters, but no longer than 255", true, Said::Nothing),
            ("Does not accept keys longer than 255 characters", true, Said::Nothing),
        ] {
            assert_eq!(of_text(about, named).says(named), said, "{about}");
        }
    }
}
