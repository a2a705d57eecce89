//! Secrets in what comes back. A provider may repeat the credential that it was sent, in an error or because it repeats whole
//! requests: before anybody judges or keeps an answer, each secret in it is masked.
//!
//! A secret is found as it is, and as URLs, JSON and HTML write it, in any mixture: each character by itself. Not found is what
//! was encoded as a whole, such as in base64 (but for the pair of HTTP's basic scheme), and a secret below [`SHORTEST`]. What
//! was JSON stays JSON.
//!
//! A caller may have chosen the secret and the answer so that much has to be compared: a text that takes more than [`MAX_STEPS`]
//! is masked as a whole.

use crate::judge::{Answer, Observation};
use crate::proof::MASKED;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use memchr::memmem;
use serde::de::IgnoredAny;
use std::ops::Range;
use zeroize::Zeroizing;

/// Shorter secrets are not looked for, in bytes: they would be found in what has nothing to do with them.
const SHORTEST: usize = 8;
/// A part of a secret that is worth looking for before its characters, in bytes.
const CORE: usize = 4;
/// The most backslashes before an escaped character: texts in texts in texts have as many.
const MAX_SLASHES: usize = 7;
/// How often a percent sign may have been encoded again: `%252525…`.
const MAX_PERCENTS: usize = 7;
/// The most characters that are compared for each secret, for each byte of a text. Most take one.
const MAX_STEPS: usize = 16;

/// What is masked.
pub(crate) struct Mask(Vec<Zeroizing<String>>);

impl Mask {
    /// These secrets.
    pub(crate) fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Mask {
        Mask(secrets.filter(|s| s.len() >= SHORTEST).map(|s| Zeroizing::new(s.to_owned())).collect())
    }

    /// The same outcome without them.
    pub(crate) fn over(&self, seen: Observation) -> Observation {
        match seen {
            Observation::Answer(a) => Observation::Answer(self.answer(a)),
            Observation::NotSent(why) => Observation::NotSent(self.text(why)),
            Observation::ConnectionLost(why) => Observation::ConnectionLost(self.text(why)),
            Observation::Torn(why) => Observation::Torn(self.text(why)),
            other @ (Observation::Timeout | Observation::TooLarge(_)) => other,
        }
    }

    fn answer(&self, mut a: Answer) -> Answer {
        self.headers(&mut a.headers);
        let found = self.found(&a.body);
        if !found.is_empty() {
            a.body = masked(&a.body, &found);
        }
        a
    }

    fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let found = self.found(value.as_bytes());
            if !found.is_empty() {
                let text = plainly(value.as_bytes(), &found);
                *value = HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(MASKED));
            }
        }
    }

    fn text(&self, text: String) -> String {
        let found = self.found(text.as_bytes());
        if found.is_empty() {
            return text;
        }
        String::from_utf8_lossy(&plainly(text.as_bytes(), &found)).into_owned()
    }

    /// Where they are, in order and apart.
    fn found(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = self.0.iter().flat_map(|secret| places(text, secret)).collect();
        all.sort_by_key(|at| at.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for at in all {
            match apart.last_mut() {
                Some(last) if at.start <= last.end => last.end = last.end.max(at.end),
                _ => apart.push(at),
            }
        }
        apart
    }
}

/// Where a secret is in a text: all of it, if that takes too long to tell.
fn places(text: &[u8], secret: &str) -> Vec<Range<usize>> {
    let core = core(secret);
    // Nobody writes these characters in another way, so most texts are seen through once, and fast.
    let finder = memmem::Finder::new(&secret[core.clone()]);
    if core.len() >= CORE && finder.find(text).is_none() {
        return Vec::new();
    }
    let jumps = core.len() >= CORE && core.start == 0;
    let mut spelling = Spelling::new(text);
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    while start < text.len() {
        if jumps {
            match finder.find(&text[start..]) {
                Some(after) => start += after,
                None => break,
            }
        }
        let end = spelling.end(start, secret);
        if spelling.left == 0 {
            return std::iter::once(0..text.len()).collect();
        }
        if let Some(end) = end {
            out.push(start..end);
        }
        start = end.unwrap_or(start + 1);
    }
    out
}

/// The longest part of a secret that no encoding changes.
fn core(secret: &str) -> Range<usize> {
    let mut longest = 0..0;
    let mut start = 0;
    for (at, byte) in secret.bytes().enumerate() {
        if !byte.is_ascii_alphanumeric() && !matches!(byte, b'-' | b'.' | b'_' | b'~') {
            start = at + 1;
        } else if at + 1 - start > longest.len() {
            longest = start..at + 1;
        }
    }
    longest
}

