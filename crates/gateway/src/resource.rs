//! Resources and templates of resources: what they are, and who reads them (spec: server/resources).

use crate::asks::Unanswered;
use crate::context::Context;
use crate::icon::Icon;
use async_trait::async_trait;
use mcp::json::Raw;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a resource is known and described.
#[derive(Clone, Debug)]
pub struct ResourceSpec {
    /// Its URI, with a scheme.
    pub uri: String,
    /// A name for programs.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What it holds, for models.
    pub description: Option<String>,
    /// Its MIME type, if known.
    pub mime_type: Option<String>,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// Images.
    pub icons: Vec<Icon>,
    /// `Annotations` (`audience`, `priority`, `lastModified`), a JSON object.
    pub annotations: Option<Raw>,
}

/// How a template is known and described.
#[derive(Clone, Debug)]
pub struct TemplateSpec {
    /// A URI with variables in braces, such as `db://{table}/{id}` (RFC 6570, level 1: each stands for one piece of the URI without `/`, `?` or `#`).
    pub uri_template: String,
    /// A name for programs.
    pub name: String,
    /// A short name for people.
    pub title: Option<String>,
    /// What its resources hold, for models.
    pub description: Option<String>,
    /// The MIME type that all of them have.
    pub mime_type: Option<String>,
    /// Images.
    pub icons: Vec<Icon>,
    /// `Annotations`, a JSON object.
    pub annotations: Option<Raw>,
}

/// What a resource holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Its URI; a resource may hold several, such as the files of a folder.
    pub uri: String,
    /// MIME type.
    pub mime_type: Option<String>,
    /// Text, or bytes, which go as Base64.
    pub data: Data,
}

/// Text or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// UTF-8 text.
    Text(String),
    /// Anything else.
    Blob(Vec<u8>),
}

/// Why a read, a prompt or a completion failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no such thing.
    #[error("there is no such thing here")]
    NotFound,
    /// What was asked doesn't fit, in words that a model can act on.
    #[error("{0}")]
    Bad(String),
    /// It can't be had at the moment. The words go to the client: no paths, no secrets.
    #[error("{0}")]
    Failed(String),
}

impl From<Unanswered> for Failure {
    fn from(e: Unanswered) -> Failure {
        Failure::Failed(e.to_string())
    }
}

/// Values that may complete an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// At most 100 are sent; the best first.
    pub values: Vec<String>,
    /// How many there are altogether, if known.
    pub total: Option<u64>,
}

/// What is asked to be completed.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The argument or variable.
    pub argument: String,
    /// What has been typed so far.
    pub value: String,
    /// Arguments that are known already.
    pub known: BTreeMap<String, String>,
}

/// Reads a resource, or the resources of a template. Reading changes nothing.
#[async_trait]
pub trait Resource: Send + Sync + 'static {
    /// Reads the resource with this URI; `variables` are those of the template, decoded, empty for a plain resource.
    ///
    /// # Errors
    /// [`Failure`].
    async fn read(
        &self,
        context: Context,
        uri: &str,
        variables: BTreeMap<String, String>,
    ) -> Result<Vec<Contents>, Failure>;

    /// Completes a template's variable.
    ///
    /// # Errors
    /// [`Failure`].
    async fn complete(&self, _context: Context, _asked: Asked) -> Result<Completion, Failure> {
        Ok(Completion::default())
    }

    /// Whether [`crate::changes::Change::Resource`] is told of it, so that clients can subscribe to it. A subscription
    /// isn't checked against a principal's rights: whoever can reach the server may follow any URI that this says `true`
    /// for, and learns when it changes, never what it holds. If that tells too much, say `false`.
    fn tells_changes(&self) -> bool {
        false
    }
}

/// A resource with who reads it.
pub type ResourceEntry = (ResourceSpec, Arc<dyn Resource>);
/// A template with who reads its resources.
pub type TemplateEntry = (TemplateSpec, Arc<dyn Resource>);
