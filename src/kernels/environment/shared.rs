//! One environment for all callers: prepared once, with the others waiting for it.

use std::sync::Arc;

use tokio::sync::{Mutex, watch};

use super::{Environment, EnvironmentSettings, Error, InstallProgress};

/// The environment, prepared on first use.
pub(crate) struct SharedEnvironment {
    settings: EnvironmentSettings,
    /// Held while preparing. A failure is not kept: the next caller tries again.
    place: Mutex<Option<Arc<Environment>>>,
    /// The progress of the preparing caller, for the waiting ones.
    phase: watch::Sender<String>,
}

impl SharedEnvironment {
    /// Nothing is prepared before the first call of [`get`](Self::get).
    pub(crate) fn new(settings: EnvironmentSettings) -> Self {
        Self { settings, place: Mutex::default(), phase: watch::Sender::new(String::new()) }
    }

    /// The environment; prepares it, or waits for another caller that does. Cancellation safe.
    pub(crate) async fn get(&self, progress: InstallProgress<'_>) -> Result<Arc<Environment>, Error> {
        let mut phases = self.phase.subscribe();
        let waiting = async {
            while phases.changed().await.is_ok() {
                progress(&phases.borrow_and_update());
            }
            std::future::pending().await
        };
        let mut place = tokio::select! {
            place = self.place.lock() => place,
            never = waiting => never,
        };
        if let Some(environment) = &*place {
            return Ok(Arc::clone(environment));
        }
        let report = |words: &str| {
            progress(words);
            self.phase.send_replace(words.to_owned());
        };
        let environment = Arc::new(Environment::prepare(&self.settings, &report).await?);
        *place = Some(Arc::clone(&environment));
        Ok(environment)
    }

    /// Forgets the environment, which may be broken: the next caller examines it again.
    pub(crate) async fn forget(&self) {
        *self.place.lock().await = None;
    }
}
