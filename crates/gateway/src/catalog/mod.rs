//! What is served: tools, resources, templates and prompts, found by what clients call them, their lists ready made for
//! both eras, in a fixed order. A catalog never changes; a reload makes a new one.

mod pages;
mod prompts;
mod resources;
mod template;
mod tools;

pub use tools::Entry;

pub(crate) use resources::{Found, MAX_URI};

use crate::arguments::SchemaError;
use crate::changes::Change;
use crate::icon::Icon;
use crate::prompt::{Prompt, PromptEntry, PromptSpec};
use crate::resource::{Resource, ResourceEntry, TemplateEntry};
use crate::tool::{Body, ToolSettings, ToolSpec};
use crate::views::View;
use ledger::Millis;
use mcp::json::{Raw, RawObject, quote};
use mcp::server::Outcome;
use pages::Pages;
use prompts::Prompts;
use resources::Resources;
use std::sync::Arc;
use tools::Tools;

/// The longest name of a prompt or of its arguments, in bytes.
const MAX_NAME: usize = 256;

/// Why an offer can't be served.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Two tools would have one name.
    #[error("the tools {0} and {1} would both be called {2:?} on the wire; give one of them another `name`")]
    SameName(String, String, String),
    /// Two tools have one canonical id.
    #[error("there are two tools with the id {0:?}; rename one of the integrations or methods")]
    SameId(String),
    /// A name that hosts don't accept.
    #[error(
        "the tool {0} can't be called {1:?}: a name has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -"
    )]
    BadName(String, String),
    /// A schema that can't be used.
    #[error("the tool {0} can't be served: {1}")]
    Schema(String, SchemaError),
    /// A wrong header annotation.
    #[error("the tool {0} can't be served: its schema's x-mcp-header annotations are not valid ({1})")]
    Header(String, String),
    /// `key_from` names an argument that the tool hasn't.
    #[error("the tool {0} has no argument {1:?}, which its `key_from` names")]
    KeyFrom(String, String),
    /// A part of a tool that must be an object is none.
    #[error(
        "the tool {0} can't be served: its {1} must be a JSON object of objects or values as the schema says"
    )]
    ToolObject(String, &'static str),
    /// Two resources or two templates have one URI.
    #[error("there are two resources or templates at {0}; give one of them another URI")]
    SameUri(String),
    /// A resource without a proper URI.
    #[error(
        "there can't be a resource at {0:?}: its URI needs a scheme, no blanks, and at most {MAX_URI} bytes"
    )]
    BadUri(String),
    /// A template that can't be matched.
    #[error("the template {0:?} can't be served: {1}")]
    Template(String, &'static str),
    /// Annotations of a resource or template that are no object.
    #[error("the annotations of {0} must be a JSON object")]
    ResourceAnnotations(String),
    /// Two prompts have one name.
    #[error("there are two prompts called {0:?}; rename one of them")]
    SamePrompt(String),
    /// A prompt with an unusable name.
    #[error("a prompt can't be called {0:?}: a name has 1 to {MAX_NAME} bytes")]
    PromptName(String),
    /// A prompt's argument is named twice or not at all.
    #[error("the prompt {0:?} can't have an argument {1:?}: names are unique and have 1 to {MAX_NAME} bytes")]
    PromptArgument(String, String),
    /// An icon that clients would not show.
    #[error("an icon of the {0} can't be served: {1}")]
    Icon(String, &'static str),
}

impl CatalogError {
    /// The canonical id of the tool that it is about.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            CatalogError::SameName(_, id, _)
            | CatalogError::SameId(id)
            | CatalogError::BadName(id, _)
            | CatalogError::Schema(id, _)
            | CatalogError::Header(id, _)
            | CatalogError::KeyFrom(id, _)
            | CatalogError::ToolObject(id, _) => Some(id),
            _ => None,
        }
    }
}

/// Everything that a server offers.
#[derive(Default)]
pub struct Offer {
    /// Tools, in the order in which they are listed.
    pub tools: Vec<(ToolSpec, ToolSettings, Body)>,
    /// Resources, in the order in which they are listed.
    pub resources: Vec<ResourceEntry>,
    /// Templates, in the order in which they are listed and tried.
    pub templates: Vec<TemplateEntry>,
    /// Prompts, in the order in which they are listed.
    pub prompts: Vec<PromptEntry>,
}

/// The list settings.
#[derive(Clone, Debug)]
pub struct ListSettings {
    /// How long a client may keep a list.
    pub ttl: Millis,
    /// Whether every caller sees the same, without authentication.
    pub public: bool,
    /// `io.modelcontextprotocol/serverInfo`, as JSON text.
    pub server_info: Raw,
}

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

/// What is served.
pub struct Catalog {
    tools: Tools,
    resources: Arc<Resources>,
    prompts: Arc<Prompts>,
    tool_pages: Pages,
    resource_pages: Arc<Pages>,
    template_pages: Arc<Pages>,
    prompt_pages: Arc<Pages>,
    lists: ListSettings,
    views: Vec<View>,
}

impl Catalog {
    /// Checks an offer and makes its lists, in the given order.
    ///
    /// # Errors
    /// [`CatalogError`] names what is wrong and what to change.
    pub fn build(offer: Offer, lists: &ListSettings) -> Result<Catalog, CatalogError> {
        let mut tools = Tools::default();
        for (spec, settings, body) in offer.tools {
            tools.add(spec, settings, body)?;
        }
        let mut resources = Resources::default();
        for entry in offer.resources {
            resources.add(entry)?;
        }
        for entry in offer.templates {
            resources.add_template(entry)?;
        }
        let mut prompts = Prompts::default();
        for entry in offer.prompts {
            prompts.add(entry)?;
        }
        Ok(Catalog {
            tool_pages: Pages::new("tools", &tools.listings(), lists),
            resource_pages: Pages::new("resources", &resources.listings(), lists).into(),
            template_pages: Pages::new("resourceTemplates", &resources.template_listings(), lists).into(),
            prompt_pages: Pages::new("prompts", &prompts.listings(), lists).into(),
            tools,
            resources: resources.into(),
            prompts: prompts.into(),
            lists: lists.clone(),
            views: Vec::new(),
        })
    }

