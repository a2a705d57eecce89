//! Arguments from the command line: `NAME=VALUE` pairs and JSON bodies.
//!
//! A value that is JSON is taken as JSON, everything else as text: `amount=500` is a number, `amount='"500"'` and
//! `payment=pay_1` are text. `NAME:=VALUE` must be JSON; `NAME=@FILE` reads the value from a file.

use super::fail::Fail;
use serde_json::value::RawValue;
use std::io::Read as _;

/// The largest body that is read, in bytes.
const MAX: u64 = 16 << 20;

/// Adds pairs to the members of a body. Numbers keep their exact digits.
pub(super) fn merge(body: Option<&str>, pairs: &[String]) -> Result<String, Fail> {
    let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
    if let Some(text) = body {
        members = object(text)?;
    }
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=').filter(|(n, _)| !n.is_empty() && *n != ":") else {
            return Err(Fail::usage(format!("{pair:?} is not NAME=VALUE")));
        };
        let (name, strict) = name.strip_suffix(':').map_or((name, false), |n| (n, true));
        let text = match value.strip_prefix('@') {
            Some(file) if !strict => read(file)?,
            _ => value.to_owned(),
        };
        let value = match RawValue::from_string(text.clone()) {
            Ok(json) => json,
            Err(e) if strict => return Err(Fail::usage(format!("the value of {name} is not JSON: {e}"))),
            Err(_) => RawValue::from_string(serde_json::Value::String(text).to_string())
                .map_err(|e| Fail::usage(e.to_string()))?,
        };
        if members.iter().any(|(n, _)| n == name) {
            return Err(Fail::usage(format!("{name} is given twice")));
        }
        members.push((name.to_owned(), value));
    }
    let members: Vec<String> =
        members.iter().map(|(n, v)| format!("{}:{}", serde_json::Value::from(n.as_str()), v.get())).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

/// A JSON object's members, values as they were written.
fn object(text: &str) -> Result<Vec<(String, Box<RawValue>)>, Fail> {
    struct Members(Vec<(String, Box<RawValue>)>);
    impl<'de> serde::Deserialize<'de> for Members {
        fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct Visit;
            impl<'de> serde::de::Visitor<'de> for Visit {
                type Value = Members;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a JSON object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }
            d.deserialize_map(Visit)
        }
    }
    serde_json::from_str::<Members>(text)
        .map(|m| m.0)
        .map_err(|e| Fail::usage(format!("the body is not a JSON object: {e}")))
}

/// A body: JSON, `@FILE`, or `-` for stdin.
pub(super) fn body(text: &str) -> Result<String, Fail> {
    match text.strip_prefix('@') {
        Some(file) => read(file),
        None if text == "-" => limited(std::io::stdin(), "stdin"),
        None => Ok(text.to_owned()),
    }
}

fn read(file: &str) -> Result<String, Fail> {
    let open = std::fs::File::open(file).map_err(|e| Fail::usage(format!("{file} can't be read: {e}")))?;
    limited(open, file)
}

fn limited(from: impl std::io::Read, name: &str) -> Result<String, Fail> {
    let mut text = String::new();
    from.take(MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| Fail::usage(format!("{name} can't be read: {e}")))?;
    if text.len() as u64 > MAX {
        Err(Fail::usage(format!("{name} is larger than {} MiB", MAX >> 20)))
    } else {
        Ok(text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_members() {
        let pairs: Vec<String> =
            ["amount=500", "payment=pay_1", "flag=true", "n=9007199254740993", "s=\"5\"", "o:={\"a\":1}"]
                .map(String::from)
                .into();
        let made = merge(None, &pairs).unwrap();
        assert_eq!(
            made,
            r#"{"amount":500,"payment":"pay_1","flag":true,"n":9007199254740993,"s":"5","o":{"a":1}}"#
        );
        assert_eq!(merge(Some(r#"{"x": 1.50}"#), &["y=z".into()]).unwrap(), r#"{"x":1.50,"y":"z"}"#);
        for bad in [&["x"][..], &["=1"], &["x:=nope"], &["x=1", "x=2"]] {
            let bad: Vec<String> = bad.iter().map(|s| (*s).to_owned()).collect();
            assert!(merge(None, &bad).is_err(), "{bad:?}");
        }
        assert!(merge(Some("[1]"), &[]).is_err());
    }
}
