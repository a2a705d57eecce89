//! Fewer tools for some: which part of the catalog is served at which path and to which principal.
//!
//! Promises: at a view's path, and to a principal that has a view, nothing but the view's tools is listed or can be called;
//! where both are, what both have. A tool that is not among them is answered as one that is not there. A view changes
//! nothing else: tools keep their ids, so keys and operations are the same everywhere, and what was opened is still
//! answered. Lists are made once for each part, not for each request.

use crate::capabilities::Served;
use crate::catalog::Catalog;
use crate::changes::Change;
use crate::principal::Principal;
use crate::service::GatewaySettings;
use http::Extensions;
use mcp::json::Raw;
use mcp::server::AtPath;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// By what a view is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewBy {
    /// The path of the endpoint.
    Path(String),
    /// Who calls, at any path and over lines.
    Principals(Vec<String>),
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// By what it is chosen.
    pub by: ViewBy,
    /// The canonical ids of its tools.
    pub tools: HashSet<Arc<str>>,
}

/// What of the catalog somebody is served: the numbers of the views, plus one; zero without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    path: usize,
    principal: usize,
}

/// A catalog with its views, and what is said about each part of it.
pub(crate) struct Views {
    whole: Arc<Served>,
    settings: GatewaySettings,
    info: Raw,
    /// Those at paths: each path that is served or may be.
    paths: Vec<View>,
    /// Those of principals.
    groups: Vec<View>,
    by_principal: HashMap<String, usize>,
    /// By path, then principal; made when they are first needed.
    parts: Vec<OnceLock<Arc<Served>>>,
}

impl Views {
    /// `before`: what was served until now. A path goes on to be served as a view even if nobody speaks of it any more:
    /// what is asked there must not become more than it was.
    pub fn new(catalog: Catalog, settings: &GatewaySettings, info: &Raw, before: Option<&Views>) -> Views {
        let views = catalog.views().to_vec();
        let (mut paths, mut groups): (Vec<View>, Vec<View>) =
            views.into_iter().partition(|v| matches!(v.by, ViewBy::Path(_)));
        for old in before.map(|b| &b.paths).into_iter().flatten() {
            if !paths.iter().any(|new| new.by == old.by) {
                paths.push(old.clone());
            }
        }
        groups.retain(|v| matches!(&v.by, ViewBy::Principals(p) if !p.is_empty()));
        let members = |(i, view): (usize, &View)| match &view.by {
            ViewBy::Principals(all) => all.iter().map(|p| (p.clone(), i)).collect(),
            ViewBy::Path(_) => Vec::new(),
        };
        let by_principal = groups.iter().enumerate().flat_map(members).collect();
        // One path more than there are: one that is not known shows nothing.
        let count = (paths.len() + 2) * (groups.len() + 1);
        Views {
            whole: Arc::new(Served::new(Arc::new(catalog), settings, info)),
            settings: settings.clone(),
            info: info.clone(),
            paths,
            groups,
            by_principal,
            parts: std::iter::repeat_with(OnceLock::new).take(count).collect(),
        }
    }

    /// All there is.
    pub fn whole(&self) -> &Arc<Served> {
        &self.whole
    }

    /// What whoever sent a request is served.
    pub fn of(&self, extensions: &Extensions) -> &Arc<Served> {
        if self.paths.is_empty() && self.groups.is_empty() {
            // No path is served as a view then.
            return &self.whole;
        }
        let path = extensions.get::<AtPath>().map(|p| &*p.0);
        let principal = extensions.get::<Principal>().map(|p| &*p.0);
        self.part(self.chosen(path, principal))
    }

    fn chosen(&self, path: Option<&str>, principal: Option<&str>) -> Part {
        let at = |p: &str| self.paths.iter().position(|v| matches!(&v.by, ViewBy::Path(own) if own == p));
        Part {
            path: path.map_or(0, |p| 1 + at(p).unwrap_or(self.paths.len())),
            principal: principal.and_then(|p| self.by_principal.get(p)).map_or(0, |i| 1 + i),
        }
    }

