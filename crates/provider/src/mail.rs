//! Mail as it is sent (RFC 5322): plain text in UTF-8, whose Message-ID is the effect key at a domain.
//!
//! What is written depends on the arguments alone, so the same call is the same message. There is no Date in it: whoever
//! takes a message in for delivery adds one.

use crate::encode::{self, Level};
use crate::error::BadArguments;
use crate::template::Spliced;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

/// What arguments a message takes.
pub(crate) const ARGUMENTS: [&str; 7] = ["from", "to", "cc", "bcc", "reply_to", "subject", "text"];
/// Its type.
pub(crate) const TYPE: &str = "message/rfc822";

/// The most addresses of one message.
const MAX_ADDRESSES: usize = 500;
/// The longest subject, in bytes.
const MAX_SUBJECT: usize = 2000;
/// Bytes of text in one encoded word (RFC 2047): with its frame and the name of the header no line is longer than 76.
const WORD: usize = 39;
/// Characters of base64 in a line (RFC 2045).
const LINE: usize = 76;

/// Whether a text is a domain's name.
pub(crate) fn is_domain(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    text.len() <= 200 && text.contains('.') && text.split('.').all(label)
}

/// The message of these arguments. `domain`: of its Message-ID; without one there is none.
pub(crate) fn write(
    arguments: &[(String, &RawValue)],
    domain: Option<&str>,
) -> Result<Spliced, BadArguments> {
    let given = |name: &str| arguments.iter().find(|(n, _)| n == name).map(|(_, raw)| *raw);
    let mut count = 0;
    let mut out = Spliced::default();
    let mut addressed = false;
    for (name, header) in
        [("from", "From"), ("reply_to", "Reply-To"), ("to", "To"), ("cc", "Cc"), ("bcc", "Bcc")]
    {
        let all = given(name).map(|raw| addresses(name, raw)).transpose()?.unwrap_or_default();
        count += all.len();
        if count > MAX_ADDRESSES {
            return Err(BadArguments::new(format!("a message has {MAX_ADDRESSES} addresses at most")));
        }
        if name == "from" && all.len() != 1 {
            return Err(BadArguments::new("argument `from` must be one address"));
        }
        addressed |= matches!(name, "to" | "cc" | "bcc") && !all.is_empty();
        if !all.is_empty() {
            // One a line, so that no line is too long.
            out.push_str(&format!("{header}: {}\r\n", all.join(",\r\n ")));
        }
    }
    if !addressed {
        return Err(BadArguments::new("a message needs an address in `to`, `cc` or `bcc`"));
    }
    if let Some(domain) = domain {
        out.push_str("Message-ID: <");
        out.push_key();
        out.push_str(&format!("@{domain}>\r\n"));
    }
    let text = |name: &str| -> Result<String, BadArguments> {
        let raw = given(name).map(|raw| encode::scalar(raw, name, "message")).transpose()?;
        Ok(raw.flatten().unwrap_or_default())
    };
    let subject = text("subject")?;
    if subject.len() > MAX_SUBJECT || subject.chars().any(char::is_control) {
        return Err(BadArguments::new("argument `subject` must be one line, and not too long"));
    }
    if !subject.is_empty() {
        out.push_str(&format!("Subject: {}\r\n", words(&subject)));
    }
    out.push_str("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n");
    let body = text("text")?.replace("\r\n", "\n").replace('\n', "\r\n");
    let body = STANDARD.encode(body);
    for line in body.as_bytes().chunks(LINE) {
        out.push_str(&format!("{}\r\n", String::from_utf8_lossy(line)));
    }
    Ok(out)
}

