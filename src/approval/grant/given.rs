//! The grants of a session: given, counted down, ended. And what was permitted in the current cell, to propose others.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

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
    /// It gives one.
    New(Box<Grant>),
    /// A grant that was given meanwhile is the answer.
    Used(UsedGrant),
}

impl HeldGrant {
    fn is_for(&self, session: u64) -> bool {
        self.grant.life == GrantLife::Session || self.session == session
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

    /// A grant for what the user permits one by one, if there is one that fits it and `action`.
    pub(in crate::approval) fn propose(&self, action: &Action) -> Option<Grant> {
        if !can_be_granted(action) || !is_small(action) {
            return None;
        }
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

    /// Keeps a grant that the user gave when asked about `action` in `cell`, and uses it once. It [holds](Self::hold) when
    /// that is recorded.
    pub(in crate::approval) fn give(
        &self,
        grant: Grant,
        action: &Action,
        cell: u64,
    ) -> Result<GivenGrant, OutsideGrant> {
        grant.check(action)?;
        let mut state = self.shared.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        let left = grant.count() - 1;
        let grant = Arc::new(grant);
        // A cell that has ended has no more calls.
        if grant.life == GrantLife::Session || self.cell() == cell {
            if state.given.len() == MOST_GRANTS {
                state.given.pop_front();
            }
            let like = AlikeActions::of(action);
            let kept = Arc::clone(&grant);
            state.given.push_back(HeldGrant {
                id,
                session: self.session,
                grant: kept,
                like,
                left,
                holds: false,
            });
        }
        Ok(GivenGrant { id, left, grant })
    }

    /// Has a grant hold for other calls.
    pub(in crate::approval) fn hold(&self, id: u64) {
        if let Some(given) = self.shared.state.lock().given.iter_mut().find(|given| given.id == id) {
            given.holds = true;
        }
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
mod tests {
    use serde_json::json;

    use super::super::tests::{action, grant};
    use super::*;

    fn send(number: u32) -> Arc<Action> {
        Arc::new(action("send", json!({"number": number})))
    }

    fn given(count: u32) -> SessionGrants {
        let grants = SessionGrants::default();
        let grant = grant(json!({"number": {"between": {"min": 1, "max": 100}}}), count);
        let given = grants.give(grant, &send(1), grants.cell()).unwrap();
        assert_eq!((given.id, given.left), (1, count - 1));
        assert_eq!(grants.claim(&send(2)), None, "it is not recorded yet");
        grants.hold(given.id);
        grants
    }

    #[test]
    fn a_grant_is_counted_down() {
        let grants = given(3);
        assert_eq!(grants.claim(&send(2)), Some(UsedGrant { id: 1, left: 1 }));
        assert_eq!(grants.claim(&send(101)), None);
        assert_eq!(grants.list()[0].left, 1);
        assert_eq!(grants.claim(&send(2)), Some(UsedGrant { id: 1, left: 0 }));
        assert_eq!(grants.claim(&send(2)), None);
        assert_eq!(grants.outside(&send(2)).unwrap(), "Grant 1 is used up: it was for 3 calls");
    }

    #[test]
    fn no_two_threads_get_the_last_call() {
        let grants = given(10_000);
        let claimed: usize = std::thread::scope(|scope| {
            let claim = || (0..5_000).filter(|_| grants.claim(&send(5)).is_some()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(claimed, 9_999);
    }

    #[test]
    fn a_grant_ends_with_its_cell_or_its_session() {
        let grants = given(3);
        let for_session = grant(json!({"number": {"equal": 200}}), 5).for_session();
        let id = grants.give(for_session, &send(200), grants.cell()).unwrap().id;
        grants.hold(id);
        grants.change_cell();
        assert_eq!(grants.claim(&send(2)), None);
        assert_eq!(grants.claim(&send(200)), Some(UsedGrant { id: 2, left: 3 }));
        assert!(grants.revoke(2) && !grants.revoke(2) && grants.list().is_empty());
        assert_eq!(grants.claim(&send(200)), None);
    }

    #[test]
    fn an_answer_about_an_earlier_cell_gives_nothing_to_the_next() {
        let grants = SessionGrants::default();
        let cell = grants.cell();
        grants.change_cell();
        let given = grants.give(grant(json!({"number": {"equal": 1}}), 5), &send(1), cell).unwrap();
        grants.hold(given.id);
        assert_eq!((grants.claim(&send(1)), grants.list()), (None, Vec::new()));
        (0..4).for_each(|number| grants.note_permit(&send(number), cell));
        assert_eq!(grants.propose(&send(5)), None);
    }

    #[test]
    fn a_changed_server_is_outside() {
        let grants = given(3);
        for changed in [
            Action { definition: Some("2".to_owned()), ..Action::clone(&send(2)) },
            Action {
                target: crate::approval::action::Target::Command("other".to_owned()),
                ..Action::clone(&send(2))
            },
            Action {
                annotations: Some(crate::approval::action::ToolAnnotations::default()),
                ..Action::clone(&send(2))
            },
        ] {
            assert_eq!(grants.claim(&changed), None);
            let outside = grants.outside(&changed).unwrap();
            assert_eq!(outside, "Outside of grant 1: the server, or what it says of the tool, has changed");
        }
        let other = Action { server_name: "other".to_owned(), ..Action::clone(&send(2)) };
        assert_eq!((grants.claim(&other), grants.outside(&other)), (None, None));
    }

    #[test]
    fn two_grants_are_two_grants() {
        let grants = given(2);
        let second = grant(json!({"number": {"between": {"min": 50, "max": 200}}}), 2);
        let id = grants.give(second, &send(60), grants.cell()).unwrap().id;
        grants.hold(id);
        let used: Vec<_> = [60, 60, 60].map(|number| grants.claim(&send(number)).map(|used| used.id)).into();
        assert_eq!(used, [Some(1), Some(2), None]);
        let outside = grants.outside(&send(10)).unwrap();
        assert_eq!(
            outside,
            "Outside of grant 2: number=10 is not a number from 50 to 200\nGrant 1 is used up: it was for 2 calls"
        );
    }

    #[test]
    fn a_grant_is_proposed_after_three_like_permits() {
        let grants = SessionGrants::default();
        for number in 1..4 {
            assert_eq!(grants.propose(&send(number)), None);
            grants.note_permit(&send(number), grants.cell());
        }
        let proposed = grants.propose(&send(4)).unwrap();
        assert!(proposed.check(&send(37)).is_ok(), "{proposed}");
        let changed = Action { definition: Some("2".to_owned()), ..Action::clone(&send(4)) };
        assert_eq!(grants.propose(&changed), None);
        assert_eq!(grants.propose(&action("delete", json!({"number": 4}))), None);
        grants.change_cell();
        assert_eq!(grants.propose(&send(4)), None);
    }

    #[test]
    fn what_is_large_is_not_remembered() {
        let grants = SessionGrants::default();
        let large = Arc::new(action("send", json!({"body": "x ".repeat(10_000)})));
        (0..4).for_each(|_| grants.note_permit(&large, grants.cell()));
        assert!(grants.cell.lock().permitted.is_empty());
        (0..100).for_each(|_| grants.note_permit(&send(1), grants.cell()));
        assert_eq!(grants.cell.lock().permitted.len(), REMEMBERED);
    }

    #[test]
    fn there_are_so_many_grants_at_a_time() {
        let grants = SessionGrants::default();
        for number in 0..100 {
            let one = grant(json!({"number": {"equal": number}}), 5);
            let id = grants.give(one, &send(number), grants.cell()).unwrap().id;
            grants.hold(id);
        }
        assert_eq!(grants.list().len(), MOST_GRANTS);
        assert_eq!((grants.claim(&send(0)), grants.claim(&send(99)).map(|used| used.id)), (None, Some(100)));
    }

    #[test]
    fn a_grant_counts_for_a_session_and_its_branch_together() {
        let of_cell = given(3);
        assert_eq!(of_cell.for_branch().claim(&send(2)), None, "it is for a cell of the origin");
        let grant = grant(json!({"number": {"between": {"min": 1, "max": 100}}}), 3);
        let origin = SessionGrants::default();
        let grant = Grant { life: GrantLife::Session, ..grant };
        let given = origin.give(grant, &send(1), origin.cell()).unwrap();
        origin.hold(given.id);
        let branch = origin.for_branch();
        branch.change_cell();
        assert!(branch.claim(&send(2)).is_some());
        assert!(origin.claim(&send(3)).is_some());
        assert_eq!((branch.claim(&send(4)), origin.claim(&send(4))), (None, None));
        branch.revoke(given.id);
        assert!(origin.list().is_empty());
    }
}
