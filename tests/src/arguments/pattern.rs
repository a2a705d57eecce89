//! A text that a regular expression finds.

use crate::random::Random;
use regex_syntax::hir::{Class, Hir, HirKind};

/// The most repetitions where the expression gives no end.
const FURTHER: u32 = 3;

/// A text in which the expression is found, of at least so many characters where its repetitions allow; `None` if the
/// expression can't be read.
pub(super) fn matching(pattern: &str, least: usize, random: &mut Random) -> Option<String> {
    let read = regex_syntax::ParserBuilder::new().unicode(true).utf8(true).build().parse(pattern).ok()?;
    let mut made = String::new();
    for more in [0, 8, 64] {
        made.clear();
        write(&read, more, random, &mut made);
        if made.chars().count() >= least {
            break;
        }
    }
    // One that is found at the beginning of anything may have anything after it.
    if !pattern.ends_with('$') {
        while made.chars().count() < least {
            made.push('a');
        }
    }
    Some(made)
}

fn write(hir: &Hir, more: u32, random: &mut Random, out: &mut String) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(text) => out.push_str(&String::from_utf8_lossy(&text.0)),
        HirKind::Class(class) => out.push(one(class, random)),
        HirKind::Repetition(r) => {
            let most = r.max.unwrap_or_else(|| r.min.saturating_add(FURTHER).saturating_add(more));
            let span = most.saturating_sub(r.min).min(FURTHER + more);
            let times =
                if more > 0 { r.min + span } else { r.min + random.below(u64::from(span) + 1) as u32 };
            for _ in 0..times {
                write(&r.sub, more, random, out);
            }
        }
        HirKind::Capture(inside) => write(&inside.sub, more, random, out),
        HirKind::Concat(parts) => parts.iter().for_each(|p| write(p, more, random, out)),
        HirKind::Alternation(parts) => write(random.one(parts), more, random, out),
    }
}

/// A character of a class: of its first ranges that can be seen, if there are any.
fn one(class: &Class, random: &mut Random) -> char {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(all) => all.iter().map(|r| (r.start(), r.end())).collect(),
        Class::Bytes(all) => all.iter().map(|r| (char::from(r.start()), char::from(r.end()))).collect(),
    };
    let seen: Vec<(u32, u32)> = ranges
        .iter()
        .map(|(a, b)| (u32::from(*a).max(0x21), u32::from(*b).min(0x7e)))
        .filter(|(a, b)| a <= b)
        .collect();
    if seen.is_empty() {
        return ranges.first().map_or('a', |(a, _)| *a);
    }
    let (a, b) = *random.one(&seen);
    let at = a + u32::try_from(random.below(u64::from(b - a) + 1)).unwrap_or(0);
    char::from_u32(at).unwrap_or('a')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::matching;
    use crate::random::Random;

    #[test]
    fn what_is_made_is_found() {
        let patterns = [
            "^AC[0-9a-fA-F]{32}$",
            "^(?:top|bottom|after:\\d+)$",
            "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?",
            "^.*@.*\\..*",
            "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
            "^\\p{L}+$",
        ];
        for pattern in patterns {
            let schema = serde_json::json!({ "type": "string", "pattern": pattern, "minLength": 3 });
            let reader = jsonschema::validator_for(&schema).unwrap();
            for n in 0..50 {
                let made = matching(pattern, 3, &mut Random::new(5, n)).unwrap();
                assert!(reader.is_valid(&serde_json::json!(made)), "{pattern}: {made}");
            }
        }
        assert!(matching("(", 0, &mut Random::new(1, 1)).is_none());
    }
}
