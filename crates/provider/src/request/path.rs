//! Arguments as parts of a URL's path. Each stays inside its segment, or, where its manifest says so, inside the segments that
//! it names; none can climb out of them, and none can end the path.

use super::{Args, argument};
use crate::encode::{self, Level, percent};
use crate::error::BadArguments;
use crate::method::Method;
use crate::raw::Style;
use crate::template::{Piece, Spliced, Template};
use serde_json::value::RawValue;

impl Method {
    /// A path with its arguments in place.
    pub(super) fn path_of(&self, template: &Template, args: &Args) -> Result<Spliced, BadArguments> {
        let mut out = Spliced::default();
        for piece in &template.0 {
            match piece {
                Piece::Text(t) => out.push_str(t),
                Piece::Key => out.push_key(),
                Piece::Arg(path) => {
                    let name = path.join(".");
                    let own = match path.as_slice() {
                        [name] => args.iter().find(|(n, _)| n == name).zip(self.style(name)),
                        _ => None,
                    };
                    if let Some(((_, raw), style)) = own {
                        out.push_str(&match style {
                            Style::Segments => segments(raw, &name)?,
                            style => segment(raw, &name, style)?,
                        });
                        continue;
                    }
                    let text =
                        argument(args, path)?.filter(|t| !t.is_empty()).ok_or_else(|| missing(&name))?;
                    if !stays(&text) {
                        return Err(leaves(&name));
                    }
                    out.push_str(&percent(&text));
                }
            }
        }
        if out.shown().split('/').any(climbs) {
            return Err(BadArguments::new("an argument would make `.` or `..` a part of the URL's path"));
        }
        Ok(out)
    }
}

fn missing(name: &str) -> BadArguments {
    BadArguments::new(format!("argument `{name}` is part of the URL and must be given"))
}

fn leaves(name: &str) -> BadArguments {
    BadArguments::new(format!(
        "argument `{name}` is part of the URL and may have no slash and no control character"
    ))
}

/// Whether a text stays inside a segment, also for those who take a backslash for a slash.
fn stays(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || c == '/' || c == '\\')
}

fn climbs(segment: &str) -> bool {
    segment == "." || segment == ".."
}

/// A list or an object as a part of a path.
fn segment(raw: &RawValue, name: &str, style: Style) -> Result<String, BadArguments> {
    let bare = encode::joined(raw, name, style, str::to_owned)?.filter(|t| !t.is_empty());
    if !stays(&bare.ok_or_else(|| missing(name))?) {
        return Err(leaves(name));
    }
    encode::joined(raw, name, style, percent)?.ok_or_else(|| missing(name))
}

/// A text with slashes, or a list of texts without, as segments of a path. Each is encoded by itself.
fn segments(raw: &RawValue, name: &str) -> Result<String, BadArguments> {
    let all: Vec<String> = match encode::level(raw, name)? {
        Level::Null => return Err(missing(name)),
        Level::Scalar(text) => text.split('/').map(str::to_owned).collect(),
        Level::Array(items) => {
            let one = |item: &RawValue| encode::scalar(item, name, "URL as one segment");
            items
                .iter()
                .map(|item| Ok(one(item)?.unwrap_or_default()))
                .collect::<Result<_, BadArguments>>()?
        }
        Level::Object(_) => {
            return Err(BadArguments::new(format!(
                "argument `{name}` is part of the URL and must be a text, or a list of its segments"
            )));
        }
    };
    if all.is_empty() || all == [""] {
        return Err(missing(name));
    }
    if all.iter().any(|s| s.is_empty() || climbs(s) || !stays(s)) {
        return Err(BadArguments::new(format!(
            "argument `{name}` is several segments of the URL: none may be empty, `.` or `..`, or have a control \
             character, and no slash stands at its beginning or end"
        )));
    }
    Ok(all.iter().map(|s| percent(s)).collect::<Vec<_>>().join("/"))
}
