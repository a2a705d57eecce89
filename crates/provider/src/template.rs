//! Text with holes: templates as manifests write them, and text in which only the effect key is still missing.
//!
//! An intent is recorded before its effect key is at hand, and the key must land exactly where the manifest says.
//! So what is recorded is the text around the key, and no text of a caller can be mistaken for the place.

use ledger::EffectKey;
use serde::{Deserialize, Serialize};

/// Text in pieces; the effect key goes between them. One piece: no key in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spliced(Vec<String>);

impl Default for Spliced {
    fn default() -> Self {
        Spliced(vec![String::new()])
    }
}

impl Spliced {
    pub(crate) fn text(text: impl Into<String>) -> Spliced {
        Spliced(vec![text.into()])
    }
    pub(crate) fn push_str(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(last) => last.push_str(text),
            None => self.0.push(text.to_owned()),
        }
    }
    pub(crate) fn push_key(&mut self) {
        if self.0.is_empty() {
            self.0.push(String::new());
        }
        self.0.push(String::new());
    }
    pub(crate) fn push(&mut self, other: &Spliced) {
        for (i, piece) in other.0.iter().enumerate() {
            if i > 0 {
                self.push_key();
            }
            self.push_str(piece);
        }
    }
    /// What of another text comes after its beginning.
    pub(crate) fn push_after(&mut self, beginning: &str, other: &Spliced) {
        for (i, piece) in other.0.iter().enumerate() {
            if i > 0 {
                self.push_key();
            }
            self.push_str(if i == 0 { piece.strip_prefix(beginning).unwrap_or(piece) } else { piece });
        }
    }
    /// The same with another beginning, if it begins with this one.
    pub(crate) fn replace_start(&mut self, from: &str, to: &str) {
        if let Some(first) = self.0.first_mut()
            && let Some(rest) = first.strip_prefix(from)
            && (rest.is_empty() || rest.starts_with(['/', '?']))
        {
            *first = format!("{to}{rest}");
        }
    }
    /// Each piece changed by itself; the key stays where it is.
    pub(crate) fn map(&self, change: impl Fn(&str) -> String) -> Spliced {
        Spliced(self.0.iter().map(|piece| change(piece)).collect())
    }
    pub(crate) fn has_key(&self) -> bool {
        self.0.len() > 1
    }
    /// The whole text. A key is 36 characters of `0-9a-f-`, so it needs no escaping anywhere.
    #[must_use]
    pub fn with(&self, key: &EffectKey) -> String {
        self.0.join(key.as_str())
    }
    /// The whole text with a stand-in where the key goes, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.0.join("{key}")
    }
    /// The same text up to a character, for summaries.
    pub(crate) fn shown_until(&self, stop: char) -> String {
        let all = self.shown();
        all.split(stop).next().unwrap_or_default().to_owned()
    }
}

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// As it stands.
    Text(String),
    /// The effect key.
    Key,
    /// An argument, by its path.
    Arg(Vec<String>),
}

/// Text with `{…}` holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(pub Vec<Piece>);

impl Template {
    /// A method's path: `{name}` is an argument, `{$key}` the effect key.
    pub(crate) fn path(text: &str) -> Result<Template, String> {
        Template::parse(text, |hole| match hole {
            "$key" => Ok(Piece::Key),
            name if is_name(name) => Ok(Piece::Arg(vec![name.to_owned()])),
            _ => Err(format!(
                "{{{hole}}} is not an argument's name; write {{id}}, or {{$key}} for the effect key"
            )),
        })
    }
    /// A look-up's value: `{key}` or `{marker}` is the effect key, `{args.name}` an argument.
    pub(crate) fn value(text: &str) -> Result<Template, String> {
        Template::parse(text, |hole| match hole.strip_prefix("args.") {
            _ if hole == "key" || hole == "marker" => Ok(Piece::Key),
            Some(path) if path.split('.').all(is_name) => {
                Ok(Piece::Arg(path.split('.').map(str::to_owned).collect()))
            }
            _ => Err(format!(
                "{{{hole}}} is unknown here; the holes are {{key}}, {{marker}} and {{args.name}}"
            )),
        })
    }

    fn parse(text: &str, hole: impl Fn(&str) -> Result<Piece, String>) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (inside, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?} has a {{ without its }}"))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(hole(inside)?);
            rest = after;
        }
        if rest.contains('}') {
            return Err(format!("{text:?} has a }} without its {{"));
        }
        if !rest.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template(pieces))
    }

    pub(crate) fn has_key(&self) -> bool {
        self.0.contains(&Piece::Key)
    }
    /// The arguments it names.
    pub(crate) fn args(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().filter_map(|p| match p {
            Piece::Arg(path) => Some(path.as_slice()),
            _ => None,
        })
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn holes() {
        let t = Template::path("/v1/{id}/x{$key}").unwrap();
        assert_eq!(t.0[1], Piece::Arg(vec!["id".into()]));
        assert!(t.has_key());
        let v = Template::value("a {args.card.id} {marker}").unwrap();
        assert_eq!(v.args().next().unwrap(), ["card", "id"]);
        for bad in ["{", "}", "{}", "{a b}", "{id}}"] {
            assert!(Template::path(bad).is_err(), "{bad}");
        }
        assert!(Template::value("{id}").is_err());
    }
}