/// Secrets in a text, character by character.
struct Spelling<'t> {
    text: &'t [u8],
    /// Steps that may still be made.
    left: usize,
    /// Where what was read so far may end, and what follows it.
    ends: Vec<usize>,
    next: Vec<usize>,
}

impl Spelling<'_> {
    fn new(text: &[u8]) -> Spelling<'_> {
        let left = text.len().saturating_mul(MAX_STEPS);
        Spelling { text, left, ends: Vec::new(), next: Vec::new() }
    }

    /// Where a secret ends that begins here.
    fn end(&mut self, start: usize, secret: &str) -> Option<usize> {
        let Spelling { text, left, ends, next } = self;
        ends.clear();
        ends.push(start);
        for c in secret.chars() {
            *left = left.saturating_sub(ends.len());
            if *left == 0 {
                return None;
            }
            next.clear();
            for at in ends.iter() {
                ways(&text[*at..], c, |length| next.push(at + length));
            }
            next.sort_unstable();
            next.dedup();
            std::mem::swap(ends, next);
        }
        ends.pop()
    }
}

/// How long a text is that stands for a character, for each way in which it does.
fn ways(text: &[u8], c: char, mut way: impl FnMut(usize)) {
    let mut utf8 = [0; 4];
    let utf8 = c.encode_utf8(&mut utf8).as_bytes();
    if text.starts_with(utf8) {
        way(utf8.len());
    }
    match text.first() {
        Some(b'%') => utf8_escaped(text, utf8).into_iter().for_each(way),
        Some(b'+') if c == ' ' => way(1),
        Some(b'\\') => {
            let slashes = text.iter().take(MAX_SLASHES).take_while(|b| **b == b'\\').count();
            if c == '\\' {
                (2..=slashes).for_each(way);
            } else if matches!(c, '/' | '"' | '\'') && text.get(slashes) == Some(&utf8[0]) {
                way(slashes + 1);
            } else if let Some(length) = utf16_escaped(text, slashes, c) {
                way(length);
            }
        }
        Some(b'&') => entity(text, c).into_iter().for_each(way),
        _ => {}
    }
}

/// `%2B`, and `%252B`.
fn utf8_escaped(text: &[u8], utf8: &[u8]) -> Option<usize> {
    let mut at = 0;
    for byte in utf8 {
        let mut rest = text.get(at..)?.strip_prefix(b"%")?;
        for _ in 0..MAX_PERCENTS {
            let Some(inner) = rest.strip_prefix(b"25").filter(|_| *byte != b'%') else { break };
            rest = inner;
        }
        if hexadecimal(rest.get(..2)?)? != u32::from(*byte) {
            return None;
        }
        at = text.len() - rest.len() + 2;
    }
    Some(at)
}

/// `\u002b`, and `\\u002b`.
fn utf16_escaped(text: &[u8], slashes: usize, c: char) -> Option<usize> {
    let mut at = 0;
    for unit in c.encode_utf16(&mut [0; 2]) {
        let digits = at + slashes + 1;
        let begins =
            text[at..].iter().take(slashes).all(|b| *b == b'\\') && text.get(digits - 1) == Some(&b'u');
        if !begins || hexadecimal(text.get(digits..digits + 4)?)? != u32::from(*unit) {
            return None;
        }
        at = digits + 4;
    }
    Some(at)
}

/// `&amp;`, `&#43;` and `&#x2b;`.
fn entity(text: &[u8], c: char) -> Option<usize> {
    let end = text.iter().take(12).position(|b| *b == b';')?;
    let inside = std::str::from_utf8(&text[1..end]).ok()?;
    let is = match inside.strip_prefix('#') {
        Some(number) => match number.strip_prefix(['x', 'X']) {
            Some(digits) => hexadecimal(digits.as_bytes())? == u32::from(c),
            None => number.parse() == Ok(u32::from(c)),
        },
        None => {
            [("amp", '&'), ("quot", '"'), ("apos", '\''), ("lt", '<'), ("gt", '>')].contains(&(inside, c))
        }
    };
    is.then_some(end + 1)
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let all = digits.iter().all(u8::is_ascii_hexdigit);
    u32::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| all)?, 16).ok()
}

