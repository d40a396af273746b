//! The time for which nobody uses a session, and the words about what has come of that.

use std::time::{Duration, Instant};

use super::command::QueuedCommand;
use crate::kernels::kernel::{KernelEffort, PodRest};

/// The longest time until the next try, if a kernel that nobody uses cannot end yet.
const PAUSE: Duration = Duration::from_secs(30);
/// A kernel works that takes so much of the processor time, one part in so many, and more than a few questions take.
const WORKING_PART: u128 = 50;
const QUESTIONS: u128 = 100;

/// The time since a session was used, and what has come of that.
pub(super) struct SessionIdleness {
    /// The time after which its kernel ends; `None` for never.
    after: Option<Duration>,
    /// The last use.
    used: Instant,
    step: IdleStep,
    /// The time of the next try, if one was in vain.
    not_before: Instant,
    /// The rest that nobody has been told of.
    rested: Option<IdleRest>,
    /// Notes about variables that have come back, which nobody has been told.
    untold: Vec<String>,
    /// The last reason for which the kernel did not end, which nobody has been told.
    trouble: Option<String>,
}

/// The last thing that was done about a kernel that nobody uses.
#[derive(Debug, Clone, Copy)]
pub(super) enum IdleStep {
    Nothing,
    /// Its variables are to be saved once more: threads may have changed them.
    Saving,
    /// Its processor time was asked for.
    Measured {
        at: Instant,
        effort: KernelEffort,
    },
}

struct IdleRest {
    /// The last use before it.
    used: Instant,
    rest: PodRest,
}

impl SessionIdleness {
    pub(super) fn new(after: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            after,
            used: now,
            step: IdleStep::Nothing,
            not_before: now,
            rested: None,
            untold: Vec::new(),
            trouble: None,
        }
    }

    /// The moment of the next step if nobody uses the kernel.
    pub(super) fn due(&self) -> Option<Instant> {
        let after = self.after?;
        let time = match self.step {
            IdleStep::Nothing => after / 2,
            IdleStep::Saving => after / 4 * 3,
            IdleStep::Measured { .. } => after,
        };
        Some(self.used.checked_add(time)?.max(self.not_before))
    }

    /// Whether nobody has used the session for so long that its kernel ends.
    pub(super) fn is_over(&self) -> bool {
        self.after.is_some_and(|after| self.used.elapsed() >= after)
    }

    pub(super) fn step(&self) -> IdleStep {
        self.step
    }

    pub(super) fn has_done(&mut self, step: IdleStep) {
        self.step = step;
    }

    /// Notes that a kernel is used.
    pub(super) fn used(&mut self) {
        (self.used, self.step) = (Instant::now(), IdleStep::Nothing);
    }

    /// Has the next try come later.
    pub(super) fn postpone(&mut self) {
        self.not_before = Instant::now() + self.after.map_or(PAUSE, |after| (after / 4).min(PAUSE));
    }

    /// Notes why the kernel goes on.
    pub(super) fn goes_on(&mut self, why: &str) {
        self.trouble = Some(format!("Nobody used the session, and its kernel goes on: failed to {why}"));
        self.postpone();
    }

    /// Notes that the kernel has ended, and what has become of its place.
    pub(super) fn rests(&mut self, rest: PodRest) {
        self.rested = Some(IdleRest { used: self.used, rest });
        self.step = IdleStep::Nothing;
    }

    /// Forgets a rest: its kernel is not to come back.
    pub(super) fn forget(&mut self) {
        (self.rested, self.trouble) = (None, None);
        self.untold.clear();
    }

    /// Keeps notes for the next cell.
    pub(super) fn tell_later(&mut self, notes: Vec<String>) {
        self.untold.extend(notes);
    }

    pub(super) fn take_untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
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
        PodRest::Suspended => "its sandbox was suspended",
        PodRest::Deleted => "its sandbox was deleted with its files, and another one claimed",
    };
    format!("The session was not used for {time}: {end}.")
}

/// Whether a kernel has worked since it was asked for the earlier of these.
pub(super) fn has_worked(at: Instant, earlier: KernelEffort, later: KernelEffort) -> bool {
    let spent = u128::from(later.milliseconds.saturating_sub(earlier.milliseconds));
    spent > QUESTIONS.max(at.elapsed().as_millis() / WORKING_PART)
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
            (PodRest::Suspended, "suspended."),
            (PodRest::Deleted, "another one claimed."),
        ] {
            idleness.rested = Some(IdleRest { used, rest });
            let words = idleness.take_words().unwrap();
            assert!(words.ends_with(end) && !words.contains('\n'), "{words}");
            assert_eq!(idleness.take_words(), None);
        }
        assert_eq!(SessionIdleness::new(None).due(), None);
        assert!(!SessionIdleness::new(None).is_over() && !idleness.is_over());
        assert!(SessionIdleness::new(Some(Duration::ZERO)).is_over());
        idleness.has_done(IdleStep::Saving);
        idleness.postpone();
        assert!(idleness.due().is_some_and(|due| due > Instant::now()));
        idleness.used();
        assert!(matches!(idleness.step(), IdleStep::Nothing));
        assert!(words(Duration::from_secs(150), PodRest::Stays).contains("for 2 min:"));
        assert!(words(Duration::from_secs(9), PodRest::Stays).contains("for 9 s:"));
    }

    #[test]
    fn a_kernel_works_that_takes_more_time_than_questions() {
        let effort = |milliseconds| KernelEffort { milliseconds };
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        assert!(!has_worked(ago(1), effort(1000), effort(1099)));
        assert!(has_worked(ago(1), effort(1000), effort(1200)));
        assert!(!has_worked(ago(100), effort(1000), effort(2900)));
        assert!(has_worked(ago(100), effort(1000), effort(5000)));
        assert!(!has_worked(ago(1), effort(1000), effort(0)));
    }
}