/// One address or a list of them, each bare: what could end a header or begin another address is refused.
fn addresses(name: &str, raw: &RawValue) -> Result<Vec<String>, BadArguments> {
    let one = |text: String| {
        let (local, domain) = text.rsplit_once('@').unwrap_or_default();
        let plain = |c: char| c.is_ascii_graphic() && !"()<>[]:;@\\,\"".contains(c);
        let good = (1..=64).contains(&local.len()) && local.chars().all(plain) && is_domain(domain);
        if good {
            Ok(text)
        } else {
            Err(BadArguments::new(format!(
                "argument `{name}` must hold bare addresses like ada@example.com, without names and brackets"
            )))
        }
    };
    let wrong = || BadArguments::new(format!("argument `{name}` must be an address or a list of addresses"));
    match encode::level(raw, name)? {
        Level::Null => Ok(Vec::new()),
        Level::Scalar(text) => Ok(vec![one(text)?]),
        Level::Array(items) => items
            .iter()
            .map(|item| match encode::level(item, name)? {
                Level::Scalar(text) => one(text),
                _ => Err(wrong()),
            })
            .collect(),
        Level::Object(_) => Err(wrong()),
    }
}

/// A header's text: as it is where that is plain and short, else in encoded words, which break no character.
fn words(text: &str) -> String {
    let plain = text.len() <= LINE && text.bytes().all(|b| (b' '..0x7f).contains(&b)) && !text.contains("=?");
    if plain {
        return text.to_owned();
    }
    let mut out: Vec<String> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(WORD);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        out.push(format!("=?utf-8?B?{}?=", STANDARD.encode(&rest[..end])));
        rest = &rest[end..];
    }
    out.join("\r\n ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(json: &str) -> Result<String, String> {
        let args = encode::arguments(json).unwrap();
        let args: Vec<(String, &RawValue)> = args.iter().map(|(n, v)| (n.clone(), &**v)).collect();
        write(&args, Some("mail.example.com")).map(|m| m.shown()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_message_is_what_its_arguments_say() {
        let m = message(
            r#"{"from":"ops@example.com","to":["a@example.org","b+c@example.org"],"bcc":"d@example.org","subject":"Grüße","text":"one\ntwo"}"#,
        )
        .unwrap();
        assert_eq!(
            m,
            "From: ops@example.com\r\nTo: a@example.org,\r\n b+c@example.org\r\nBcc: d@example.org\r\n\
             Message-ID: <{key}@mail.example.com>\r\nSubject: =?utf-8?B?R3LDvMOfZQ==?=\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\nb25lDQp0d28=\r\n"
        );
    }

    #[test]
    fn no_line_is_long_and_no_character_is_cut() {
        let subject = "ä€🦀".repeat(40);
        let text = "x".repeat(1000);
        let m = message(&format!(r#"{{"from":"a@b.c","to":"d@e.f","subject":"{subject}","text":"{text}"}}"#))
            .unwrap();
        assert!(m.split("\r\n").all(|line| line.len() <= 78), "{m}");
        let (_, after) = m.split_once("Subject: ").unwrap();
        let (coded, _) = after.split_once("\r\nMIME").unwrap();
        let whole: Vec<u8> = coded
            .split("\r\n ")
            .flat_map(|w| STANDARD.decode(w.trim_start_matches("=?utf-8?B?").trim_end_matches("?=")).unwrap())
            .collect();
        assert_eq!(String::from_utf8(whole).unwrap(), subject);
    }

    #[test]
    fn nothing_gets_into_the_headers() {
        for bad in [
            r#"{"from":"a@b.c","to":"d@e.f\r\nBcc: x@y.z","subject":"s"}"#,
            r#"{"from":"a@b.c","to":"d@e.f, x@y.z"}"#,
            r#"{"from":"a@b.c","to":"D <d@e.f>"}"#,
            r#"{"from":"a@b.c","to":["d@e.f",{"x":1}]}"#,
            r#"{"from":"a@b.c","to":"d@e.f","subject":"s\nBcc: x@y.z"}"#,
            r#"{"from":["a@b.c","g@h.i"],"to":"d@e.f"}"#,
            r#"{"from":"a@b.c"}"#,
            r#"{"to":"d@e.f"}"#,
            r#"{"from":"a@b.c","to":"d@e_f.g"}"#,
        ] {
            assert!(message(bad).is_err(), "{bad}");
        }
        assert!(
            is_domain("a.b")
                && !is_domain("localhost")
                && !is_domain("a..b")
                && !is_domain("-a.b")
                && !is_domain("a.b>")
        );
    }
}