fn plainly(text: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for place in found {
        out.extend_from_slice(&text[at..place.start]);
        out.extend_from_slice(MASKED.as_bytes());
        at = place.end;
    }
    out.extend_from_slice(&text[at..]);
    out
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// A body without what was found. JSON that was none afterwards would be judged as another answer.
fn masked(body: &[u8], found: &[Range<usize>]) -> Bytes {
    let out = plainly(body, found);
    if !is_json(body) || is_json(&out) {
        return out.into();
    }
    // A number that is a secret becomes a text.
    let out = by_tokens(body, found);
    if is_json(&out) { out.into() } else { format!("\"{MASKED}\"").into() }
}

/// JSON in which what was found outside of texts becomes a text.
fn by_tokens(json: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let mut out = Vec::with_capacity(json.len());
    let (mut at, mut inside) = (0, false);
    for place in found {
        while at < place.start {
            let length = if inside && json[at] == b'\\' { 2 } else { 1 };
            inside ^= json[at] == b'"';
            out.extend_from_slice(&json[at..json.len().min(at + length)]);
            at += length;
        }
        at = at.max(place.end);
        if inside {
            out.extend_from_slice(MASKED.as_bytes());
            continue;
        }
        while out.last().is_some_and(is_token) {
            out.pop();
        }
        while json.get(at).is_some_and(is_token) {
            at += 1;
        }
        out.extend_from_slice(format!("\"{MASKED}\"").as_bytes());
    }
    out.extend_from_slice(json.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn over(secrets: &[&str], body: &str) -> String {
        let headers = HeaderMap::new();
        let a = Answer { status: 200, headers, body: body.to_owned().into() };
        let Observation::Answer(a) = Mask::of(secrets.iter().copied()).over(Observation::Answer(a)) else {
            panic!("no answer")
        };
        String::from_utf8(a.body.to_vec()).unwrap()
    }

    #[test]
    fn a_secret_is_found_however_it_is_written() {
        let secret = "sk+live/\"9&\\é =<x>";
        for written in [
            secret,
            "sk%2Blive%2F%229%26%5C%C3%A9%20%3D%3Cx%3E",
            "sk%2blive/%229%26%5c%c3%a9+=%3cx%3e",
            "sk%252Blive%252F%25229%2526%255C%25C3%25A9%2520%253D%253Cx%253E",
            r#"sk+live\/\"9&\\é =<x>"#,
            r"sk\u002Blive\/\u00229\u0026\\\u00e9 \u003d\u003Cx\u003e",
            r#"sk+live\\\/\\\"9&\\\\é =<x>"#,
            "sk+live/&quot;9&amp;\\&#233; =&lt;x&gt;",
            "sk&#43;live&#x2F;&#34;9&#x26;&#92;&#xe9; =&lt;x&gt;",
        ] {
            let said = format!("a {written} b{written}");
            assert_eq!(over(&[secret], &said), "a **** b****", "{written}");
        }
        for other in ["sk+live", "sk-live/\"9&\\é =<x>", "sk%2Blive%2F%229%26%5C%C3%A9%20%3D%3Cx%3", ""] {
            assert_eq!(over(&[secret], other), other);
        }
    }

    #[test]
    fn several_and_parts_of_each_other() {
        let pair = "b3JnOnB3LXNlY3JldA==";
        let all = ["pw-secret", "org:pw-secret", pair];
        assert_eq!(
            over(&all, "org:pw-secret, pw-secret; Basic b3JnOnB3LXNlY3JldA%3D%3D"),
            "****, ****; Basic ****"
        );
        // Ones that overlap leave nothing of either.
        assert_eq!(over(&["abcdefgh", "efghijkl"], "abcdefghijkl"), "****");
        assert_eq!(over(&["aaaaaaaa"], "aaaaaaaaaaaaaaaa"), "****");
    }

    #[test]
    fn short_ones_are_not_looked_for() {
        assert_eq!(over(&["secret7", ""], "secret7"), "secret7");
        assert_eq!(over(&["secret78"], "secret78"), "****");
        // Characters that are never written as they are.
        assert_eq!(over(&["+/=+/=+/"], "x %2B%2F%3D%2B%2F%3D%2B%2F"), "x ****");
    }

    #[test]
    fn json_stays_json() {
        for (body, without) in [
            (
                r#"{"a":12345678,"b":[12345678 ,1],"c":"x12345678"}"#,
                r#"{"a":"****","b":["****" ,1],"c":"x****"}"#,
            ),
            (r#"{"a":-912345678.5e3}"#, r#"{"a":"****"}"#),
            ("12345678", "\"****\""),
            (r#"{"\"":"\\","a":12345678}"#, r#"{"\"":"\\","a":"****"}"#),
            (r#"{"12345678":"12345678"}"#, r#"{"****":"****"}"#),
            // Nothing of it can be saved, and nothing of it is shown.
            (r#"["\u123456789"]"#, "\"****\""),
        ] {
            assert!(is_json(body.as_bytes()), "{body}");
            assert_eq!(over(&["12345678"], body), without);
        }
        assert_eq!(over(&["12345678"], "{12345678"), "{****");
    }

    #[test]
    fn headers_and_words_of_the_transport() {
        let mask = Mask::of(["a-secret+1"].into_iter());
        let mut headers = HeaderMap::new();
        headers.append("location", "/x?key=a-secret%2B1&b".parse().unwrap());
        headers.append("x-a", "1".parse().unwrap());
        let a = Answer { status: 302, headers, body: Bytes::new() };
        let Observation::Answer(a) = mask.over(Observation::Answer(a)) else { panic!("no answer") };
        assert_eq!((a.header("location"), a.header("x-a")), (Some("/x?key=****&b"), Some("1")));
        for (seen, whole) in [
            (Observation::NotSent("no a-secret+1".into()), Observation::NotSent("no ****".into())),
            (Observation::Torn("a-secret+1".into()), Observation::Torn("****".into())),
            (Observation::ConnectionLost("a-secret+1".into()), Observation::ConnectionLost("****".into())),
            (Observation::Timeout, Observation::Timeout),
        ] {
            assert_eq!(format!("{:?}", mask.over(seen)), format!("{whole:?}"));
        }
    }

    #[test]
    fn what_begins_like_a_secret_hides_none() {
        assert_eq!(over(&["ababab/x"], "abababab/x"), "ab****");
        assert_eq!(over(&["aaaaaaa+"], "aaaaaaaaaa%2Baaaaaaa+"), "aaa****");
    }

    #[test]
    fn percent_signs_are_read_so_often() {
        let encoded = |times| format!("%{}2Fsecret78", "25".repeat(times));
        assert_eq!(over(&["/secret78"], &encoded(MAX_PERCENTS)), "****");
        assert_eq!(over(&["/secret78"], &encoded(MAX_PERCENTS + 1)), encoded(MAX_PERCENTS + 1));
    }

    /// Secrets that a caller may have chosen, and answers that it may have caused.
    #[test]
    fn what_takes_too_long_is_masked_as_a_whole() {
        let slashes = format!("{}abcd", "/".repeat(4000));
        let letters = format!("{}/", "a".repeat(4095));
        let percents = format!("{}b", "/".repeat(4095));
        for (secret, body) in [
            (&slashes, format!("{}abcd", "/".repeat(1 << 14))),
            (&letters, "a".repeat(1 << 14)),
            (&percents, format!("{}%{}", "/".repeat(4000), "25".repeat(1 << 13))),
            (&percents, format!("{}a", "/".repeat(4094)).repeat(4)),
        ] {
            let found = Mask::of(std::iter::once(&**secret)).found(body.as_bytes());
            assert!(found.first() == Some(&(0..body.len())), "{body:.20} {found:?}");
        }
        let json = format!("{{\"said\":\"{}abcd\"}}", "/".repeat(1 << 14));
        assert_eq!(over(&[&slashes], &json), "\"****\"");
        // What takes no longer is masked by itself.
        assert_eq!(over(&[&slashes], &format!("a {slashes} b")), "a **** b");
    }

    #[test]
    fn large_answers_are_seen_through_fast() {
        let secrets = ["sk_live_0123456789abcdef", "+x/sk_live_0123456789abcdef"];
        let body = "sk_live_012345678 ".repeat(10 << 20 >> 4);
        // Each place is looked at for a secret that begins with a character of many ways.
        let slashes = format!("/sk_live_0123456789abcdef{}", "\\".repeat(1 << 20));
        let mask = Mask::of(secrets.into_iter());
        let began = std::time::Instant::now();
        assert!(mask.found(body.as_bytes()).is_empty());
        let found = mask.found(slashes.as_bytes());
        assert_eq!((found.len(), &found[0]), (1, &(1..25)));
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
