#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
use super::*;

fn read(schema: Value) -> Result<Field, String> {
    let field = Field::parse(schema.as_object().unwrap())?;
    field.check().map(|()| field)
}

#[test]
fn every_form_of_the_specification_is_read_and_written_back() {
    for schema in [
        json!({"type": "string", "minLength": 3, "maxLength": 50, "format": "email", "default": "u@example.com"}),
        json!({"type": "number", "minimum": 0, "maximum": 100.5, "default": 50}),
        json!({"type": "integer", "minimum": -5, "default": 0}),
        json!({"type": "boolean", "default": false}),
        json!({"type": "string", "enum": ["Red", "Green"], "default": "Red"}),
        json!({"type": "string", "oneOf": [{"const": "#F00", "title": "Red"}], "default": "#F00"}),
        json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]}),
        json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}),
    ] {
        let field = read(schema.clone()).unwrap_or_else(|why| panic!("{schema}: {why}"));
        assert_eq!(Value::Object(field.to_map()), schema);
    }
    // The deprecated form stays what it is; the other one becomes it where nothing else is known.
    let old = json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]});
    let named = read(old.clone()).unwrap();
    assert_eq!(Value::Object(named.to_map()), old);
    let titled = json!([{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]);
    let titled = read(json!({"type": "string", "oneOf": titled})).unwrap();
    assert_eq!(Value::Object(titled.to_map_2025_06_18()), old);
}

#[test]
fn what_the_specification_does_not_allow_is_refused() {
    for schema in [
        json!({}),
        json!({"type": "object", "properties": {}}),
        json!({"type": "null"}),
        json!({"type": ["string", "null"]}),
        json!({"type": "string", "pattern": "a"}),
        json!({"type": "string", "format": "password"}),
        json!({"type": "string", "minLength": -1}),
        json!({"type": "string", "minLength": 1.5}),
        json!({"type": "string", "minLength": 3, "maxLength": 2}),
        json!({"type": "string", "minLength": 3, "default": "ab"}),
        json!({"type": "string", "format": "date", "default": "soon"}),
        json!({"type": "string", "enum": []}),
        json!({"type": "string", "enum": ["a", "a"]}),
        json!({"type": "string", "enum": ["a", 1]}),
        json!({"type": "string", "enum": ["a"], "enumNames": []}),
        json!({"type": "string", "enum": ["a"], "default": "b"}),
        json!({"type": "string", "enum": ["a"], "oneOf": [{"const": "a", "title": "A"}]}),
        json!({"type": "string", "oneOf": [{"const": "a"}]}),
        json!({"type": "string", "oneOf": [{"const": "a", "title": "A", "x": 1}]}),
        json!({"type": "number", "minimum": "1"}),
        json!({"type": "number", "minimum": 2, "maximum": 1}),
        json!({"type": "number", "multipleOf": 2}),
        json!({"type": "integer", "default": 1.5}),
        json!({"type": "boolean", "default": "true"}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "array", "items": {"type": "number", "enum": ["a"]}}),
        json!({"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 2}),
        json!({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["b"]}),
        json!({"type": "array", "items": {"type": "string", "enum": ["a"]}, "uniqueItems": true}),
    ] {
        assert!(read(schema.clone()).is_err(), "{schema}");
    }
}

#[test]
fn values_are_held_against_every_rule() {
    let text = json!({"type": "string", "minLength": 2, "maxLength": 3});
    let whole = json!({"type": "integer", "minimum": -1, "maximum": 9_007_199_254_740_993_u64});
    let real = json!({"type": "number", "minimum": 0.5, "maximum": 2});
    let flag = json!({"type": "boolean"});
    let one = json!({"type": "string", "enum": ["a", "b"]});
    let some = json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}});
    let cases = [
        (&text, json!("öö"), true),
        (&text, json!("ö"), false),
        (&text, json!("abcd"), false),
        (&text, json!(12), false),
        (&text, Value::Null, false),
        (&whole, json!(0), true),
        (&whole, json!(3.0), true),
        (&whole, json!(3.5), false),
        (&whole, json!(-2), false),
        (&whole, json!(9_007_199_254_740_993_u64), true),
        (&whole, json!(9_007_199_254_740_994_u64), false),
        (&whole, json!("3"), false),
        (&real, json!(0.5), true),
        (&real, json!(0), false),
        (&real, json!(2.0), true),
        (&real, json!(2.000001), false),
        (&real, json!(1e300), false),
        (&real, json!(true), false),
        (&flag, json!(true), true),
        (&flag, json!(1), false),
        (&one, json!("b"), true),
        (&one, json!("c"), false),
        (&one, json!(["a"]), false),
        (&some, json!(["a", "c"]), true),
        (&some, json!([]), false),
        (&some, json!(["a", "b", "c"]), false),
        (&some, json!(["a", "a"]), false),
        (&some, json!(["d"]), false),
        (&some, json!([1]), false),
        (&some, json!("a"), false),
    ];
    for (schema, value, ok) in cases {
        let verdict = read(schema.clone()).unwrap().fits(&value);
        assert_eq!(verdict.is_ok(), ok, "{schema} {value} {verdict:?}");
    }
}

#[test]
fn numbers_of_both_kinds_are_compared_exactly() {
    let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
    for (a, b, order) in [
        ("1", "1.0", Ordering::Equal),
        ("-1", "-1.5", Ordering::Greater),
        ("1", "1.5", Ordering::Less),
        ("9007199254740993", "9007199254740992.0", Ordering::Greater),
        ("18446744073709551615", "1e30", Ordering::Less),
        ("0", "-0.0", Ordering::Equal),
        ("-0.0", "0.0", Ordering::Equal),
        ("3", "1e308", Ordering::Less),
        ("3", "-1e308", Ordering::Greater),
        ("-1e308", "1e308", Ordering::Less),
    ] {
        assert_eq!(compare(&number(a), &number(b)), order, "{a} {b}");
        assert_eq!(compare(&number(b), &number(a)), order.reverse(), "{b} {a}");
    }
}
