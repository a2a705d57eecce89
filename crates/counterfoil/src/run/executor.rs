//! The one who sends, replaceable on reload: a request that is under way ends with the credentials it began with.

use async_trait::async_trait;
use ledger::{Asked, EffectKey, Executor, Intent, Looked, Millis, Sent};
use provider::HttpExecutor;
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) struct Replaceable(RwLock<Arc<HttpExecutor>>);

impl Replaceable {
    pub fn new(executor: Arc<HttpExecutor>) -> Replaceable {
        Replaceable(RwLock::new(executor))
    }

    pub fn replace(&self, executor: Arc<HttpExecutor>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = executor;
    }

    fn now(&self) -> Arc<HttpExecutor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Executor for Replaceable {
    async fn send(&self, intent: &Intent, key: &EffectKey, replay: bool, timeout: Millis) -> Sent {
        self.now().send(intent, key, replay, timeout).await
    }
    async fn look_up(&self, intent: &Intent, key: &EffectKey, timeout: Millis) -> Looked {
        self.now().look_up(intent, key, timeout).await
    }
    async fn look_up_since(&self, intent: &Intent, key: &EffectKey, timeout: Millis, asked: Asked) -> Looked {
        self.now().look_up_since(intent, key, timeout, asked).await
    }
}
