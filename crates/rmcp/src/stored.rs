//! What a handler came to, as it is kept: the JSON that the SDK writes of a result, or `{"error": …}` of an error. Every
//! caller, the first one too, is answered from what is kept, so all get the same.

use ledger::{Performed, ToolResult};
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, MetaObject, ResultType};
use serde_json::{Map, Value, json};

/// More is not kept, in bytes.
const MOST: usize = 16 << 20;

/// What is kept of a handler's answer. `None`: it asks for something, so it came to nothing yet.
pub(crate) fn keep(answer: &Result<CallToolResponse, ErrorData>) -> Option<Vec<u8>> {
    let text = match answer {
        Ok(CallToolResponse::Complete(result)) => serde_json::to_vec(result),
        Ok(CallToolResponse::Task(task)) => serde_json::to_vec(task),
        Ok(_) => return None,
        Err(e) => serde_json::to_vec(&json!({ "error": e })),
    };
    Some(match text {
        Ok(text) if text.len() <= MOST && read(&text).is_some() => text,
        Ok(text) if text.len() > MOST => said(&format!(
            "The tool ran and came to an end, but its result of {} bytes is more than can be kept.",
            text.len()
        )),
        _ => said(
            "The tool ran and came to an end, but its result can't be written as JSON and read again, so it was not kept.",
        ),
    })
}

/// What is kept instead of an answer of the handler.
pub(crate) fn said(text: &str) -> Vec<u8> {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true }).to_string().into_bytes()
}

/// The result of an operation whose effect is settled.
pub(crate) fn closing(done: &Performed) -> ToolResult {
    let bytes = &done.receipt.0;
    match read(bytes) {
        Some(kept) => {
            let is_error = match &kept {
                Kept::Complete(result) => result.is_error == Some(true),
                Kept::Task(_) => false,
                Kept::Error(_) => true,
            };
            ToolResult { result: bytes.clone(), is_error }
        }
        None if done.applied => ToolResult {
            result: said(
                "This happened, as an operator found. What the tool would have answered is not known.",
            ),
            is_error: false,
        },
        None => ToolResult { result: said("This did not happen, and will not."), is_error: true },
    }
}

/// What was kept.
#[derive(Debug, PartialEq)]
pub(crate) enum Kept {
    Complete(Box<CallToolResult>),
    Task(Box<CreateTaskResult>),
    Error(ErrorData),
}

pub(crate) fn read(bytes: &[u8]) -> Option<Kept> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let object = value.as_object()?;
    if let (Some(error), 1) = (object.get("error"), object.len()) {
        return serde_json::from_value(error.clone()).ok().map(Kept::Error);
    }
    if object.get("resultType").and_then(Value::as_str) == Some("task") {
        return serde_json::from_value(value).ok().map(|t| Kept::Task(Box::new(t)));
    }
    object.get("content")?;
    serde_json::from_value(value).ok().map(|r| Kept::Complete(Box::new(r)))
}

/// The answer to a call, with what `_meta` is to say besides.
pub(crate) fn answer(kept: Kept, name: &str, about: Value) -> Result<CallToolResponse, ErrorData> {
    let with = |meta: &mut Option<MetaObject>| {
        meta.get_or_insert_with(|| MetaObject(Map::new())).insert(name.to_owned(), about);
    };
    match kept {
        Kept::Complete(mut result) => {
            with(&mut result.meta);
            Ok(CallToolResponse::Complete(*result))
        }
        Kept::Task(mut task) => {
            with(&mut task.meta);
            Ok(CallToolResponse::Task(*task))
        }
        // An error has no `_meta`, and its `data` is the handler's.
        Kept::Error(e) => Err(e),
    }
}

/// An answer that is no result.
pub(crate) fn error(body: Value, name: &str, object: Value) -> CallToolResult {
    let mut result: CallToolResult = serde_json::from_value(body)
        .unwrap_or_else(|_| CallToolResult::error(vec![ContentBlock::text("The call was not answered.")]));
    result.result_type = Some(ResultType::COMPLETE);
    result.meta.get_or_insert_with(|| MetaObject(Map::new())).insert(name.to_owned(), object);
    result
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back_as_it_was() {
        let mut result = CallToolResult::success(vec![ContentBlock::text("7")]);
        result.structured_content = Some(json!({ "b": 1.0, "a": [null, 12_345_678_901_234_567_890_u64] }));
        result.meta = Some(MetaObject(Map::from_iter([("x".to_owned(), json!(1))])));
        let kept = keep(&Ok(CallToolResponse::Complete(result.clone()))).unwrap();
        assert_eq!(kept, serde_json::to_vec(&result).unwrap());
        assert_eq!(read(&kept), Some(Kept::Complete(Box::new(result))));

        let error = ErrorData::invalid_params("no", Some(json!({ "why": "not" })));
        let kept = keep(&Err(error.clone())).unwrap();
        assert_eq!(read(&kept), Some(Kept::Error(error)));
    }

    #[test]
    fn what_is_too_much_to_keep_is_told_as_such_and_counts_as_done() {
        let much = CallToolResult::success(vec![ContentBlock::text("x".repeat(MOST))]);
        let Some(Kept::Complete(told)) = read(&keep(&Ok(much.into())).unwrap()) else { panic!("no result") };
        assert_eq!(told.is_error, Some(true));
    }

    #[test]
    fn what_is_no_answer_of_a_handler_is_not_taken_for_one() {
        for other in ["", "{}", "[]", r#"{"note":"seen in the provider's console"}"#, r#"{"error":7}"#] {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
        let word = Performed { applied: true, receipt: ledger::Receipt(b"{\"note\":1}".to_vec()) };
        assert!(!closing(&word).is_error);
    }
}
