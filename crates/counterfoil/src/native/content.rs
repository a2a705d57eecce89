//! What a tool answers: blocks of content, a structure, or both (spec: server/tools, "Tool Result").

use super::schema;
use super::tool::ToolError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway::resource::{Contents, Data};
use ledger::ToolResult;
use mcp::json::{Raw, quote};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// A block of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(Raw);

impl Content {
    fn of(block: &Value) -> Content {
        Content(schema::raw(block))
    }

    /// Text.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Content {
        #[derive(Serialize)]
        struct Text<'a> {
            r#type: &'static str,
            text: &'a str,
        }
        Content(schema::raw(&Text { r#type: "text", text: text.as_ref() }))
    }

    /// An image, such as `image/png`.
    #[must_use]
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: &str) -> Content {
        Content::of(&json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": mime_type }))
    }

    /// Sound, such as `audio/wav`.
    #[must_use]
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: &str) -> Content {
        Content::of(&json!({ "type": "audio", "data": STANDARD.encode(bytes), "mimeType": mime_type }))
    }

    /// A link to a resource that the client may read.
    #[must_use]
    pub fn link(uri: &str, name: &str) -> Content {
        Content::of(&json!({ "type": "resource_link", "uri": uri, "name": name }))
    }

    /// A resource, with what it holds.
    #[must_use]
    pub fn resource(contents: &Contents) -> Content {
        let mut resource = json!({ "uri": contents.uri });
        if let Some(m) = &contents.mime_type {
            resource["mimeType"] = json!(m);
        }
        match &contents.data {
            Data::Text(t) => resource["text"] = json!(t),
            Data::Blob(b) => resource["blob"] = json!(STANDARD.encode(b)),
        }
        Content::of(&json!({ "type": "resource", "resource": resource }))
    }

    /// A block as it is, byte for byte, of whatever type. It must be a JSON object.
    #[must_use]
    pub fn raw(block: Raw) -> Content {
        Content(block)
    }

    /// The same with `Annotations`: `{"audience", "priority", "lastModified"}`.
    #[must_use]
    pub fn annotated(self, annotations: &Value) -> Content {
        match self.0.object() {
            Some(o) => Content(o.with(&[("annotations", &annotations.to_string())])),
            None => self,
        }
    }

    pub(super) fn json(&self) -> &Raw {
        &self.0
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        Content::text(text)
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content::text(text)
    }
}

/// The result of a call.
#[derive(Clone, Debug, Default)]
pub struct CallResult {
    content: Vec<Content>,
    structured: Option<Raw>,
    meta: Vec<(String, Value)>,
    is_error: bool,
    whole: Option<Raw>,
}

impl CallResult {
    /// Blocks of content, in their order.
    #[must_use]
    pub fn new(content: impl IntoIterator<Item = Content>) -> CallResult {
        CallResult { content: content.into_iter().collect(), ..CallResult::default() }
    }

