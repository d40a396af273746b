//! What the next answer says first.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

/// How long an answer waits for news that are almost there.
const ALMOST: Duration = Duration::from_secs(1);

/// Texts, each of which is said once.
#[derive(Default)]
pub(super) struct News {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    texts: Vec<String>,
    /// What is being asked of the kernel.
    coming: Option<JoinHandle<String>>,
}

impl News {
    /// The next answer says `text`; that or a later one says what comes of `coming`.
    pub(super) fn put(&self, text: String, coming: Option<JoinHandle<String>>) {
        let mut state = self.lock();
        state.texts.push(text);
        if coming.is_some() {
            state.coming = coming;
        }
    }

    /// The texts for an answer. `is_ready` if the kernel has done all that it was asked before.
    pub(super) async fn take(&self, is_ready: bool) -> Vec<String> {
        let (mut texts, coming) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.texts), state.coming.take())
        };
        let Some(mut coming) = coming else { return texts };
        let limit = if is_ready { ALMOST } else { Duration::ZERO };
        match tokio::time::timeout(limit, &mut coming).await {
            Ok(came) => texts.extend(came),
            Err(_) => self.lock().coming = Some(coming),
        }
        texts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
