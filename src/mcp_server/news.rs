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
    notes: Vec<String>,
    /// That the session was taken over: the last time, if nobody has been told.
    takeover: Option<String>,
    /// What the kernel says of itself.
    coming: Option<JoinHandle<String>>,
}

impl News {
    /// The next answer says `note`.
    pub(super) fn tell(&self, note: String) {
        self.lock().notes.push(note);
    }

    /// The next answer says that the session was taken over; that or a later one says what comes of `coming`.
    pub(super) fn tell_takeover(&self, words: String, coming: JoinHandle<String>) {
        let mut state = self.lock();
        state.takeover = Some(words);
        // What an earlier one has found, output among it, is not asked for again.
        let earlier = state.coming.take();
        state.coming = Some(match earlier {
            None => coming,
            Some(earlier) => tokio::spawn(async move {
                let found = [earlier.await.unwrap_or_default(), coming.await.unwrap_or_default()];
                found.join("\n")
            }),
        });
    }

    /// The texts for an answer. `is_ready` if the kernel has done all that it was asked before.
    pub(super) async fn take(&self, is_ready: bool) -> Vec<String> {
        let (mut texts, coming) = {
            let mut state = self.lock();
            let mut texts = std::mem::take(&mut state.notes);
            texts.extend(state.takeover.take());
            (texts, state.coming.take())
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
