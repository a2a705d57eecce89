//! The four formats that a form may demand of a text (spec: client/elicitation, "Requested Schema").
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What a text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A mailbox in ASCII (RFC 5321, 4.1.2).
    Email,
    /// A URI with its scheme (RFC 3986).
    Uri,
    /// A day (RFC 3339, `full-date`).
    Date,
    /// A moment (RFC 3339, `date-time`).
    DateTime,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 4] = [Format::Email, Format::Uri, Format::Date, Format::DateTime];

    /// The name in a schema.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Email => "email",
            Format::Uri => "uri",
            Format::Date => "date",
            Format::DateTime => "date-time",
        }
    }

    /// The format of that name.
    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// For a refusal: "must be …".
    pub(super) fn words(self) -> &'static str {
        match self {
            Format::Email => "an email address",
            Format::Uri => "a URI with its scheme",
            Format::Date => "a date such as 2026-07-28",
            Format::DateTime => "a date and time such as 2026-07-28T09:30:00Z",
        }
    }

    /// Whether the text is one.
    pub fn fits(self, text: &str) -> bool {
        match self {
            Format::Email => is_email(text),
            Format::Uri => is_uri(text),
            Format::Date => is_date(text),
            Format::DateTime => is_date(text.get(..10).unwrap_or_default()) && is_moment(text),
        }
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b))
    };
    let quoted = |text: &str| {
        let inside = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        inside.is_some_and(|t| t.bytes().all(|b| (b' '..=b'~').contains(&b) && !matches!(b, b'"' | b'\\')))
    };
    (1..=64).contains(&local.len())
        && (local.split('.').all(atom) || quoted(local))
        && domain.len() <= 255
        && domain.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

/// Whether a text is a URI: the characters of RFC 3986 only, a scheme, and what the scheme demands as browsers see it.
pub(super) fn is_uri(text: &str) -> bool {
    let bytes = text.as_bytes();
    let allowed = |(at, b): (usize, &u8)| match b {
        b'%' => bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
        _ => b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(b),
    };
    bytes.iter().enumerate().all(allowed) && url::Url::parse(text).is_ok()
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(at, b)| if matches!(at, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    shape && is_moment(&format!("{text}T00:00:00Z"))
}

fn is_moment(text: &str) -> bool {
    OffsetDateTime::parse(text, &Rfc3339).is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Format;

    #[test]
    fn each_format_takes_its_own_and_nothing_near_it() {
        let cases: [(&str, &[&str], &[&str]); 4] = [
            (
                "email",
                &["a@b", "octo.cat+x@github.com", "\"a b\"@example.org"],
                &["", "a", "a@", "@b", "a b@c", "a..b@c", "a@b..c", "a@-b", "a@b c", "ä@b", "a@b\n", "a@b@"],
            ),
            (
                "uri",
                &["https://example.com/a?b#c", "urn:isbn:0451450523", "mailto:a@b.c", "file:///tmp/%20x"],
                &[
                    "",
                    "example.com",
                    "/a",
                    "https://",
                    "https://a b",
                    "http://[::1",
                    "a:%zz",
                    "hTTp://exa\nmple",
                ],
            ),
            (
                "date",
                &["2026-07-28", "2024-02-29", "0001-01-01"],
                &[
                    "",
                    "2026-7-28",
                    "2026-02-29",
                    "2026-13-01",
                    "2026-07-28T00:00:00Z",
                    "+026-07-28",
                    "2026/07/28",
                ],
            ),
            (
                "date-time",
                &["2026-07-28T09:30:00Z", "2026-07-28T09:30:00.123+02:00"],
                &["", "2026-07-28", "2026-07-28T09:30:00", "2026-07-28T25:00:00Z", "2026-02-30T09:30:00Z"],
            ),
        ];
        for (name, good, bad) in cases {
            let format = Format::parse(name).unwrap();
            assert_eq!(format.as_str(), name);
            for text in good {
                assert!(format.fits(text), "{name} {text:?}");
            }
            for text in bad {
                assert!(!format.fits(text), "{name} {text:?}");
            }
        }
        assert_eq!(Format::parse("password"), None);
    }
}
