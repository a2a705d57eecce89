//! News of changes: from whoever changes something to whoever listens, in this process.

use std::sync::Arc;
use tokio::sync::broadcast;

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources or templates.
    Resources,
    /// The resource with this URI.
    Resource(Arc<str>),
}

/// Changes that a slow listener may fall behind before it is told that it missed some.
const ROOM: usize = 1024;

/// See the module. Clones share one channel.
#[derive(Clone, Debug)]
pub struct Changes(broadcast::Sender<Change>);

impl Default for Changes {
    fn default() -> Self {
        Changes(broadcast::Sender::new(ROOM))
    }
}

impl Changes {
    /// Tells everybody who listens.
    pub fn tell(&self, change: Change) {
        // Nobody has to listen.
        let _ = self.0.send(change);
    }

    /// All changes from now on.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Change> {
        self.0.subscribe()
    }
}
