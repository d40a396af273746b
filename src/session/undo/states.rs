//! The states that are kept: within a budget of memory, and of time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{PastCell, UndoHistory};
use crate::session::site::{ByteSize, PodMeter, SleepingKernel, memory_of_forks, most_memory_of_forks};

/// The number of states that are kept. Each takes some 4 MB, and a process.
const MOST_STATES: usize = 8;

/// The part of a session's time that making states may take: 1/20.
const TIME_PART: u32 = 20;
/// The time that it may take at once, after a while without.
const MOST_TIME: Duration = Duration::from_secs(10);

/// The least time between two looks at the memory of states while a cell runs, and how many times as long as a look; and the
/// latter between any two. To look at each page of 1 GB takes some 30 ms, of each state.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
const LOOK_PART: u32 = 50;
const REST_PART: u32 = 10;

/// The state of the kernel before a cell.
pub(crate) enum StateBefore {
    /// A fork of the kernel, which sleeps.
    Kept(SleepingKernel),
    /// That of a kernel that has run nothing.
    Fresh,
    /// There is none, for this reason.
    Missing(String),
}

impl StateBefore {
    pub(crate) fn into_state(self) -> Option<SleepingKernel> {
        match self {
            Self::Kept(state) => Some(state),
            Self::Fresh | Self::Missing(_) => None,
        }
    }

    fn state(&self) -> Option<&SleepingKernel> {
        match self {
            Self::Kept(state) => Some(state),
            Self::Fresh | Self::Missing(_) => None,
        }
    }
}

/// The time that making states may take.
pub(super) struct StateAllowance {
    /// The time that it has taken, less its part of the time since.
    spent: Duration,
    at: Instant,
}

impl Default for StateAllowance {
    fn default() -> Self {
        Self { spent: Duration::ZERO, at: Instant::now() }
    }
}

impl StateAllowance {
    fn is_left(&mut self) -> bool {
        let passed = std::mem::replace(&mut self.at, Instant::now()).elapsed();
        self.spent = self.spent.saturating_sub(passed / TIME_PART);
        self.spent < MOST_TIME
    }

    fn spend(&mut self, time: Duration) {
        self.spent += time;
    }
}

impl UndoHistory {
    /// Whether the state of now is to be made. If not, an undo will say why.
    pub(crate) fn is_due(&self) -> bool {
        let mut past = self.past.lock();
        past.is_running = false;
        let is_fresh = matches!(past.now, StateBefore::Fresh);
        if !self.is_on() || is_fresh || past.is_claimed || past.is_closed {
            return false;
        }
        let is_due = past.allowance.is_left();
        if !is_due {
            let why = "cells came so fast that making states would have taken more than 5 % of the time";
            past.now = StateBefore::Missing(why.to_owned());
        }
        is_due
    }

    /// An undo is over. If it has brought a state back, that of the kernel that has gone is to be ended.
    pub(crate) fn claim_ends(&self, is_back: bool) -> Option<SleepingKernel> {
        let mut past = self.past.lock();
        past.is_claimed = false;
        is_back.then(|| replaced(&mut past.now, "it was brought back just now".to_owned())).flatten()
    }

    /// The kernel, which had run nothing, has variables of an earlier one.
    pub(crate) fn variables_restored(&self) {
        let mut past = self.past.lock();
        past.now = StateBefore::Missing("variables were restored just now".to_owned());
    }

    /// Enters the state of now, or why there is none, which has taken this time.
    pub(crate) fn enter(&self, state: Result<SleepingKernel, String>, took: Duration) {
        let mut past = self.past.lock();
        past.allowance.spend(took);
        past.now = match state {
            Ok(state) => StateBefore::Kept(state),
            Err(why) => StateBefore::Missing(why),
        };
        drop(past);
        self.changed.notify_one();
    }