    /// One block of text.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> CallResult {
        CallResult::new([Content::text(text)])
    }

    /// An answer that says what went wrong, for the model to act on. Of a tool that changes the world it is a final
    /// answer: it is kept, and a retry gets it again.
    #[must_use]
    pub fn error(text: impl AsRef<str>) -> CallResult {
        CallResult { is_error: true, ..CallResult::text(text) }
    }

    /// A structure (`structuredContent`), and the same as text for clients that show only that. It must become a JSON
    /// object.
    ///
    /// # Errors
    /// [`ToolError`]: it can't be written as JSON.
    pub fn structured(value: &impl Serialize) -> Result<CallResult, ToolError> {
        let raw = Raw::of(value).filter(Raw::is_object);
        let raw =
            raw.ok_or_else(|| ToolError::failed("The tool's result can't be written as a JSON object."))?;
        Ok(CallResult { structured: Some(raw.clone()), ..CallResult::text(raw.as_str()) })
    }

    /// A whole result object as it is, byte for byte, members that nobody here knows included.
    #[must_use]
    pub fn raw(result: Raw) -> CallResult {
        CallResult { whole: Some(result), ..CallResult::default() }
    }

    /// Adds a block of content.
    #[must_use]
    pub fn and(mut self, content: impl Into<Content>) -> CallResult {
        self.content.push(content.into());
        self
    }

    /// Adds a member of `_meta`. Its name has a prefix of yours, such as `com.example/page`.
    #[must_use]
    pub fn meta(mut self, name: &str, value: Value) -> CallResult {
        self.meta.push((name.to_owned(), value));
        self
    }

    /// Marks it as an error that the model can act on.
    #[must_use]
    pub fn as_error(mut self) -> CallResult {
        self.is_error = true;
        self
    }

    /// The object on the wire.
    pub(super) fn finish(self) -> ToolResult {
        if let Some(whole) = self.whole {
            return match whole.object() {
                Some(o) => ToolResult {
                    is_error: o.get("isError").and_then(|e| e.as_bool()) == Some(true),
                    result: whole.as_str().as_bytes().to_vec(),
                },
                None => CallResult::error("The tool's result is not a JSON object.").finish(),
            };
        }
        let parts = self.content.iter().map(|c| c.0.as_str()).chain(self.structured.iter().map(Raw::as_str));
        let mut o = String::with_capacity(80 + parts.map(|p| p.len() + 1).sum::<usize>());
        o.push_str(r#"{"content":["#);
        for (n, block) in self.content.iter().enumerate() {
            if n > 0 {
                o.push(',');
            }
            o.push_str(block.0.as_str());
        }
        o.push(']');
        if let Some(s) = &self.structured {
            o.push_str(r#","structuredContent":"#);
            o.push_str(s.as_str());
        }
        o.push_str(if self.is_error { r#","isError":true"# } else { r#","isError":false"# });
        if !self.meta.is_empty() {
            let members: Vec<String> = self.meta.iter().map(|(n, v)| format!("{}:{v}", quote(n))).collect();
            o.push_str(&format!(r#","_meta":{{{}}}"#, members.join(",")));
        }
        o.push('}');
        ToolResult { result: o.into_bytes(), is_error: self.is_error }
    }
}

/// What a tool's function may return.
pub trait Answer: Send + 'static {
    /// The JSON Schema of `structuredContent`, if it promises one.
    #[must_use]
    fn schema() -> Option<Value> {
        None
    }

    /// As a result.
    ///
    /// # Errors
    /// [`ToolError`]: it can't be written as JSON.
    fn into_result(self) -> Result<CallResult, ToolError>;
}

impl Answer for CallResult {
    fn into_result(self) -> Result<CallResult, ToolError> {
        Ok(self)
    }
}

impl Answer for String {
    fn into_result(self) -> Result<CallResult, ToolError> {
        Ok(CallResult::text(self))
    }
}

impl Answer for &'static str {
    fn into_result(self) -> Result<CallResult, ToolError> {
        Ok(CallResult::text(self))
    }
}

/// A typed result: the tool promises its schema (`outputSchema`) and answers `structuredContent` and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structured<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Structured<T> {
    fn schema() -> Option<Value> {
        Some(schema::output::<T>())
    }
    fn into_result(self) -> Result<CallResult, ToolError> {
        CallResult::structured(&self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mcp::json::Limits;

    fn text(r: CallResult) -> String {
        String::from_utf8(r.finish().result).unwrap()
    }

    #[test]
    fn blocks_are_what_the_specification_says() {
        let inside = Contents {
            uri: "a://b".into(),
            mime_type: Some("text/plain".into()),
            data: Data::Text("t".into()),
        };
        let r = CallResult::text("a")
            .and(Content::image([1, 2, 3], "image/png"))
            .and(Content::resource(&inside))
            .and(Content::link("a://c", "c").annotated(&json!({ "priority": 0.5 })))
            .meta("com.example/n", json!(1));
        assert_eq!(
            text(r),
            r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":"AQID","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a://b","mimeType":"text/plain","text":"t"}},{"type":"resource_link","uri":"a://c","name":"c","annotations":{"priority":0.5}}],"isError":false,"_meta":{"com.example/n":1}}"#
        );
        let r = CallResult::structured(&json!({ "a": 1 })).unwrap();
        assert_eq!(
            text(r),
            r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1},"isError":false}"#
        );
        assert!(CallResult::structured(&1).is_err());
    }

    #[test]
    fn foreign_bytes_stay_as_they_are() {
        let foreign = r#"{"content":[{"type":"hologram","x":1.0e0}],"later": [ 1 ],"isError":true}"#;
        let r = CallResult::raw(Raw::parse(foreign, &Limits::default()).unwrap()).finish();
        assert_eq!(r.result, foreign.as_bytes());
        assert!(r.is_error);
        assert!(CallResult::raw(Raw::string("no object")).finish().is_error);
    }
}
