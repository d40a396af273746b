//! The time for which nobody uses a session, and the words about what has come of that.

use std::time::{Duration, Instant};

use super::command::QueuedCommand;
use crate::kernels::kernel::{KernelEffort, PodRest};

/// The longest time until the next try, if a kernel that nobody uses cannot end yet.
const PAUSE: Duration = Duration::from_secs(30);
/// The time until the first look at whether the variables are saved.
const SAVING: Duration = Duration::from_secs(1);
/// A kernel works that takes so much of the time, one part in so many, and more than a few questions take.
const WORKING_PART: u128 = 50;
const QUESTIONS: u128 = 100;
/// The same where it waits for a processor, since other programs have them.
const WAITING_PART: u128 = 4;

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
    Measured(IdleMeasure),
    /// It has not worked, and its variables are being saved once more: threads may have changed them.
    Saving(IdleMeasure),
}

/// The work of a kernel until a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleMeasure {
    at: Instant,
    effort: KernelEffort,
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
            IdleStep::Nothing => self.used.checked_add(after / 2)?,
            IdleStep::Measured(since) => self.used.checked_add(after)?.max(since.at + after / 2),
            IdleStep::Saving(_) => self.not_before,
        };
        Some(time.max(self.not_before))
    }

    /// Whether nobody has used the session for so long that its kernel ends.
    pub(super) fn is_over(&self) -> bool {
        self.after.is_some_and(|after| self.used.elapsed() >= after)
    }

    pub(super) fn step(&self) -> IdleStep {
        self.step
    }

    pub(super) fn begin_to_measure(&mut self, effort: KernelEffort) {
        self.step = IdleStep::Measured(IdleMeasure { at: Instant::now(), effort });
    }

    /// Notes that the variables are being saved of a kernel that has done so much until now.
    pub(super) fn begin_to_save(&mut self, effort: KernelEffort) {
        self.step = IdleStep::Saving(IdleMeasure { at: Instant::now(), effort });
        self.not_before = Instant::now() + self.after.map_or(SAVING, |after| (after / 8).min(SAVING));
    }

    /// Notes that a kernel is used.
    pub(super) fn used(&mut self) {
        (self.used, self.step) = (Instant::now(), IdleStep::Nothing);
    }

    /// Has the next try come later.
    pub(super) fn postpone(&mut self) {
        self.not_before = Instant::now() + self.after.map_or(PAUSE, |after| (after / 4).min(PAUSE));
    }

    /// Notes why the kernel goes on; the next try begins with the first step.
    pub(super) fn goes_on(&mut self, why: &str) {
        self.step = IdleStep::Nothing;
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

/// Whether a kernel has worked since it was measured.
pub(super) fn has_worked(measure: IdleMeasure, later: KernelEffort) -> bool {
    let IdleMeasure { at, effort: earlier } = measure;
    let since = |earlier: u64, later: u64| u128::from(later.saturating_sub(earlier));
    let time = at.elapsed().as_millis();
    let spent = since(earlier.spent, later.spent);
    let wanted = spent + since(earlier.waited, later.waited);
    spent > QUESTIONS.max(time / WORKING_PART) || wanted > QUESTIONS.max(time / WAITING_PART)
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
        let effort = KernelEffort { spent: 0, waited: 0 };
        idleness.used();
        idleness.begin_to_measure(effort);
        assert!(idleness.due().is_some_and(|due| due > Instant::now() + Duration::from_secs(30)));
        idleness.begin_to_save(effort);
        assert!(idleness.due().is_some_and(|due| due < Instant::now() + Duration::from_secs(30)));
        idleness.goes_on("read");
        assert!(matches!(idleness.step(), IdleStep::Nothing));
        assert!(idleness.due().is_some_and(|due| due > Instant::now()));
        idleness.used();
        assert!(matches!(idleness.step(), IdleStep::Nothing));
        assert!(words(Duration::from_secs(150), PodRest::Stays).contains("for 2 min:"));
        assert!(words(Duration::from_secs(9), PodRest::Stays).contains("for 9 s:"));
    }

    #[test]
    fn a_kernel_works_that_takes_more_time_than_questions() {
        let effort = |spent, waited| KernelEffort { spent, waited };
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        for (seconds, later, works) in [
            (1, effort(1099, 10), false),
            (1, effort(1200, 10), true),
            (100, effort(2900, 10), false),
            (100, effort(5000, 10), true),
            (1, effort(0, 0), false),
            (1, effort(1050, 150), false),
            (1, effort(1050, 300), true),
            (100, effort(1900, 20_000), false),
            (100, effort(1900, 30_000), true),
        ] {
            let measure = IdleMeasure { at: ago(seconds), effort: effort(1000, 10) };
            assert_eq!(has_worked(measure, later), works, "{seconds} s, {later:?}");
        }
    }
}
