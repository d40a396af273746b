//! The grants of a session: given, counted down, ended. And what was permitted in the current cell, to propose others.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::plan::{CellPlan, GrantProposal, PlannedCall};
use super::propose::propose;
use super::{Grant, GrantLife, OutsideGrant, can_be_granted};
use crate::approval::action::{Action, AlikeActions};

/// The number of grants at a time; the oldest end before there are more.
const MOST_GRANTS: usize = 64;

/// The number of permitted calls of a cell that are remembered.
const REMEMBERED: usize = 32;

/// The size of such a call, as JSON in bytes: this outlives the memory that is held for the call itself.
const REMEMBERED_BYTES: usize = 16 * 1024;

/// The number of calls like it that the user has permitted, one by one, before a grant is proposed.
const BEFORE_PROPOSAL: usize = 3;

/// Of how many grants a question says why the call is outside.
const EXPLAINED: usize = 3;

/// The grants of a session, and of its branches.
#[derive(Debug, Default)]
pub(in crate::approval) struct SessionGrants {
    /// The number of the session, among those that share the grants.
    session: u64,
    cell: Mutex<CellState>,
    shared: Arc<SharedGrants>,
}

/// The part that branches share with their origin.
#[derive(Debug, Default)]
struct SharedGrants {
    state: Mutex<GrantTable>,
    /// Changes when a grant begins to hold.
    begun: watch::Sender<u64>,
    /// Changes also when one is used or ends, for those who show them.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct CellState {
    /// The current cell, or the time between two of them.
    number: u64,
    permitted: VecDeque<(AlikeActions, Arc<Action>)>,
    /// The calls that its code has announced; `None` until it has, or its first question is asked.
    plan: Option<CellPlan>,
}

#[derive(Debug, Default)]
struct GrantTable {
    last_id: u64,
    last_session: u64,
    given: VecDeque<HeldGrant>,
}

#[derive(Debug)]
struct HeldGrant {
    id: u64,
    /// The session in which the user answered: what holds for a cell holds there only.
    session: u64,
    grant: Arc<Grant>,
    /// The server and the tool as they were when the user answered.
    like: AlikeActions,
    left: u32,
    /// Whether the answer is recorded.
    holds: bool,
}

/// A grant that was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GivenGrant {
    /// Its number in its session, by which the audit log names it.
    pub id: u64,
    /// The number of further calls that it allows.
    pub left: u32,
    /// The grant.
    pub grant: Arc<Grant>,
}

/// A grant that permits a call, and how many calls it allows after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(in crate::approval) struct UsedGrant {
    pub(in crate::approval) id: u64,
    pub(in crate::approval) left: u32,
}

/// The effect of an answer on grants.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::approval) enum GrantEffect {
    /// It gives one, and maybe others with it.
    New(Box<GrantProposal>),
    /// A grant that was given meanwhile is the answer.
    Used(UsedGrant),
}

impl HeldGrant {
    fn is_for(&self, session: u64) -> bool {
        self.grant.life == GrantLife::Session || self.session == session
    }
}

impl GrantTable {
    /// Keeps a grant that is to hold when it is recorded.
    fn keep(&mut self, session: u64, grant: Grant, like: AlikeActions, left: u32, is_current: bool) {
        self.last_id += 1;
        // A cell that has ended has no more calls.
        if grant.life != GrantLife::Session && !is_current {
            return;
        }
        if self.given.len() == MOST_GRANTS {
            self.given.pop_front();
        }
        let id = self.last_id;
        self.given.push_back(HeldGrant { id, session, grant: Arc::new(grant), like, left, holds: false });
    }
}

impl SessionGrants {
    /// Those of a branch: what one of them uses, both have used.
    pub(in crate::approval) fn for_branch(&self) -> Self {
        let mut state = self.shared.state.lock();
        state.last_session += 1;
        let session = state.last_session;
        drop(state);
        Self { session, cell: Mutex::default(), shared: Arc::clone(&self.shared) }
    }

