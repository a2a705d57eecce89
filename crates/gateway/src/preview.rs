//! What a person who has to say yes is shown: what will be sent, and nothing that a text in it could pass off as
//! something else. The ledger pins what was shown; a yes sends that.

use crate::approval::Approval;
use crate::rounds::APPROVE;
use ledger::{Ask, InputKind, Intent};
use mcp::input::{Field, Form, InputRequest, Invalid, Property};
use mcp::json::{Limits, Raw, RawObject};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The key of the question. No other question of an operation has it.
pub const KEY: &str = "approval";
/// The longest value that is shown whole, in characters.
const MAX_VALUE: usize = 300;
/// The longest URL that is shown whole, in characters.
const MAX_URL: usize = 2000;
/// The most fields that are shown.
const MAX_FIELDS: usize = 60;
/// The longest part of a message that fields fill, in bytes: below [`mcp::input::MAX_MESSAGE`].
const MAX_TEXT: usize = 12 << 10;
/// How deep fields in fields are shown one by one.
const MAX_DEPTH: usize = 6;
/// Parts of the names of fields that say how much.
const HOW_MUCH: [&str; 9] =
    ["amount", "total", "price", "value", "sum", "quantity", "count", "currency", "fee"];

/// The question whether this may be done.
///
/// # Errors
/// It can't be put into a question.
pub(crate) fn ask(
    tool: &str,
    intent: Option<&Intent>,
    arguments: &RawObject,
    approval: &Approval,
) -> Result<Ask, Invalid> {
    let what = intent.and_then(request).unwrap_or_else(|| of_tool(tool, intent, arguments));
    let form = Form::new().with(Property {
        name: APPROVE.into(),
        title: Some("Approve".into()),
        description: Some("Yes: exactly what is shown is done, once. No: nothing is done.".into()),
        field: Field::flag(),
        required: true,
    })?;
    let request = InputRequest::form(KEY, &what.message(approval), form)?;
    Ok(Ask { key: KEY.into(), kind: InputKind::Approval, request: request.to_raw().bytes().to_vec() })
}

/// What is done, in parts.
struct Shown {
    head: String,
    fields: Vec<(String, String)>,
    /// What is of less interest.
    rest: Vec<(String, String)>,
}

fn of_tool(tool: &str, intent: Option<&Intent>, arguments: &RawObject) -> Shown {
    let mut fields = Vec::new();
    flatten("", arguments, 0, &mut fields);
    let head = match intent {
        Some(intent) => format!("{}: {}", printable(tool), cut(&printable(&intent.summary), MAX_URL)),
        None => format!("The tool {}", printable(tool)),
    };
    Shown { head, fields, rest: Vec::new() }
}

/// A recorded HTTP request; `None`: it is of another form.
fn request(intent: &Intent) -> Option<Shown> {
    let http: Value = serde_json::from_slice(&intent.body).ok()?;
    let url = spliced(&http["url"])?;
    let mut fields = Vec::new();
    if let Some(pieces) = http.get("body") {
        let body = spliced(pieces)?;
        // A body that is neither a JSON object nor a form names its type; it is shown as it is.
        let form = http["content_type"].as_str().is_none_or(|t| t.contains("x-www-form-urlencoded"));
        match RawObject::parse(body.clone(), &Limits { depth: 128, ..Limits::default() }) {
            Ok(object) => flatten("", &object, 0, &mut fields),
            Err(_) if form => fields.extend(body.split('&').map(pair)),
            Err(_) => fields.push(("body".into(), cut(&printable(&body), MAX_VALUE))),
        }
    }
    let rest = http["headers"].as_array()?.iter().map(|header| {
        let value = cut(&printable(&spliced(&header[1])?), MAX_VALUE);
        Some((format!("header {}", printable(header[0].as_str()?)), value))
    });
    let method = printable(http["method"].as_str()?);
    let head = format!("{method} {}", cut(&printable(&url), MAX_URL));
    Some(Shown { head, fields, rest: rest.collect::<Option<_>>()? })
}

/// A text in pieces, the effect key between them: which key it is, is not known before there is an effect.
fn spliced(pieces: &Value) -> Option<String> {
    let pieces: Option<Vec<&str>> = pieces.as_array()?.iter().map(Value::as_str).collect();
    Some(pieces?.join("{key}"))
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let read = |part: &str| {
        let spaced = part.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    (printable(&read(name)), cut(&printable(&read(value)), MAX_VALUE))
}

/// Fields of fields by their paths, each value as it is written.
fn flatten(path: &str, object: &RawObject, depth: usize, out: &mut Vec<(String, String)>) {
    for (name, value) in object.iter() {
        let path = if path.is_empty() { printable(&name) } else { format!("{path}.{}", printable(&name)) };
        match value.object().filter(|inner| depth < MAX_DEPTH && !inner.is_empty()) {
            Some(inner) => flatten(&path, &inner, depth + 1, out),
            None => out.push((path, shown(&value))),
        }
    }
}

/// Numbers keep their digits; texts keep their quotes and escapes, so that none can look like a line of its own.
fn shown(value: &Raw) -> String {
    cut(&printable(value.single_line().as_str()), MAX_VALUE)
}

fn cut(text: &str, most: usize) -> String {
    let all = text.chars().count();
    if all <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most).collect();
    format!("{head}… ({all} characters in all)")
}