    fn part(&self, part: Part) -> &Arc<Served> {
        if part == Part::default() {
            return &self.whole;
        }
        let place = part.path * (self.groups.len() + 1) + part.principal;
        let made = || {
            let mut views = Vec::new();
            if part.path > 0 {
                views.push(self.paths.get(part.path - 1));
            }
            if part.principal > 0 {
                views.push(self.groups.get(part.principal - 1));
            }
            let shown = |id: &str| views.iter().all(|v| v.is_some_and(|v| v.tools.contains(id)));
            Arc::new(Served::new(Arc::new(self.whole.catalog.part(shown)), &self.settings, &self.info))
        };
        match self.parts.get(place) {
            Some(slot) => slot.get_or_init(made),
            // There is a slot for each part.
            None => &self.whole,
        }
    }

    /// Each view with what is served there.
    pub fn all(&self) -> impl Iterator<Item = (&View, &Arc<Served>)> {
        let paths = (0..self.paths.len()).map(|i| Part { path: i + 1, principal: 0 });
        let groups = (0..self.groups.len()).map(|i| Part { path: 0, principal: i + 1 });
        self.paths.iter().zip(paths).chain(self.groups.iter().zip(groups)).map(|(v, p)| (v, self.part(p)))
    }

    /// Whether there is a view at a path.
    pub fn has_path(&self, path: &str) -> bool {
        self.paths.iter().any(|v| matches!(&v.by, ViewBy::Path(own) if own == path))
    }

    /// What clients would see changed by `new`.
    pub fn changes_to(&self, new: &Views) -> Vec<Change> {
        let mut changes = self.whole.catalog.changes_to(&new.whole.catalog);
        let views = |v: &Views| !v.paths.is_empty() || !v.groups.is_empty();
        if !views(self) && !views(new) {
            return changes;
        }
        let tools = changes.contains(&Change::Tools);
        changes.retain(|c| *c != Change::Tools);
        if self.choosing() != new.choosing() {
            // Somebody sees another view now, or none.
            changes.push(Change::Tools);
            return changes;
        }
        if tools {
            changes.push(Change::ToolsIn("".into()));
        }
        for (view, served) in new.all() {
            let before = self.all().find(|(old, _)| old.name == view.name && old.by == view.by);
            let same = before
                .is_some_and(|(_, old)| !old.catalog.changes_to(&served.catalog).contains(&Change::Tools));
            if !same {
                changes.push(Change::ToolsIn(view.name.as_str().into()));
            }
        }
        changes
    }

    /// Who sees which view.
    fn choosing(&self) -> Vec<(&str, &ViewBy)> {
        let all = self.paths.iter().chain(&self.groups);
        let mut all: Vec<(&str, &ViewBy)> = all.map(|v| (v.name.as_str(), &v.by)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// Whether a change of the tools in one view, or without one, is a change to whoever sent this request.
    pub fn concerns(&self, view: &str, path: Option<&str>, principal: Option<&str>) -> bool {
        let part = self.chosen(path, principal);
        let name =
            |of: &[View], n: usize| n.checked_sub(1).and_then(|i| of.get(i)).is_some_and(|v| v.name == view);
        if part == Part::default() {
            view.is_empty()
        } else {
            name(&self.paths, part.path) || name(&self.groups, part.principal)
        }
    }

    /// Every byte of what is said and listed, and who sees which view, in a fixed order.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let whole = self.whole.texts().map(str::to_owned);
        let mut views: Vec<(&View, &Arc<Served>)> = self.all().collect();
        views.sort_unstable_by_key(|(v, _)| v.name.as_str());
        let views = views.into_iter().flat_map(|(view, served)| {
            let by = format!("{} {:?}", view.name, view.by);
            std::iter::once(by).chain(served.texts().map(str::to_owned)).collect::<Vec<_>>()
        });
        whole.chain(views)
    }
}