    /// Begins a cell, or ends it: what holds for a cell ends.
    pub(in crate::approval) fn change_cell(&self) {
        {
            let mut cell = self.cell.lock();
            cell.number += 1;
            cell.permitted.clear();
            cell.plan = None;
        }
        let of_cell =
            |given: &HeldGrant| given.grant.life != GrantLife::Session && given.session == self.session;
        self.shared.state.lock().given.retain(|given| !of_cell(given));
        self.changed();
    }

    /// The current cell.
    pub(in crate::approval) fn cell(&self) -> u64 {
        self.cell.lock().number
    }

    /// Whether code can announce the calls of the current cell: once, and before the first question.
    pub(in crate::approval) fn takes_plan(&self) -> bool {
        self.cell.lock().plan.is_none()
    }

    /// Keeps the calls that code announces for `cell`.
    pub(in crate::approval) fn announce(&self, calls: Vec<PlannedCall>, cell: u64) {
        let mut state = self.cell.lock();
        if state.number == cell && state.plan.is_none() {
            state.plan = Some(CellPlan::new(calls));
        }
    }

    /// Remembers that the user permitted a call of `cell`, once.
    pub(in crate::approval) fn note_permit(&self, action: &Arc<Action>, cell: u64) {
        if !can_be_granted(action) || !is_small(action) {
            return;
        }
        let mut state = self.cell.lock();
        if state.number == cell {
            if state.permitted.len() == REMEMBERED {
                state.permitted.pop_front();
            }
            state.permitted.push_back((AlikeActions::of(action), Arc::clone(action)));
        }
    }

    /// The grants for what the code has announced, at the first question about it; else one for what the user permits one by
    /// one, if there is one that fits it and `action`.
    pub(in crate::approval) fn propose(&self, action: &Arc<Action>) -> Option<GrantProposal> {
        if !can_be_granted(action) || !is_small(action) {
            return None;
        }
        let planned = self.cell.lock().plan.get_or_insert_default().offer(action);
        planned.or_else(|| self.propose_alike(action).map(GrantProposal::from))
    }

    fn propose_alike(&self, action: &Action) -> Option<Grant> {
        let like = AlikeActions::of(action);
        let permitted: Vec<Arc<Action>> = {
            let state = self.cell.lock();
            let alike = state.permitted.iter().filter(|(permitted, _)| *permitted == like);
            alike.map(|(_, action)| Arc::clone(action)).collect()
        };
        let with = |permitted: &[Arc<Action>]| {
            let actions: Vec<&Action> = permitted.iter().map(Arc::as_ref).chain([action]).collect();
            propose(&actions)
        };
        let latest = permitted.len().checked_sub(BEFORE_PROPOSAL)?;
        // If all have too little in common, the loop may have begun with the latest.
        with(&permitted).or_else(|| with(&permitted[latest..]))
    }

    /// Keeps a grant that the user gave when asked about `action` in `cell`, with those that came with it, and uses it once.
    /// They [hold](Self::hold) when that is recorded.
    pub(in crate::approval) fn give(
        &self,
        GrantProposal { grant, planned }: GrantProposal,
        action: &Action,
        cell: u64,
    ) -> Result<GivenGrant, OutsideGrant> {
        grant.check(action)?;
        let left = grant.count() - 1;
        let mut state = self.shared.state.lock();
        let id = state.last_id + 1;
        let is_current = self.cell() == cell;
        state.keep(self.session, grant.alone(), AlikeActions::of(action), left, is_current);
        for call in &planned {
            let like = AlikeActions::of(call.action());
            state.keep(self.session, call.grant().clone(), like, call.grant().count(), is_current);
        }
        Ok(GivenGrant { id, left, grant: Arc::new(grant) })
    }

    /// Has a grant, and those that were given with it, hold for other calls.
    pub(in crate::approval) fn hold(&self, GivenGrant { id, grant, .. }: &GivenGrant) {
        let mut state = self.shared.state.lock();
        let all = *id..=*id + grant.also().len() as u64;
        state.given.iter_mut().filter(|given| all.contains(&given.id)).for_each(|given| given.holds = true);
        drop(state);
        self.shared.begun.send_modify(|count| *count += 1);
        self.changed();
    }

