//! Canonical JSON and fingerprints.

use crate::tree::{self, Tree};
use ledger::canonical::{
    Canonical, CanonicalError, Fingerprint, MAX_DEPTH, canonicalise, canonicalise_arguments,
};

/// The bound on exponents as they are written.
const MAX_EXPONENT: i64 = 100_000;

/// A number's exponent as it is written; `None` if it has more digits than any that is accepted.
fn exponent(text: &str) -> Option<i64> {
    let Some(at) = text.find(['e', 'E']) else { return Some(0) };
    let written = text[at + 1..].trim_start_matches('+');
    let (minus, digits) = written.strip_prefix('-').map_or((false, written), |d| (true, d));
    let size: i64 = match digits.trim_start_matches('0') {
        "" => 0,
        long if long.len() > 15 => return None,
        short => short.parse().ok()?,
    };
    Some(if minus { -size } else { size })
}

/// A number's exact value: sign, digits without zeros at either end, power of ten.
fn exact(text: &str) -> Option<(bool, String, i64)> {
    let mut power = exponent(text)?;
    let mantissa = &text[..text.find(['e', 'E']).unwrap_or(text.len())];
    let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    if let Some(point) = mantissa.find('.') {
        power -= i64::try_from(mantissa.len() - point - 1).ok()?;
    }
    while digits.last() == Some(&b'0') {
        digits.pop();
        power += 1;
    }
    let digits: String = digits.into_iter().skip_while(|d| *d == b'0').map(char::from).collect();
    Some(if digits.is_empty() { (false, digits, 0) } else { (text.starts_with('-'), digits, power) })
}

/// Whether two trees mean the same.
fn means(a: &Tree, b: &Tree) -> bool {
    match (a, b) {
        (Tree::Number(a), Tree::Number(b)) => a == b || exact(a).is_some() && exact(a) == exact(b),
        (Tree::Array(a), Tree::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means(a, b)),
        (Tree::Object(a), Tree::Object(b)) => {
            let mut sorted = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
            sorted.0.sort_by(|a, b| a.0.cmp(&b.0));
            sorted.1.sort_by(|a, b| a.0.cmp(&b.0));
            a.len() == b.len() && sorted.0.iter().zip(&sorted.1).all(|(a, b)| a.0 == b.0 && means(&a.1, &b.1))
        }
        (a, b) => a == b,
    }
}

fn numbers_bounded(tree: &Tree) -> bool {
    match tree {
        Tree::Number(text) => exponent(text).is_some_and(|e| e.abs() <= MAX_EXPONENT),
        Tree::Array(all) => all.iter().all(numbers_bounded),
        Tree::Object(all) => all.iter().all(|(_, value)| numbers_bounded(value)),
        _ => true,
    }
}

/// The same tree with its last leaf changed.
fn changed(tree: &Tree) -> Tree {
    match tree {
        Tree::Null => Tree::Bool(false),
        Tree::Bool(b) => Tree::Bool(!b),
        Tree::Number(text) => match exact(text) {
            // One unit in a place that the number doesn't reach.
            Some((minus, digits, power)) => {
                Tree::Number(format!("{}{digits}1e{}", if minus { "-" } else { "" }, power - 1))
            }
            None => Tree::Null,
        },
        Tree::String(text) => Tree::String(format!("{text}\u{301}")),
        Tree::Array(all) => {
            let mut all = all.clone();
            match all.pop() {
                Some(last) => all.push(changed(&last)),
                None => all.push(Tree::Null),
            }
            Tree::Array(all)
        }
        Tree::Object(all) => {
            let mut all = all.clone();
            match all.pop() {
                Some((name, last)) => all.push((name, changed(&last))),
                None => all.push(("a".into(), Tree::Null)),
            }
            Tree::Object(all)
        }
    }
}

/// Another spelling of the same number.
fn respelt(text: &str) -> String {
    match exact(text) {
        Some((minus, digits, power)) if !digits.is_empty() && power.abs() < 90_000 => {
            let minus = if minus { "-" } else { "" };
            format!("{minus}0.00{digits}00E{:+}", power + i64::try_from(digits.len()).unwrap_or(0) + 2)
        }
        Some((_, digits, _)) if digits.is_empty() => "-0.000e-07".into(),
        _ => text.to_owned(),
    }
}

/// A text has a canonical form exactly where the naive reading finds one; the form means the same, is the same for
/// every spelling, and another for every other meaning.
///
/// # Panics
/// A promise is broken.
pub fn canonical(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tree = tree::read(data, MAX_DEPTH, true);
    match canonicalise(text) {
        Ok(form) => {
            let tree = tree.expect("what is not JSON has no canonical form");
            assert!(numbers_bounded(&tree), "a number without bound has a canonical form");
            meaning(&form, &tree);
            arguments(text, &tree);
        }
        Err(CanonicalError::Exponent) => {
            // Found before whatever else may be wrong further on.
            assert!(tree.is_none_or(|t| !numbers_bounded(&t)), "a number within bounds was refused");
        }
        Err(e) => {
            assert!(tree.is_none(), "JSON within the limits has no canonical form: {e}");
            if let CanonicalError::Syntax(at) = e {
                assert!(at <= data.len(), "an error outside of the text, at {at}");
            }
        }
    }
}

fn meaning(form: &Canonical, tree: &Tree) {
    let own = form.as_str();
    let read = tree::read(own.as_bytes(), MAX_DEPTH, true).expect("a canonical form is JSON");
    assert!(means(&read, tree), "the canonical form means something else");
    match canonicalise(own) {
        Ok(again) => assert_eq!(&again, form, "the canonical form of a canonical form is another"),
        // The bound is on exponents as they are written, and the canonical form writes its own.
        Err(e) => assert_eq!(e, CanonicalError::Exponent),
    }
    let respelt = tree.written(&respelt);
    assert_eq!(
        canonicalise(&respelt).as_ref(),
        Ok(form),
        "another spelling has another canonical form: {respelt}"
    );
    let other = changed(tree).written(&str::to_owned);
    if let Ok(other) = canonicalise(&other) {
        assert_ne!(&other, form, "another meaning has the same canonical form");
        assert_ne!(Fingerprint::of("t", &other), Fingerprint::of("t", form));
    }
    let print = Fingerprint::of("t", form);
    assert_eq!(print, Fingerprint::of("t", &form.clone()));
    assert_ne!(print, Fingerprint::of("u", form), "two tools share a fingerprint");
    let kept = serde_json::to_string(&print).expect("a fingerprint can be written");
    assert_eq!(serde_json::from_str::<Fingerprint>(&kept).expect("and read"), print);
}

fn arguments(text: &str, tree: &Tree) {
    let Tree::Object(all) = tree else {
        assert_eq!(canonicalise_arguments(Some(text), None), Err(CanonicalError::NotAnObject));
        return;
    };
    let out = all.first().map_or("k", |(name, _)| name.as_str());
    let left = Tree::Object(all.iter().filter(|(name, _)| name != out).cloned().collect());
    let form = canonicalise_arguments(Some(text), Some(out));
    assert_eq!(form, canonicalise(&left.written(&str::to_owned)), "leaving a member out leaves the others");
}
