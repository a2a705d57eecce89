//! URI templates of RFC 6570, level 1: literals and `{name}`, each of which stands for one or more characters of the
//! URI without `/`, `?` or `#`, percent-decoded.
//!
//! Promises: what isn't level 1 is refused when the catalog is built; matching takes time linear in the URI for each
//! variable, since between two variables there is always a literal.

use std::collections::BTreeMap;

/// The longest template, in bytes.
const MAX_TEMPLATE: usize = 2048;
/// The most variables of one template.
const MAX_VARIABLES: usize = 32;

enum Part {
    Literal(String),
    Variable(String),
}

/// A checked template.
pub(super) struct Template(Vec<Part>);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// Why it can't be served.
    pub(super) fn parse(text: &str) -> Result<Template, &'static str> {
        if text.len() > MAX_TEMPLATE {
            return Err("it is longer than 2048 bytes");
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let open = rest.find('{').unwrap_or(rest.len());
            let literal = &rest[..open];
            if literal.contains('}') {
                return Err("a brace is closed that was not opened");
            }
            if literal.chars().any(|c| c.is_control() || c.is_whitespace() || "<>\"|\\^`".contains(c)) {
                return Err("it has a character that can't be in a URI");
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            rest = &rest[open..];
            let Some(inside) = rest.strip_prefix('{') else { break };
            let close = inside.find('}').ok_or("a brace is opened and not closed")?;
            let name = &inside[..close];
            rest = &inside[close + 1..];
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.') {
                return Err(
                    "a variable is not a plain name of A-Z, a-z, 0-9, _ and .; operators, lists and modifiers of \
                     higher levels of RFC 6570 are not understood",
                );
            }
            if matches!(parts.last(), Some(Part::Variable(_))) {
                return Err("two variables follow each other, so nobody could tell where one ends");
            }
            if parts.iter().any(|p| matches!(p, Part::Variable(other) if other == name)) {
                return Err("a variable is named twice");
            }
            parts.push(Part::Variable(name.to_owned()));
        }
        let variables = parts.iter().filter(|p| matches!(p, Part::Variable(_))).count();
        match parts.first() {
            _ if variables == 0 => Err("it has no variable; offer it as a resource"),
            _ if variables > MAX_VARIABLES => Err("it has more than 32 variables"),
            Some(Part::Literal(l)) if l.contains(':') => Ok(Template(parts)),
            _ => Err("it does not begin with a scheme, such as `file:`"),
        }
    }

    /// Whether it has a variable of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|p| matches!(p, Part::Variable(n) if n == name))
    }

    /// The variables of a URI that it describes. A variable ends where the literal after it begins first, and the last
    /// one, if nothing follows it, at the URI's end.
    pub(super) fn variables_of(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let mut rest = uri;
        let mut parts = self.0.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(l) => rest = rest.strip_prefix(l.as_str())?,
                Part::Variable(name) => {
                    let end = match parts.peek() {
                        // The last literal must reach to the end of the URI.
                        Some(Part::Literal(l)) if self.is_last(l) => rest.len().checked_sub(l.len())?,
                        // A value is never empty, so the literal is looked for behind its first character.
                        Some(Part::Literal(l)) => {
                            let first = rest.chars().next()?.len_utf8();
                            first + rest[first..].find(l.as_str())?
                        }
                        _ => rest.len(),
                    };
                    let value = rest.get(..end)?;
                    if value.is_empty() || value.contains(['/', '?', '#']) {
                        return None;
                    }
                    found.insert(name.clone(), decoded(value)?);
                    rest = &rest[end..];
                }
            }
        }
        rest.is_empty().then_some(found)
    }

    fn is_last(&self, literal: &str) -> bool {
        matches!(self.0.last(), Some(Part::Literal(l)) if std::ptr::eq(l.as_str(), literal))
    }
}

/// Percent-decoding (RFC 3986, section 2.1); `None` if it is malformed or no UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Template;

    fn variables(template: &str, uri: &str) -> Option<Vec<String>> {
        let t = Template::parse(template).ok()?;
        t.variables_of(uri).map(|v| v.into_iter().map(|(k, v)| format!("{k}={v}")).collect())
    }

    #[test]
    fn variables_are_found_and_decoded() {
        let some = |v: &[&str]| Some(v.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(variables("db://{table}/{id}", "db://users/7"), some(&["id=7", "table=users"]));
        assert_eq!(variables("a:{x}/data", "a:1/data"), some(&["x=1"]));
        assert_eq!(variables("a:{x}-{y}", "a:1-2-3"), some(&["x=1", "y=2-3"]));
        assert_eq!(variables("a:{x}.json", "a:b.json.json"), some(&["x=b.json"]));
        assert_eq!(variables("a:{x}", "a:%C3%A4%2F"), some(&["x=ä/"]));
        assert_eq!(variables("a:{x}-{y}!", "a:--1!"), some(&["x=-", "y=1"]));
    }

    #[test]
    fn other_uris_do_not_match() {
        for (template, uri) in [
            ("db://{table}/{id}", "db://users"),
            ("db://{table}/{id}", "db://users/"),
            ("db://{table}/{id}", "db://users/7/8"),
            ("db://{table}/{id}", "db:///7"),
            ("a:{x}", "a:"),
            ("a:{x}", "a:b?c"),
            ("a:{x}", "a:b#c"),
            ("a:{x}", "a:%G0"),
            ("a:{x}", "a:%C3"),
            ("a:{x}", "a:%4"),
            ("a:{x}/data", "a:1/data/more"),
            ("a:{x}/data", "a:/data"),
            ("a:{x}/data", "a:ä"),
            ("a:{x}", "b:1"),
        ] {
            assert_eq!(variables(template, uri), None, "{template} {uri}");
        }
    }

    #[test]
    fn what_is_not_level_1_is_refused() {
        for bad in [
            "",
            "a:b",
            "{x}",
            "x{y}",
            "a:{+x}",
            "a:{#x}",
            "a:{x,y}",
            "a:{x*}",
            "a:{x:3}",
            "a:{?x}",
            "a:{}",
            "a:{x",
            "a:x}",
            "a:{x}{y}",
            "a:{x}/{x}",
            "a:{x} ",
            "a:{ä}",
            "a:{{x}}",
        ] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
        assert!(Template::parse(&format!("a:{{x}}{}", "b".repeat(3000))).is_err());
        let many: String = (0..40).map(|i| format!("/{{v{i}}}")).collect();
        assert!(Template::parse(&format!("a:{many}")).is_err());
    }
}
