//! Taking an input apart.

use http::{HeaderMap, HeaderName, HeaderValue};

/// What divides the parts of an input: a line of its own.
const DIVIDER: &[u8] = b"\n%%\n";

/// The first `N` parts of an input; those that are missing are empty, the last has all that is left.
#[must_use]
pub fn parts<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut rest = data;
    let mut out = [&data[..0]; N];
    for (i, part) in out.iter_mut().enumerate() {
        let end = if i + 1 < N { find(rest, DIVIDER) } else { None };
        *part = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[], |end| &rest[end + DIVIDER.len()..]);
    }
    out
}

/// Where `what` begins in `text`.
#[must_use]
pub fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len().max(1)).position(|window| window == what)
}

/// Header lines, `name: value` each. What can't be a header is left out, as are those that `keep` doesn't want.
#[must_use]
pub fn headers(text: &[u8], keep: impl Fn(&str) -> bool) -> HeaderMap {
    let mut all = HeaderMap::new();
    for line in text.split(|b| *b == b'\n') {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value))
            && keep(name.as_str())
        {
            all.append(name, value);
        }
    }
    all
}
