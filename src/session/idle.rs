//! The time for which nobody uses a session, and the words about what has come of that.

use std::time::{Duration, Instant};

use super::command::QueuedCommand;
use crate::kernels::kernel::PodRest;

/// The time until the next try, if a kernel that nobody uses cannot end yet.
const PAUSE: Duration = Duration::from_secs(30);

/// The time since a session was used, and what has come of that.
pub(super) struct SessionIdleness {
    /// The time after which its kernel ends; `None` for never.
    after: Option<Duration>,
    /// The last use.
    used: Instant,
    /// The time of the next try, if one was in vain.
    not_before: Instant,
    /// The rest that nobody has been told of.
    rested: Option<IdleRest>,
    /// The last reason for which the kernel did not end, which nobody has been told.
    trouble: Option<String>,
}

struct IdleRest {
    /// The last use before it.
    used: Instant,
    rest: PodRest,
}

impl SessionIdleness {
    pub(super) fn new(after: Option<Duration>) -> Self {
        let now = Instant::now();
        Self { after, used: now, not_before: now, rested: None, trouble: None }
    }

    /// The moment at which the kernel ends if nobody uses it.
    pub(super) fn due(&self) -> Option<Instant> {
        Some((self.used.checked_add(self.after?)?).max(self.not_before))
    }

    /// Notes that a kernel is used.
    pub(super) fn used(&mut self) {
        self.used = Instant::now();
    }

    /// Has the next try come later.
    pub(super) fn postpone(&mut self) {
        self.not_before = Instant::now() + PAUSE;
    }

    /// Notes why the kernel goes on.
    pub(super) fn goes_on(&mut self, why: &str) {
        self.trouble = Some(format!("Nobody used the session, and its kernel goes on: failed to {why}"));
        self.postpone();
    }

    /// Notes that the kernel has ended, and what has become of its place.
    pub(super) fn rests(&mut self, rest: PodRest) {
        self.rested = Some(IdleRest { used: self.used, rest });
    }

    /// Forgets a rest: its kernel is not to come back.
    pub(super) fn forget(&mut self) {
        (self.rested, self.trouble) = (None, None);
    }

    /// The line about a rest, or why there was none.
    pub(super) fn take_words(&mut self) -> Option<String> {
        let trouble = self.trouble.take();
        match self.rested.take() {
            Some(IdleRest { used, rest }) => Some(words(used.elapsed(), rest)),
            None => trouble,
        }
    }
}

fn words(idle: Duration, rest: PodRest) -> String {
    let minutes = idle.as_secs() / 60;
    let time = if minutes == 0 { format!("{} s", idle.as_secs()) } else { format!("{minutes} min") };
    let end = match rest {
        PodRest::Stays => "its kernel has ended, and another one has started",
        PodRest::Suspended => "its sandbox was suspended, and runs again with its files",
        PodRest::Deleted => "its sandbox was deleted with its files, and another one claimed",
    };
    format!("The session was not used for {time}: {end}.")
}

impl QueuedCommand {
    /// Whether somebody uses the kernel by it.
    pub(super) fn is_use(&self) -> bool {
        !matches!(self, Self::RefreshImports { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_told_once_in_one_line() {
        let mut idleness = SessionIdleness::new(Some(Duration::from_secs(60)));
        assert!(idleness.due().is_some_and(|due| due > Instant::now()));
        idleness.trouble = Some("why".to_owned());
        assert_eq!(idleness.take_words().as_deref(), Some("why"));
        let used = Instant::now().checked_sub(Duration::from_secs(150)).unwrap_or_else(Instant::now);
        for (rest, end) in [
            (PodRest::Stays, "another one has started."),
            (PodRest::Suspended, "with its files."),
            (PodRest::Deleted, "another one claimed."),
        ] {
            idleness.rested = Some(IdleRest { used, rest });
            let words = idleness.take_words().unwrap();
            assert!(words.ends_with(end) && !words.contains('\n'), "{words}");
            assert_eq!(idleness.take_words(), None);
        }
        assert_eq!(SessionIdleness::new(None).due(), None);
        assert!(words(Duration::from_secs(150), PodRest::Stays).contains("for 2 min:"));
        assert!(words(Duration::from_secs(9), PodRest::Stays).contains("for 9 s:"));
    }
}