/// Without what is not seen, or changes how what surrounds it is seen.
fn printable(text: &str) -> String {
    let unseen = |c: char| {
        c.is_control()
            || matches!(u32::from(c), 0xAD | 0x061C | 0x180E | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB | 0xE0000..=0xE0FFF)
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if unseen(c) {
            out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

impl Shown {
    fn message(mut self, approval: &Approval) -> String {
        // A stable sort: what says how much comes first, all else stays in its order.
        let rank = |name: &str| {
            let last = name.rsplit('.').next().unwrap_or(name);
            let lower = last.to_ascii_lowercase();
            if approval.arguments().any(|argument| argument == last) {
                0
            } else if HOW_MUCH.iter().any(|word| lower.contains(word)) {
                1
            } else {
                2
            }
        };
        self.fields.sort_by_key(|(name, _)| rank(name));
        let mut text = format!(
            "A person has to approve this. Nothing of it is done before, and then exactly this, once:\n\n{}",
            self.head
        );
        let all = self.fields.len() + self.rest.len();
        let mut told = 0;
        for (name, value) in self.fields.iter().chain(&self.rest).take(MAX_FIELDS) {
            let line = format!("\n{}: {value}", cut(name, MAX_VALUE));
            if text.len() + line.len() > MAX_TEXT {
                break;
            }
            text.push_str(&line);
            told += 1;
        }
        if told < all {
            text.push_str(&format!(
                "\n… and {} more that are not shown here. Look at all of it with `counterfoil ops show` before you approve.",
                all - told
            ));
        }
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::approval::Decimal;
    use crate::rounds::question;
    use ledger::{Recovery, Strategy};
    use serde_json::json;

    fn intent(body: &Value) -> Intent {
        Intent {
            name: "request".into(),
            discriminator: String::new(),
            recovery: Recovery::new(Strategy::Key),
            summary: "POST http://h/v1/refunds".into(),
            body: body.to_string().into_bytes(),
        }
    }

    fn message(intent: Option<&Intent>, given: &str, approval: &Approval) -> String {
        let given = RawObject::parse(given.to_owned(), &Limits::default()).unwrap();
        let ask = ask("a.tool", intent, &given, approval).unwrap();
        assert_eq!((ask.key.as_str(), ask.kind), (KEY, InputKind::Approval));
        let asked = question(KEY, &ask.request).unwrap();
        asked.params().unwrap().object().unwrap().string("message").unwrap().into_owned()
    }

    fn lines(message: &str) -> Vec<&str> {
        message.lines().skip(2).collect()
    }

    #[test]
    fn the_request_is_shown_as_it_leaves_and_how_much_comes_first() {
        let json = intent(&json!({
            "method": "POST", "url": ["http://h/v1/refunds?r=", ""], "headers": [["X-Version", ["2"]], ["Idempotency-Key", ["", ""]]],
            "body": ["{\"note\":\"a\\nb\",\"to\":{\"iban\":\"DE1\",\"amount\":12345678901234567890.10},\"tags\":[1, 2],\"tip\":1}"],
        }));
        let tip = Approval::Over(vec![("tip".into(), Decimal::parse("0").unwrap())]);
        let expected = [
            "POST http://h/v1/refunds?r={key}",
            "tip: 1",
            "to.amount: 12345678901234567890.10",
            "note: \"a\\nb\"",
            "to.iban: \"DE1\"",
            "tags: [1, 2]",
            "header X-Version: 2",
            "header Idempotency-Key: {key}",
        ];
        assert_eq!(lines(&message(Some(&json), "{}", &tip)), expected);
        let form = intent(&json!({
            "method": "POST", "url": ["http://h/v1/r"], "headers": [], "body": ["note=a%0Ab+c&metadata[k]=", "&amount=5"],
        }));
        let expected = ["POST http://h/v1/r", "amount: 5", "note: a\\u{a}b c", "metadata[k]: {key}"];
        assert_eq!(lines(&message(Some(&form), "{}", &Approval::Always)), expected);
        let native = message(None, r#"{"why":"x","amount":7}"#, &Approval::Always);
        assert_eq!(lines(&native), ["The tool a.tool", "amount: 7", "why: \"x\""]);
    }

    #[test]
    fn no_text_can_look_like_something_else() {
        let given = "{\"a\":\"x\\n\\namount: 1\",\"b\":\"\u{202e}1 :tnuoma\",\"c\\nd\":\"\u{200b}\"}";
        let told = message(None, given, &Approval::Always);
        let expected = [
            "The tool a.tool",
            "a: \"x\\n\\namount: 1\"",
            "b: \"\\u{202e}1 :tnuoma\"",
            "c\\u{a}d: \"\\u{200b}\"",
        ];
        assert_eq!(lines(&told), expected);
    }

    #[test]
    fn what_is_not_shown_is_said() {
        let many: Vec<String> = (0..100).map(|i| format!("\"f{i}\":{i}")).collect();
        let given = format!("{{{},\"amount\":1,\"long\":\"{}\"}}", many.join(","), "x".repeat(1000));
        let told = message(None, &given, &Approval::Always);
        assert_eq!(lines(&told)[1], "amount: 1");
        assert!(told.contains("… and 42 more that are not shown here"), "{told}");
        let one = message(None, &format!("{{\"long\":\"{}\"}}", "x".repeat(1000)), &Approval::Always);
        assert!(one.ends_with("… (1002 characters in all)"), "{one}");
        let wide: Vec<String> = (0..60).map(|i| format!("\"f{i}\":\"{}\"", "é".repeat(290))).collect();
        let told = message(None, &format!("{{{}}}", wide.join(",")), &Approval::Always);
        assert!(
            told.len() < mcp::input::MAX_MESSAGE && told.contains("more that are not shown"),
            "{}",
            told.len()
        );
    }
}
