//! YAML 1.2 as JSON values. What an alias stands for is copied and counted, so that a small file can't unfold into a large
//! one; nothing is read by recursion.

use crate::read::{Budget, MAX_DEPTH, ReadError};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// An open list or mapping, and the anchor that it bears (0: none).
enum Open {
    List(Vec<Value>, usize),
    Mapping { done: Map<String, Value>, merged: Vec<Value>, key: Option<String>, anchor: usize },
}

pub(crate) fn read(text: &str) -> Result<Value, ReadError> {
    let mut builder =
        Builder { budget: Budget::new(), open: Vec::new(), anchors: HashMap::new(), root: None };
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(malformed)?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        builder.event(event).map_err(|e| match e {
            ReadError::Malformed(why) => ReadError::Malformed(format!("{why} at line {}", span.start.line())),
            other => other,
        })?;
    }
    builder.root.ok_or_else(|| ReadError::Malformed("there is nothing in it".into()))
}

fn malformed(e: ScanError) -> ReadError {
    let text = e.to_string();
    // The scanner has a bound of its own on nesting.
    if text.contains("recursion limit") {
        ReadError::TooMuch(format!("it is nested deeper than {MAX_DEPTH}"))
    } else {
        ReadError::Malformed(text)
    }
}

struct Builder {
    budget: Budget,
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) -> Result<(), ReadError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.take(text.len())?;
                // A mapping's key is a text, whatever it looks like: `200:` and `on:` are names.
                if self.wants_key() {
                    if anchor != 0 {
                        self.anchors.insert(anchor, Value::from(text.as_ref()));
                    }
                    return self.key(text.into_owned());
                }
                let is_text = tag.as_ref().is_some_and(|t| t.suffix == "str");
                let value = if is_text || style != ScalarStyle::Plain {
                    Value::String(text.into_owned())
                } else {
                    plain(&text)
                };
                self.value(value, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(Open::List(Vec::new(), anchor)),
            Event::MappingStart(anchor, _) => {
                let done = Map::new();
                self.begin(Open::Mapping { done, merged: Vec::new(), key: None, anchor })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(all, anchor)) => self.value(Value::Array(all), anchor),
                Some(Open::Mapping { mut done, merged, anchor, .. }) => {
                    for value in merged {
                        if let Value::Object(more) = value {
                            for (name, value) in more {
                                done.entry(name).or_insert(value);
                            }
                        }
                    }
                    self.value(Value::Object(done), anchor)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err(ReadError::Malformed("an alias stands for something that holds it".into()));
                };
                if self.wants_key() {
                    return match value {
                        Value::String(text) => {
                            let text = text.clone();
                            self.key(text)
                        }
                        _ => Err(ReadError::Malformed("a mapping's key is not a text".into())),
                    };
                }
                let mut budget = std::mem::replace(&mut self.budget, Budget::new());
                let counted = count(value, self.open.len(), &mut budget);
                self.budget = budget;
                counted.map_err(ReadError::TooMuch)?;
                let value = value.clone();
                self.value(value, 0)
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.budget.take(bytes).map_err(ReadError::TooMuch)
    }

    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Mapping { key: None, .. }))
    }

    fn key(&mut self, text: String) -> Result<(), ReadError> {
        if let Some(Open::Mapping { key, .. }) = self.open.last_mut() {
            *key = Some(text);
        }
        Ok(())
    }

    fn begin(&mut self, open: Open) -> Result<(), ReadError> {
        self.take(0)?;
        if self.wants_key() {
            return Err(ReadError::Malformed("a mapping's key is not a text".into()));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(ReadError::TooMuch(format!("it is nested deeper than {MAX_DEPTH}")));
        }
        self.open.push(open);
        Ok(())
    }

    fn value(&mut self, value: Value, anchor: usize) -> Result<(), ReadError> {
        if anchor != 0 {
            // The copy is counted as an alias would be.
            count(&value, self.open.len(), &mut self.budget).map_err(ReadError::TooMuch)?;
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List(all, _)) => all.push(value),
            Some(Open::Mapping { done, merged, key, .. }) => match key.take() {
                Some(name) if name == "<<" && (value.is_object() || value.is_array()) => match value {
                    Value::Array(all) => merged.extend(all),
                    one => merged.push(one),
                },
                Some(name) => {
                    done.insert(name, value);
                }
                None => return Err(ReadError::Malformed("a mapping's key is not a text".into())),
            },
        }
        Ok(())
    }
}

/// Takes a copy of a value from the budget; `above` is how deep it will stand.
fn count(value: &Value, above: usize, budget: &mut Budget) -> Result<(), String> {
    let mut left = vec![(value, above)];
    while let Some((value, depth)) = left.pop() {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH}"));
        }
        match value {
            Value::String(s) => budget.take(s.len())?,
            Value::Array(all) => {
                budget.take(0)?;
                left.extend(all.iter().map(|v| (v, depth + 1)));
            }
            Value::Object(members) => {
                for (name, value) in members {
                    budget.take(name.len())?;
                    left.push((value, depth + 1));
                }
            }
            _ => budget.take(0)?,
        }
    }
    Ok(())
}

/// A plain scalar by the core schema of YAML 1.2.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::from(text), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(Number::from);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return u64::from_str_radix(octal, 8).ok().map(Number::from);
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let plain = text.strip_prefix('+').unwrap_or(text);
    if let Ok(n) = plain.parse::<i64>() {
        return Some(Number::from(n));
    }
    if let Ok(n) = plain.parse::<u64>() {
        return Some(Number::from(n));
    }
    let decimal =
        unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    plain.parse::<f64>().ok().filter(|_| decimal).and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_keys_anchors_and_merges() {
        let text = "a: &x {b: 1, c: '2', d: yes, e: 0x1f, f: 1.5e3, g: 2016-01-01, h: ~, i: 1.2.3}\n200: *x\nm:\n  <<: *x\n  b: 3\nt: |\n  one\n  two\n";
        let v = read(text).unwrap();
        assert_eq!(v["200"], v["a"]);
        assert_eq!(
            v["a"],
            json!({"b": 1, "c": "2", "d": "yes", "e": 31, "f": 1500.0, "g": "2016-01-01", "h": null, "i": "1.2.3"})
        );
        assert_eq!((&v["m"]["b"], &v["m"]["c"]), (&json!(3), &json!("2")));
        assert_eq!(v["t"], "one\ntwo\n");
        assert!(read("? [a]\n: b\n").is_err());
        assert!(read("").is_err());
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let before = format!("*a{}", i - 1);
            text += &format!("a{i}: &a{i} [{}]\n", vec![before; 10].join(", "));
        }
        assert!(matches!(read(&text), Err(ReadError::TooMuch(_))));
        assert!(read("a: &a [*a]\n").is_err());
    }
}
