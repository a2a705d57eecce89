//! Resources and templates of resources: fixed contents, or a function that reads.

use super::guard::guarded;
use super::schema;
use super::texts;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use gateway::resource::{
    Asked, Completion, Contents, Data, Failure, Resource as Reads, ResourceEntry, ResourceSpec,
    TemplateEntry, TemplateSpec,
};
use gateway::{Context, Icon};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a reading function may return.
pub trait IntoContents: Send + 'static {
    /// The contents of the resource with this URI and the MIME type that it is described with.
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Vec<Contents>;
}

impl IntoContents for Data {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Vec<Contents> {
        vec![Contents { uri: uri.to_owned(), mime_type: mime_type.map(str::to_owned), data: self }]
    }
}

impl IntoContents for String {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Vec<Contents> {
        Data::Text(self).into_contents(uri, mime_type)
    }
}

impl IntoContents for Vec<u8> {
    fn into_contents(self, uri: &str, mime_type: Option<&str>) -> Vec<Contents> {
        Data::Blob(self).into_contents(uri, mime_type)
    }
}

impl IntoContents for Vec<Contents> {
    fn into_contents(self, _: &str, _: Option<&str>) -> Vec<Contents> {
        self
    }
}

pub(super) type Completing =
    Arc<dyn Fn(Context, Asked) -> BoxFuture<'static, Result<Completion, Failure>> + Send + Sync>;
type Variables = BTreeMap<String, String>;
type Read = Arc<
    dyn Fn(Context, String, Option<String>, Variables) -> BoxFuture<'static, Result<Vec<Contents>, Failure>>
        + Send
        + Sync,
>;

/// Completes, bounded in time.
pub(super) async fn complete(
    completing: Option<&Completing>,
    context: Context,
    asked: Asked,
) -> Result<Completion, Failure> {
    let Some(completing) = completing else { return Ok(Completion::default()) };
    let work = completing(context.clone(), asked);
    guarded(context.timeout, work).await.unwrap_or_else(|broke| {
        Err(Failure::Failed(format!("{}; asking again is safe", broke.sentence("the completion"))))
    })
}

pub(super) fn completing<F, W>(function: F) -> Completing
where
    F: Fn(Context, Asked) -> W + Send + Sync + 'static,
    W: Future<Output = Result<Completion, Failure>> + Send + 'static,
{
    let function = Arc::new(function);
    Arc::new(move |context, asked| {
        let function = function.clone();
        Box::pin(async move { function(context, asked).await })
    })
}

struct Reader {
    read: Read,
    mime_type: Option<String>,
    completing: Option<Completing>,
    subscribable: bool,
}

#[async_trait]
impl Reads for Reader {
    async fn read(
        &self,
        context: Context,
        uri: &str,
        variables: Variables,
    ) -> Result<Vec<Contents>, Failure> {
        let work = (self.read)(context.clone(), uri.to_owned(), self.mime_type.clone(), variables);
        guarded(context.timeout, work).await.unwrap_or_else(|broke| {
            Err(Failure::Failed(format!("{}; reading again is safe", broke.sentence("the resource"))))
        })
    }
    async fn complete(&self, context: Context, asked: Asked) -> Result<Completion, Failure> {
        complete(self.completing.as_ref(), context, asked).await
    }
    fn tells_changes(&self) -> bool {
        self.subscribable
    }
}

/// A resource.
pub struct Resource {
    spec: ResourceSpec,
    read: Read,
    subscribable: bool,
}

impl Resource {
    /// A resource that a function reads each time. It returns text, bytes, or several [`Contents`].
    pub fn reading<C, F, W>(uri: impl Into<String>, name: impl Into<String>, function: F) -> Resource
    where
        C: IntoContents,
        F: Fn(Context) -> W + Send + Sync + 'static,
        W: Future<Output = Result<C, Failure>> + Send + 'static,
    {
        let function = Arc::new(function);
        let read: Read = Arc::new(move |context, uri, mime_type, _| {
            let function = function.clone();
            Box::pin(async move { Ok(function(context).await?.into_contents(&uri, mime_type.as_deref())) })
        });
        let spec = ResourceSpec {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            icons: Vec::new(),
            annotations: None,
        };
        Resource { spec, read, subscribable: false }
    }

