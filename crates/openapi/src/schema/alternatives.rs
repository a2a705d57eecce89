//! Schemas that apply to the same value: alternatives, the kinds of an object, and the parts of an `allOf`.

use super::{MAX_BRANCHES, TooLarge, Writer};
use crate::keywords::{mapping, told_apart};
use serde_json::{Map, Value, json};

impl<'a> Writer<'_, 'a> {
    /// `oneOf` and `anyOf`.
    pub(super) fn branches(
        &mut self,
        schema: &'a Value,
        branches: &'a [Value],
        depth: usize,
        out: &mut Map<String, Value>,
        alternatives: &mut Vec<Value>,
    ) -> Result<(), TooLarge> {
        let mut written: Vec<Value> = Vec::new();
        let around = self.beside.len();
        let there = out.get("properties").and_then(Value::as_object);
        self.beside.extend(there.into_iter().flat_map(Map::keys).cloned());
        for branch in branches.iter().take(MAX_BRANCHES) {
            let mut one = self.schema(branch, depth.saturating_sub(1))?;
            told_apart(schema, branch, &mut one);
            if !written.contains(&one) {
                written.push(one);
            }
        }
        self.beside.truncate(around);
        if branches.len() > MAX_BRANCHES {
            self.notes.insert(format!("of {} alternatives {MAX_BRANCHES} are shown", branches.len()));
            written.push(json!({}));
        }
        match written.as_slice() {
            [_] => {
                let one = written.remove(0);
                self.merge(out, one, alternatives);
            }
            _ => alternatives.push(Value::Array(written)),
        }
        Ok(())
    }

    /// The kinds that a discriminator's mapping names, where there is no `oneOf` of them: each builds on the schema itself.
    pub(super) fn kinds(
        &mut self,
        schema: &'a Value,
        depth: usize,
        out: &mut Map<String, Value>,
        alternatives: &mut Vec<Value>,
    ) -> Result<(), TooLarge> {
        let Some(name) = schema.pointer("/discriminator/propertyName").and_then(Value::as_str) else {
            return Ok(());
        };
        if schema.get("oneOf").is_some() || schema.get("anyOf").is_some() {
            return Ok(());
        }
        let kinds = mapping(self.all.document, schema);
        if kinds.is_empty() || self.based.iter().any(|b| std::ptr::eq(*b, schema)) {
            return Ok(());
        }
        self.met = true;
        // What the schema itself closes, its kinds open.
        out.remove("additionalProperties");
        if !self.kinds || kinds.len() > MAX_BRANCHES || depth == 0 {
            self.notes.insert("less is checked than described: kinds of an object are left out".into());
            return Ok(());
        }
        self.based.push(schema);
        let mut written = Vec::new();
        for (value, kind) in kinds {
            let mut one = self.schema(kind, depth - 1);
            if let Ok(Value::Object(one)) = &mut one {
                let properties = one.entry("properties").or_insert_with(|| json!({}));
                if let Some(properties) = properties.as_object_mut() {
                    properties.insert(name.to_owned(), json!({ "type": "string", "enum": [value] }));
                }
            }
            written.push(one);
        }
        self.based.pop();
        // An object of the schema itself, or of a kind that is not mapped, is none of these.
        let written: Result<Vec<Value>, TooLarge> = written.into_iter().collect();
        let mut written = written?;
        written.push(json!({}));
        alternatives.push(Value::Array(written));
        Ok(())
    }

    /// Puts a part of an `allOf` over what is there.
    pub(super) fn merge(&mut self, out: &mut Map<String, Value>, part: Value, alternatives: &mut Vec<Value>) {
        let Value::Object(part) = part else { return };
        for (name, value) in part {
            match (name.as_str(), out.get_mut(&name), value) {
                ("anyOf", _, value) => alternatives.push(value),
                ("allOf", _, Value::Array(all)) => {
                    alternatives
                        .extend(all.into_iter().filter_map(|mut a| a.get_mut("anyOf").map(Value::take)));
                }
                ("properties", Some(Value::Object(there)), Value::Object(more)) => there.extend(more),
                ("required", Some(Value::Array(there)), Value::Array(more)) => {
                    for name in more {
                        if !there.contains(&name) {
                            there.push(name);
                        }
                    }
                }
                ("enum", Some(Value::Array(there)), Value::Array(more)) => {
                    // Choices that exclude each other say nothing that a value could fit.
                    let both: Vec<Value> = there.iter().filter(|v| more.contains(v)).cloned().collect();
                    *there = if both.is_empty() { more } else { both };
                }
                (_, _, value) => {
                    out.insert(name, value);
                }
            }
        }
    }
}
