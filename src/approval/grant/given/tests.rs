//! Grants are counted, end, and are never given twice.

use serde_json::json;

use super::super::tests::{action, grant};
use super::*;

fn send(number: u32) -> Arc<Action> {
    Arc::new(action("send", json!({"number": number})))
}

fn given(count: u32) -> SessionGrants {
    let grants = SessionGrants::default();
    let grant = grant(json!({"number": {"between": {"min": 1, "max": 100}}}), count);
    let given = grants.give(grant.into(), &send(1), grants.cell()).unwrap();
    assert_eq!((given.id, given.left), (1, count - 1));
    assert_eq!(grants.claim(&send(2)), None, "it is not recorded yet");
    grants.hold(&given);
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
    let given = grants.give(for_session.into(), &send(200), grants.cell()).unwrap();
    grants.hold(&given);
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
    let given = grants.give(grant(json!({"number": {"equal": 1}}), 5).into(), &send(1), cell).unwrap();
    grants.hold(&given);
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
    let second = grants.give(second.into(), &send(60), grants.cell()).unwrap();
    grants.hold(&second);
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
    let proposed = grants.propose(&send(4)).unwrap().grant;
    assert!(proposed.check(&send(37)).is_ok(), "{proposed}");
    let changed = Arc::new(Action { definition: Some("2".to_owned()), ..Action::clone(&send(4)) });
    assert_eq!(grants.propose(&changed), None);
    assert_eq!(grants.propose(&Arc::new(action("delete", json!({"number": 4})))), None);
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
        let given = grants.give(one.into(), &send(number), grants.cell()).unwrap();
        grants.hold(&given);
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
    let given = origin.give(grant.into(), &send(1), origin.cell()).unwrap();
    origin.hold(&given);
    let branch = origin.for_branch();
    branch.change_cell();
    assert!(branch.claim(&send(2)).is_some());
    assert!(origin.claim(&send(3)).is_some());
    assert_eq!((branch.claim(&send(4)), origin.claim(&send(4))), (None, None));
    branch.revoke(given.id);
    assert!(origin.list().is_empty());
}

/// Grants in a cell whose code has announced calls with these numbers, ten of each.
fn announced(numbers: &[u32]) -> SessionGrants {
    let call = |number: &u32| {
        let grant = grant(json!({"number": {"equal": number}}), 10);
        PlannedCall::new(grant, Action::clone(&send(*number))).unwrap()
    };
    let grants = SessionGrants::default();
    grants.announce(numbers.iter().map(call).collect(), grants.cell());
    grants
}

#[test]
fn announced_calls_are_granted_together_and_counted_apart() {
    let grants = announced(&[1, 2]);
    let asked = send(2);
    let proposal = grants.propose(&asked).unwrap();
    let given = grants.give(proposal, &asked, grants.cell()).unwrap();
    assert_eq!((given.id, given.left, given.grant.total()), (1, 9, 20));
    assert_eq!(grants.claim(&send(1)), None, "it is not recorded yet");
    grants.hold(&given);
    assert_eq!(grants.claim(&send(1)), Some(UsedGrant { id: 2, left: 9 }));
    assert_eq!(grants.claim(&send(2)), Some(UsedGrant { id: 1, left: 8 }));
    assert_eq!(grants.claim(&send(3)), None);
    let shown: Vec<_> = grants.list().iter().map(|given| given.grant.to_string()).collect();
    assert_eq!(shown, ["mail.send(number=2)", "mail.send(number=1)"]);
    grants.change_cell();
    assert!(grants.list().is_empty());
}

#[test]
fn an_answer_that_comes_after_the_cell_gives_none_of_them() {
    let grants = announced(&[1, 2]);
    let (asked, cell) = (send(1), grants.cell());
    let mut proposal = grants.propose(&asked).unwrap();
    grants.change_cell();
    // Not even if an application has its own one hold longer.
    proposal.grant.life = GrantLife::Session;
    let given = grants.give(proposal, &asked, cell).unwrap();
    grants.hold(&given);
    let ids: Vec<_> = grants.list().iter().map(|given| given.id).collect();
    assert_eq!((ids, grants.claim(&send(2))), (vec![1], None));
}

#[test]
fn a_cell_has_one_plan_from_before_its_first_question() {
    let call =
        || PlannedCall::new(grant(json!({"number": {"equal": 5}}), 10), Action::clone(&send(5))).unwrap();
    let grants = announced(&[1, 2]);
    assert!(!grants.takes_plan());
    grants.announce(vec![call()], grants.cell());
    assert_eq!(grants.propose(&send(5)), None);
    grants.change_cell();
    grants.announce(vec![call()], grants.cell() - 1);
    assert_eq!(grants.propose(&send(5)), None);
    // That was its first question.
    grants.announce(vec![call()], grants.cell());
    assert_eq!(grants.propose(&send(5)), None);
    grants.change_cell();
    grants.announce(vec![call()], grants.cell());
    assert!(grants.propose(&send(5)).is_some());
}

#[test]
fn what_has_been_read_since_the_announcement_ends_nothing_but_what_is_read_after_the_answer() {
    use crate::approval::provenance::{Label, Provenance};
    let having_read = |number, labels: &[Label]| {
        let read = labels.iter().map(|label| (*label, std::collections::BTreeSet::new())).collect();
        let known = Some(Arc::new(Provenance { read, ..Provenance::default() }));
        Arc::new(Action { known, ..Action::clone(&send(number)) })
    };
    let call = |number| {
        let grant = grant(json!({"number": {"equal": number}}), 10);
        PlannedCall::new(grant, Action::clone(&having_read(number, &[]))).unwrap()
    };
    let grants = SessionGrants::default();
    grants.announce(vec![call(1), call(2)], grants.cell());
    let asked = having_read(1, &[Label::Confidential]);
    let proposal = grants.propose(&asked).unwrap();
    let given = grants.give(proposal, &asked, grants.cell()).unwrap();
    grants.hold(&given);
    assert!(grants.claim(&having_read(2, &[Label::Confidential])).is_some());
    assert_eq!(grants.claim(&having_read(2, &[Label::Confidential, Label::Untrusted])), None);
}