    /// Ends the oldest states that are beyond the budget, until the history is closed.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut took = Duration::ZERO;
        while self.is_look_due(took).await {
            let begun = Instant::now();
            self.keep_within_budget().await;
            took = begun.elapsed();
        }
    }

    /// Waits until the states are to be looked at again, after a look that `took` so long. `false` if the history is closed.
    async fn is_look_due(&self, took: Duration) -> bool {
        let now = tokio::time::Instant::now();
        let mut has_changed = false;
        loop {
            let (is_running, is_closed) = {
                let past = self.past.lock();
                (past.is_running, past.is_closed)
            };
            if is_closed {
                return false;
            }
            let pause = if has_changed { took * REST_PART } else { LOOK_PAUSE.max(took * LOOK_PART) };
            if !has_changed && !is_running {
                self.changed.notified().await;
            } else if tokio::time::timeout_at(now + pause, self.changed.notified()).await.is_err() {
                return true;
            }
            has_changed = true;
        }
    }

    async fn keep_within_budget(&self) {
        loop {
            let (states, origin) = self.processes();
            if states.is_empty() {
                return;
            }
            let why = if states.len() > MOST_STATES {
                format!("the newest {MOST_STATES} are kept")
            } else {
                match self.excess(states, origin).await {
                    Some(why) => why,
                    None => return,
                }
            };
            match self.take_oldest(why) {
                Some(oldest) => oldest.end().await,
                None => return,
            }
        }
    }

    /// The reason why there are too many states, if there are.
    async fn excess(&self, states: Vec<u32>, origin: Option<u32>) -> Option<String> {
        let budget = self.budget;
        let measured = match self.meter_in_pod() {
            Some(meter) => meter.memory_of_forks(states, origin).await,
            None => {
                let measuring = tokio::task::spawn_blocking(move || {
                    let most = most_memory_of_forks(&states);
                    if most <= budget { Some(most) } else { memory_of_forks(&states, origin) }
                });
                measuring.await.ok().flatten()
            }
        };
        match measured {
            None => Some("its memory could not be measured".to_owned()),
            Some(bytes) if bytes > budget => {
                let taken = ByteSize(bytes);
                let most = ByteSize(budget);
                tracing::info!(%taken, %most, "states of the kernel take too much memory; the oldest ends");
                Some(format!("states took {taken}, and `--undo-memory` is {most}"))
            }
            Some(_) => None,
        }
    }

    /// The processes of the states, and of the kernel that the newest one is of.
    fn processes(&self) -> (Vec<u32>, Option<u32>) {
        let past = self.past.lock();
        let all = past.cells.iter().map(|cell| &cell.before).chain([&past.now]);
        let states: Vec<&SleepingKernel> = all.filter_map(StateBefore::state).collect();
        let origin = states.last().and_then(|state| state.origin());
        (states.iter().filter_map(|state| state.process()).collect(), origin)
    }

    /// Measures states in a pod.
    fn meter_in_pod(&self) -> Option<PodMeter> {
        let past = self.past.lock();
        let all = past.cells.iter().map(|cell| &cell.before).chain([&past.now]);
        all.filter_map(StateBefore::state).find_map(SleepingKernel::meter_in_pod)
    }

    fn take_oldest(&self, why: String) -> Option<SleepingKernel> {
        let mut past = self.past.lock();
        let is_kept = |cell: &&mut PastCell| cell.before.state().is_some();
        let place = match past.cells.iter_mut().find(is_kept) {
            Some(cell) => &mut cell.before,
            None => return past.now.state().is_some().then(|| replaced(&mut past.now, why)).flatten(),
        };
        replaced(place, why)
    }
}

fn replaced(place: &mut StateBefore, why: String) -> Option<SleepingKernel> {
    std::mem::replace(place, StateBefore::Missing(why)).into_state()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_take_long_have_to_wait() {
        let mut allowance = StateAllowance::default();
        allowance.spend(MOST_TIME / 2);
        assert!(allowance.is_left());
        allowance.spend(MOST_TIME);
        assert!(!allowance.is_left());
        allowance.at -= MOST_TIME * TIME_PART / 2 + Duration::from_secs(1);
        assert!(allowance.is_left());
    }
}
