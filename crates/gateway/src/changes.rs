//! News of changes: from whoever changes something to whoever listens, at this replica and, by the bus, at all others.

use ledger::bus::{Bus, Note};
use std::fmt;
use std::sync::{Arc, OnceLock};
use tokio::sync::broadcast;

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The list of tools, whoever sees which.
    Tools,
    /// The list of tools in the view of this name; of the empty name: where there is no view.
    ToolsIn(Arc<str>),
    /// The list of prompts.
    Prompts,
    /// The list of resources or templates.
    Resources,
    /// The resource with this URI.
    Resource(Arc<str>),
    /// Any of them: who listens is told of all that it asked for.
    Any,
}

/// What changes are called on the bus.
pub(crate) const TOPIC: &str = "change";

impl Change {
    /// As it stands on the bus.
    fn body(&self) -> String {
        match self {
            Change::Tools => "tools".into(),
            Change::ToolsIn(view) => format!("tools {view}"),
            Change::Prompts => "prompts".into(),
            Change::Resources => "resources".into(),
            Change::Resource(uri) => format!("resource {uri}"),
            Change::Any => "any".into(),
        }
    }

    /// As it stands on the bus. A later version's word, which isn't known here, may mean anything.
    pub(crate) fn read(body: &str) -> Change {
        match (body, body.split_once(' ')) {
            ("tools", _) => Change::Tools,
            (_, Some(("tools", view))) => Change::ToolsIn(view.into()),
            ("prompts", _) => Change::Prompts,
            ("resources", _) => Change::Resources,
            (_, Some(("resource", uri))) => Change::Resource(uri.into()),
            _ => Change::Any,
        }
    }
}

/// Changes that a slow listener may fall behind before it is told that it missed some.
const ROOM: usize = 1024;

/// See the module. Clones share one channel.
#[derive(Clone)]
pub struct Changes(Arc<Inner>);

struct Inner {
    here: broadcast::Sender<Change>,
    /// Set once a gateway that has a bus serves them.
    bus: OnceLock<Arc<dyn Bus>>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("listeners", &self.0.here.receiver_count()).finish_non_exhaustive()
    }
}

impl Default for Changes {
    fn default() -> Self {
        Changes(Arc::new(Inner { here: broadcast::Sender::new(ROOM), bus: OnceLock::new() }))
    }
}

impl Changes {
    /// Tells everybody who listens, at any replica.
    pub fn tell(&self, change: Change) {
        if let Some(bus) = self.0.bus.get() {
            bus.tell(Note { topic: TOPIC.into(), body: change.body() });
        }
        self.tell_here(change);
    }

    /// Tells who listens at this replica only: others have been told.
    pub(crate) fn tell_here(&self, change: Change) {
        // Nobody has to listen.
        let _ = self.0.here.send(change);
    }

    /// Tells the other replicas by this bus from now on.
    pub(crate) fn connect(&self, bus: &Arc<dyn Bus>) {
        let _ = self.0.bus.set(bus.clone());
    }

    /// All changes from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Change> {
        self.0.here.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::Change;

    #[test]
    fn what_is_told_is_what_is_heard() {
        let all = [
            Change::Tools,
            Change::ToolsIn("".into()),
            Change::ToolsIn("billing".into()),
            Change::Prompts,
            Change::Resources,
            Change::Resource("test://a b".into()),
            Change::Any,
        ];
        for change in all {
            assert_eq!(Change::read(&change.body()), change);
        }
        assert_eq!(Change::read("roots"), Change::Any);
    }
}
