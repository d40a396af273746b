//! The news at the beginning of the next answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::config::KernelSite;
use crate::ground::text::shortened;
use crate::kernels::sandbox::SandboxPolicy;

/// The time that an answer waits for news that are almost there.
const ALMOST: Duration = Duration::from_secs(1);

/// The number of problems of `.env` that an answer lists, and the characters of each: a stranger may have written the file.
const DOTENV_PROBLEMS: usize = 3;
const DOTENV_CHARS: usize = 600;

/// The notes on problems of `.env`.
pub(super) fn notes_on_dotenv(problems: &[impl ToString]) -> Vec<String> {
    let shown = problems.iter().take(DOTENV_PROBLEMS);
    let mut notes: Vec<String> =
        shown.map(|problem| format!("[{}]", shortened(&problem.to_string(), DOTENV_CHARS))).collect();
    match problems.len().saturating_sub(DOTENV_PROBLEMS) {
        0 => {}
        more => notes.push(format!("[`.env` has {more} more problems, which ipybox writes to stderr]")),
    }
    notes
}

/// The note on a policy of the sandbox that the workspace brings.
pub(super) fn note_on_policy(site: &KernelSite) -> Option<String> {
    let KernelSite::Sandboxed { confinement, .. } = site else { return None };
    confinement.policy.content_of_workspace()?;
    Some(format!("[the sandbox's policy is `{}` of the workspace]", SandboxPolicy::WORKSPACE_FILE))
}

/// Texts, each of which is said once.
#[derive(Default)]
pub(super) struct OnceNews {
    state: Mutex<NewsState>,
}

#[derive(Default)]
struct NewsState {
    notes: Vec<String>,
    /// That the session was taken over: the last time, until an answer says so.
    takeover: Option<String>,
    is_due: bool,
    /// The kernel's coming description of itself.
    coming: Option<JoinHandle<String>>,
}

impl OnceNews {
    /// The next answer says `note`.
    pub(super) fn add(&self, note: String) {
        self.state.lock().notes.push(note);
    }

    /// The next answer says `notes`.
    pub(super) fn add_all(&self, notes: Vec<String>) {
        self.state.lock().notes.extend(notes);
    }

    /// The next answer says that the session was taken over.
    pub(super) fn set_takeover(&self, words: String) {
        let mut state = self.state.lock();
        state.takeover = Some(words);
        state.is_due = true;
    }

    /// Whether the kernel is to be asked about itself: once after a takeover, by the first call, since clients may only look.
    pub(super) fn is_due(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_due)
    }

    /// The next answer after its end says what comes of `coming`.
    pub(super) fn expect(&self, coming: JoinHandle<String>) {
        self.state.lock().coming = Some(coming);
    }

    /// The texts for an answer. `is_ready` if the kernel has done all that it was asked before.
    pub(super) async fn take(&self, is_ready: bool) -> Vec<String> {
        let (mut texts, coming) = {
            let mut state = self.state.lock();
            let mut texts = std::mem::take(&mut state.notes);
            texts.extend(state.takeover.take());
            (texts, state.coming.take())
        };
        let Some(mut coming) = coming else { return texts };
        let limit = if is_ready { ALMOST } else { Duration::ZERO };
        match tokio::time::timeout(limit, &mut coming).await {
            Ok(came) => texts.extend(came),
            Err(_) => self.state.lock().coming = Some(coming),
        }
        texts
    }
}