    /// Uses a grant that covers `action`, if there is one. What is used is never given back.
    pub(in crate::approval) fn claim(&self, action: &Action) -> Option<UsedGrant> {
        if !can_be_granted(action) {
            return None;
        }
        let mut state = self.shared.state.lock();
        let mut like = None;
        let covers = |given: &&mut HeldGrant| {
            given.holds
                && given.is_for(self.session)
                && given.left > 0
                && given.grant.covers(action).is_ok()
                && given.like == *like.get_or_insert_with(|| AlikeActions::of(action))
        };
        let given = state.given.iter_mut().find(covers)?;
        given.left -= 1;
        let used = UsedGrant { id: given.id, left: given.left };
        drop(state);
        self.changed();
        Some(used)
    }

    /// Uses a grant that covers `action` as soon as there is one, as long as nobody has been shown the question.
    pub(in crate::approval) async fn claim_unseen(
        &self,
        action: &Action,
        handed_out: watch::Receiver<Option<Instant>>,
    ) -> UsedGrant {
        let mut begun = self.shared.begun.subscribe();
        loop {
            begun.borrow_and_update();
            if handed_out.borrow().is_some() {
                // Whoever sees it may be about to deny it.
                return std::future::pending().await;
            }
            if let Some(used) = self.claim(action) {
                return used;
            }
            // `self` owns the sender, so this cannot fail.
            begun.changed().await.ok();
        }
    }

    /// Why `action` is outside of the grants that there are for its tool.
    pub(in crate::approval) fn outside(&self, action: &Action) -> Option<String> {
        if !can_be_granted(action) {
            return None;
        }
        let state = self.shared.state.lock();
        let like = AlikeActions::of(action);
        let why = |given: &HeldGrant| {
            let id = given.id;
            if given.like != like {
                return format!(
                    "Outside of grant {id}: the server, or what it says of the tool, has changed"
                );
            }
            match given.grant.covers(action) {
                Err(why) => format!("Outside of grant {id}: {why}"),
                Ok(()) => format!("Grant {id} is used up: it was for {}", calls(given.grant.count())),
            }
        };
        let is_of_tool = |given: &&HeldGrant| {
            given.holds
                && given.is_for(self.session)
                && (&given.grant.server_name, &given.grant.tool_name)
                    == (&action.server_name, &action.tool_name)
        };
        let reasons: Vec<_> = state.given.iter().rev().filter(is_of_tool).take(EXPLAINED).map(why).collect();
        (!reasons.is_empty()).then(|| reasons.join("\n"))
    }

    /// The grants that hold.
    pub(in crate::approval) fn list(&self) -> Vec<GivenGrant> {
        let state = self.shared.state.lock();
        let holding = state.given.iter().filter(|given| given.holds && given.is_for(self.session));
        let given = |given: &HeldGrant| GivenGrant {
            id: given.id,
            left: given.left,
            grant: Arc::clone(&given.grant),
        };
        holding.map(given).collect()
    }

    /// Ends a grant. Returns whether there was one.
    pub(in crate::approval) fn revoke(&self, id: u64) -> bool {
        let mut state = self.shared.state.lock();
        let before = state.given.len();
        state.given.retain(|given| given.id != id);
        let is_revoked = state.given.len() < before;
        drop(state);
        self.changed();
        is_revoked
    }

    /// Changes when [`list`](Self::list) may have changed.
    pub(in crate::approval) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    fn changed(&self) {
        self.shared.changes.send_modify(|count| *count += 1);
    }
}

fn calls(count: u32) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

/// Whether a call may be remembered.
fn is_small(action: &Action) -> bool {
    let mut room = [0; REMEMBERED_BYTES];
    serde_json::to_writer(&mut room[..], &action.tool_args).is_ok()
}

#[cfg(test)]
mod tests;