    /// The same, of which some are served a part.
    #[must_use]
    pub fn with_views(self, views: Vec<View>) -> Catalog {
        Catalog { views, ..self }
    }

    /// Who is served a part of it.
    #[must_use]
    pub fn views(&self) -> &[View] {
        &self.views
    }

    /// The part of it with these tools, by canonical id, and all that is not tools.
    pub(crate) fn part(&self, shown: impl Fn(&str) -> bool) -> Catalog {
        let mut tools = Tools::default();
        for entry in self.entries().filter(|e| shown(&e.spec.canonical)) {
            tools.share(entry);
        }
        Catalog {
            tool_pages: Pages::new("tools", &tools.listings(), &self.lists),
            tools,
            resources: self.resources.clone(),
            prompts: self.prompts.clone(),
            resource_pages: self.resource_pages.clone(),
            template_pages: self.template_pages.clone(),
            prompt_pages: self.prompt_pages.clone(),
            lists: self.lists.clone(),
            views: Vec::new(),
        }
    }

    /// How many tools it lists, and how many bytes that takes, as the modern era writes them.
    #[must_use]
    pub fn tools_listed(&self) -> (usize, usize) {
        (self.tools.entries.len(), self.tool_pages.bytes())
    }

    /// A page of a list, as the legacy or the modern era writes it.
    #[must_use]
    pub fn page(&self, list: List, legacy: bool, params: Option<&RawObject>) -> Outcome {
        let pages: &Pages = match list {
            List::Tools => &self.tool_pages,
            List::Resources => &self.resource_pages,
            List::Templates => &self.template_pages,
            List::Prompts => &self.prompt_pages,
        };
        pages.page(legacy, params)
    }

    /// Every byte of every list, in both eras, in a fixed order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let all: [&Pages; 4] =
            [&self.tool_pages, &self.resource_pages, &self.template_pages, &self.prompt_pages];
        all.into_iter().flat_map(Pages::texts)
    }

    /// A tool by its name on the wire.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.tools.by_name(name)
    }

    /// A tool by its canonical id, or its name on the wire.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Arc<Entry>> {
        self.tools.find(id)
    }

    /// All tools, in their order.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.tools.entries.iter()
    }

    /// Who reads the resource with this URI.
    pub(crate) fn resource(&self, uri: &str) -> Option<Found> {
        self.resources.find(uri)
    }

    /// Who completes a template's variables, and whether it has this one.
    pub(crate) fn template(&self, uri: &str, variable: &str) -> Option<(Arc<dyn Resource>, bool)> {
        self.resources.template(uri, variable)
    }

    /// A prompt by its name.
    pub(crate) fn prompt(&self, name: &str) -> Option<(&PromptSpec, &Arc<dyn Prompt>)> {
        self.prompts.find(name)
    }

    /// Whether there is a resource or template.
    #[must_use]
    pub fn has_resources(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether there is a prompt.
    #[must_use]
    pub fn has_prompts(&self) -> bool {
        !self.prompts.is_empty()
    }

    /// Whether there is an argument or a variable that can be completed.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.resources.has_templates() || self.prompts.take_arguments()
    }

    /// Whether clients can subscribe to a resource.
    #[must_use]
    pub fn has_subscriptions(&self) -> bool {
        self.resources.tell_changes()
    }

    /// Whether a tool needs to ask the client.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.entries().any(|e| e.requires.is_some())
    }

    /// The lists that clients would see changed by `new`.
    #[must_use]
    pub fn changes_to(&self, new: &Catalog) -> Vec<Change> {
        let resources = self.resource_pages.is_like(&new.resource_pages)
            && self.template_pages.is_like(&new.template_pages);
        [
            (Change::Tools, self.tool_pages.is_like(&new.tool_pages)),
            (Change::Prompts, self.prompt_pages.is_like(&new.prompt_pages)),
            (Change::Resources, resources),
        ]
        .into_iter()
        .filter(|(_, same)| !same)
        .map(|(change, _)| change)
        .collect()
    }
}

/// Adds a member with a text, if there is one.
fn with_text(o: &mut String, name: &str, text: Option<&str>) {
    if let Some(t) = text {
        o.push_str(&format!(r#","{name}":{}"#, quote(t)));
    }
}

/// Adds `icons`, if there are any.
fn with_icons(o: &mut String, icons: &[Icon]) {
    if !icons.is_empty() {
        let icons: Vec<String> = icons.iter().map(|i| i.object().to_string()).collect();
        o.push_str(&format!(r#","icons":[{}]"#, icons.join(",")));
    }
}

/// Spec: basic, "Icons": `https:`, `http:` or `data:`; other schemes are refused by clients.
fn check_icons(whose: &str, icons: &[Icon]) -> Result<(), CatalogError> {
    let wrong = |why| Err(CatalogError::Icon(whose.to_owned(), why));
    for icon in icons {
        if !["https://", "http://", "data:"].iter().any(|s| icon.src.starts_with(s)) {
            return wrong("its source must be an https:, http: or data: URI");
        }
        if icon.theme.as_deref().is_some_and(|t| t != "light" && t != "dark") {
            return wrong("its theme must be light or dark");
        }
    }
    Ok(())
}
