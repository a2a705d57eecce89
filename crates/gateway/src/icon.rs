//! Icons of tools, resources, templates and prompts (spec: basic, "Icons").

use serde_json::{Value, json};

/// An image that clients may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icon {
    /// An `https:` or `data:` URI.
    pub src: String,
    /// MIME type, if it isn't the server's own answer.
    pub mime_type: Option<String>,
    /// Sizes such as `48x48`, or `any`.
    pub sizes: Vec<String>,
    /// `light` or `dark`, if it is made for one background.
    pub theme: Option<String>,
}

impl Icon {
    /// The object on the wire.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut o = json!({ "src": self.src });
        if let Some(m) = &self.mime_type {
            o["mimeType"] = json!(m);
        }
        if !self.sizes.is_empty() {
            o["sizes"] = json!(self.sizes);
        }
        if let Some(t) = &self.theme {
            o["theme"] = json!(t);
        }
        o
    }
}
