//! The tasks that one stream follows (SEP-2663, "Task Status Notifications"): each change of one is told as `tasks/get`
//! would tell it at that moment, once.

use crate::methods::tasks;
use crate::service::Shared;
use futures_util::future::select_all;
use ledger::{Changes, OperationId};
use mcp::error::RpcError;
use mcp::json::{Raw, RawObject};
use std::sync::Arc;
use std::time::Duration;

/// The most tasks that one stream follows.
const MAX_TASKS: usize = 256;
/// How often they are looked at without a doorbell.
const LOOK: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Tasks {
    shared: Arc<Shared>,
    principal: Arc<str>,
    declared: Raw,
    all: Vec<One>,
    /// Found, and not given out yet.
    news: Vec<RawObject>,
}

struct One {
    text: String,
    operation: OperationId,
    changes: Changes,
    /// What was told last.
    told: Option<Raw>,
}

/// The ids that a filter names.
///
/// # Errors
/// They are no array of strings, or too many.
pub(crate) fn ids(filter: &RawObject) -> Result<Vec<String>, RpcError> {
    let Some(given) = filter.get("taskIds") else { return Ok(Vec::new()) };
    let wrong = |why: &str| RpcError::malformed(format!("params.notifications.taskIds {why}"));
    let mut ids: Vec<String> = given.read().map_err(|_| wrong("must be an array of strings"))?;
    if ids.len() > MAX_TASKS {
        return Err(wrong("has more than 256 ids; open another stream for the rest"));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

impl Tasks {
    /// Those of these ids that are this caller's.
    ///
    /// # Errors
    /// The ledger can't be read.
    pub async fn of(
        shared: &Arc<Shared>,
        principal: Arc<str>,
        declared: Raw,
        ids: Vec<String>,
    ) -> Result<Tasks, RpcError> {
        let mut all = Vec::new();
        for text in ids {
            match tasks::find(shared, &principal, &text).await {
                Ok(op) => {
                    let changes = shared.ledger.changes(op.id);
                    all.push(One { text, operation: op.id, changes, told: None });
                }
                Err(e) if e.code == mcp::error::INVALID_PARAMS => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Tasks { shared: shared.clone(), principal, declared, all, news: Vec::new() })
    }

    /// Their ids.
    pub fn ids(&self) -> Vec<&str> {
        self.all.iter().map(|one| one.text.as_str()).collect()
    }

    /// What is news of them, at once for what is news already. May be dropped and called again.
    pub async fn next(&mut self) -> Vec<RawObject> {
        loop {
            self.look().await;
            if !self.news.is_empty() {
                return std::mem::take(&mut self.news);
            }
            if self.all.is_empty() {
                return std::future::pending().await;
            }
            let ring = select_all(self.all.iter_mut().map(|one| Box::pin(one.changes.changed())));
            // Without a doorbell it is looked at all the same.
            let _ = tokio::time::timeout(LOOK, ring).await;
        }
    }

    async fn look(&mut self) {
        let mut ended = Vec::new();
        for (i, one) in self.all.iter_mut().enumerate() {
            let Ok(op) = self.shared.ledger.status(&self.principal, one.operation).await else { continue };
            // Pruned: there is no more to tell.
            let Some(op) = op else {
                ended.push(i);
                continue;
            };
            let Ok(task) = tasks::detailed(&self.shared, &op, &self.declared).await else { continue };
            if one.told.as_ref() != Some(&task) {
                self.news.extend(task.object());
                one.told = Some(task);
            }
            if op.execution.is_ended() {
                ended.push(i);
            }
        }
        for i in ended.into_iter().rev() {
            self.all.swap_remove(i);
        }
    }
}