    fn fixed(
        uri: impl Into<String>,
        name: impl Into<String>,
        data: Data,
        size: usize,
        mime_type: &str,
    ) -> Resource {
        let mut r = Resource::reading(uri, name, move |_| std::future::ready(Ok(data.clone())));
        r.spec.size = u64::try_from(size).ok();
        r.mime_type(mime_type)
    }

    /// A fixed text, `text/plain` unless told otherwise.
    pub fn text(uri: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Resource {
        let text = text.into();
        let size = text.len();
        Resource::fixed(uri, name, Data::Text(text), size, "text/plain")
    }

    /// Fixed bytes, `application/octet-stream` unless told otherwise.
    pub fn bytes(uri: impl Into<String>, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Resource {
        let bytes = bytes.into();
        let size = bytes.len();
        Resource::fixed(uri, name, Data::Blob(bytes), size, "application/octet-stream")
    }

    /// A short name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Resource {
        self.spec.title = Some(title.into());
        self
    }

    /// What it holds, for models.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Resource {
        self.spec.description = Some(description.into());
        self
    }

    /// Its MIME type.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Resource {
        self.spec.mime_type = Some(mime_type.into());
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Resource {
        self.spec.icons.push(icon);
        self
    }

    /// `Annotations`: `{"audience", "priority", "lastModified"}`.
    #[must_use]
    pub fn annotations(mut self, annotations: &Value) -> Resource {
        self.spec.annotations = Some(schema::raw(annotations));
        self
    }

    /// Clients may subscribe to it: whoever changes it tells [`Change::Resource`](gateway::Change::Resource) with its
    /// URI.
    #[must_use]
    pub fn subscribable(mut self) -> Resource {
        self.subscribable = true;
        self
    }

    pub(crate) fn offered(&self) -> ResourceEntry {
        let reader = Reader {
            read: self.read.clone(),
            mime_type: self.spec.mime_type.clone(),
            completing: None,
            subscribable: self.subscribable,
        };
        (self.spec.clone(), Arc::new(reader))
    }
}

/// A template of resources: a URI with variables in braces.
pub struct Template {
    spec: TemplateSpec,
    read: Read,
    completing: Option<Completing>,
}

impl Template {
    /// A template whose resources a function reads. `V` is what its variables are read into: a type with a field for
    /// each (text, numbers, truth values), or a `BTreeMap<String, String>`.
    pub fn new<V, C, F, W>(uri_template: impl Into<String>, name: impl Into<String>, function: F) -> Template
    where
        V: DeserializeOwned + Send + 'static,
        C: IntoContents,
        F: Fn(Context, V) -> W + Send + Sync + 'static,
        W: Future<Output = Result<C, Failure>> + Send + 'static,
    {
        let function = Arc::new(function);
        let read: Read = Arc::new(move |context, uri, mime_type, variables| {
            let function = function.clone();
            Box::pin(async move {
                // A URI whose variables don't fit names nothing here.
                let variables: V = texts::read(variables).map_err(|_| Failure::NotFound)?;
                Ok(function(context, variables).await?.into_contents(&uri, mime_type.as_deref()))
            })
        });
        let spec = TemplateSpec {
            uri_template: uri_template.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            icons: Vec::new(),
            annotations: None,
        };
        Template { spec, read, completing: None }
    }

    /// Completes its variables.
    #[must_use]
    pub fn completing<F, W>(mut self, function: F) -> Template
    where
        F: Fn(Context, Asked) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Completion, Failure>> + Send + 'static,
    {
        self.completing = Some(completing(function));
        self
    }

    /// A short name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Template {
        self.spec.title = Some(title.into());
        self
    }

    /// What its resources hold, for models.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Template {
        self.spec.description = Some(description.into());
        self
    }

    /// The MIME type that all of them have.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Template {
        self.spec.mime_type = Some(mime_type.into());
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn icon(mut self, icon: Icon) -> Template {
        self.spec.icons.push(icon);
        self
    }

    /// `Annotations`: `{"audience", "priority", "lastModified"}`.
    #[must_use]
    pub fn annotations(mut self, annotations: &Value) -> Template {
        self.spec.annotations = Some(schema::raw(annotations));
        self
    }

    pub(crate) fn offered(&self) -> TemplateEntry {
        let reader = Reader {
            read: self.read.clone(),
            mime_type: self.spec.mime_type.clone(),
            completing: self.completing.clone(),
            subscribable: false,
        };
        (self.spec.clone(), Arc::new(reader))
    }
}
