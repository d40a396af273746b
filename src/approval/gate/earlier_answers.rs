//! The gate's use of earlier answers: standing ones, and grants.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use super::Gate;
use crate::approval::action::Action;
use crate::approval::decision::{DecidedBy, DenialReason};
use crate::approval::grant::{GivenGrant, GrantEffect};
use crate::approval::provenance::Label;
use crate::approval::question::UserAnswer;

impl Gate {
    /// Off the runtime's threads, since it may read a file.
    pub(super) async fn earlier_answer(&self, action: &Arc<Action>) -> Option<UserAnswer> {
        let standing = Arc::clone(&self.standing);
        let action = Arc::clone(action);
        let found = tokio::task::spawn_blocking(move || standing.find(&action)).await;
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "looking for an earlier answer has failed, so it is asked again");
            None
        })
    }

    /// The action; what has changed in its tool is shown if an earlier answer was about the tool as it was.
    pub(super) async fn with_due_changes(&self, action: &Arc<Action>) -> Arc<Action> {
        if action.changes.is_none() {
            return Arc::clone(action);
        }
        let standing = Arc::clone(&self.standing);
        let asked = Arc::clone(action);
        match tokio::task::spawn_blocking(move || standing.had_earlier(&asked)).await {
            Ok(false) => Arc::new(Action { changes: None, ..Action::clone(action) }),
            Ok(true) | Err(_) => Arc::clone(action),
        }
    }

    /// Decides by an answer, which is kept if it holds for more than this action.
    pub(super) async fn keep(
        &self,
        action: &Arc<Action>,
        answer: UserAnswer,
        label: Option<Label>,
    ) -> (Result<(), DenialReason>, DecidedBy) {
        if matches!(answer, UserAnswer::No | UserAnswer::Grant) {
            return (Err(DenialReason::Rejected { call: action.name() }), DecidedBy::Answer(UserAnswer::No));
        }
        let kept = self.remember(action, answer, label).await;
        let not_saved =
            |error: io::Error| DenialReason::NotSaved { call: action.name(), why: error.to_string() };
        (kept.map_err(not_saved), DecidedBy::Answer(answer))
    }

    /// Remembers an answer that holds for more than this action, and the label that it gives to a server. Off the runtime's
    /// threads, since it may wait for another process and write a file.
    async fn remember(
        &self,
        action: &Arc<Action>,
        answer: UserAnswer,
        label: Option<Label>,
    ) -> io::Result<()> {
        let labelled = label.and_then(|label| Some((action.registers()?.to_owned(), label)));
        if answer == UserAnswer::Once && labelled.is_none() {
            return Ok(());
        }
        let standing = Arc::clone(&self.standing);
        let action = Arc::clone(action);
        let given = labelled.clone();
        tokio::task::spawn_blocking(move || {
            if let Some((server, label)) = given {
                standing.label(&server, Some(label))?;
            }
            standing.remember(&action, answer)
        })
        .await??;
        if let (Some((server, label)), Some(memory)) = (labelled, self.memory())
            && self.policy.labels().named(&server).is_none()
        {
            memory.label(&server, label);
        }
        Ok(())
    }

    /// Decides by an answer about `action` that gives a grant or uses one; it was asked about in `cell`.
    pub(super) fn grant(
        &self,
        granting: GrantEffect,
        action: &Arc<Action>,
        cell: u64,
    ) -> (Result<(), DenialReason>, DecidedBy) {
        match granting {
            GrantEffect::Used(used) => (Ok(()), DecidedBy::Grant(used)),
            GrantEffect::New(grant) => match self.grants.give(*grant, action, cell) {
                Ok(given) => (Ok(()), DecidedBy::Granted(given)),
                Err(_outside) => {
                    (Err(DenialReason::Rejected { call: action.name() }), DecidedBy::Answer(UserAnswer::No))
                }
            },
        }
    }

    /// The grants that hold.
    pub(crate) fn grants(&self) -> Vec<GivenGrant> {
        self.grants.list()
    }

    /// Changes when these may have changed.
    pub(crate) fn changes_of_grants(&self) -> watch::Receiver<u64> {
        self.grants.changes()
    }

    /// Ends a grant. Returns whether there was one.
    pub(crate) fn revoke_grant(&self, id: u64) -> bool {
        let is_revoked = self.grants.revoke(id);
        if is_revoked {
            self.audit.grant_revoked(id);
        }
        is_revoked
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::approval::audit::{Audit, LogBegin, LogSettings, SessionFace};
    use crate::approval::grant::Grant;
    use crate::approval::grant::tests::action;
    use crate::approval::policy::{ApprovalEffect, ApprovalPolicy};
    use crate::approval::question::{ApprovalQueue, ApprovalRequest, Approver};
    use crate::approval::standing::StandingAnswers;
    use crate::approval::{AuditContents, GrantPattern};

    /// A gate in a cell, and the requests of its user.
    struct Cell {
        gate: Arc<Gate>,
        queue: Arc<ApprovalQueue>,
        requests: mpsc::Receiver<ApprovalRequest>,
    }

    impl Cell {
        fn new(policy: ApprovalPolicy, audit: Audit) -> Self {
            let gate = Gate::new(policy, StandingAnswers::default(), Duration::from_secs(60), audit);
            let (queue, requests) = ApprovalQueue::new();
            let cell = Self { gate: Arc::new(gate), queue, requests };
            cell.begin();
            cell
        }

        fn asking() -> Self {
            Self::new(ApprovalPolicy::always(ApprovalEffect::Ask), Audit::off())
        }

        fn begin(&self) {
            self.gate.end_cell();
            self.gate.set_approver(Approver::User(Arc::clone(&self.queue)));
        }

        /// Decides about a call; a question is answered by `answer`.
        async fn send(&mut self, to: &str, answer: impl FnOnce(ApprovalRequest)) -> Result<(), DenialReason> {
            self.call(send(to), answer).await
        }

        async fn call(
            &mut self,
            action: Action,
            answer: impl FnOnce(ApprovalRequest),
        ) -> Result<(), DenialReason> {
            let gate = Arc::clone(&self.gate);
            let mut deciding = std::pin::pin!(gate.decide_for_code(action));
            let decided = tokio::select! {
                biased;
                decided = &mut deciding => decided,
                request = self.requests.recv() => {
                    let request = request.unwrap();
                    request.hand_out();
                    answer(request);
                    deciding.await
                }
            };
            decided.map(|(_, on_record)| on_record.leave_to_the_kernel())
        }

        /// Has the user give a grant for 3 calls to addresses at `a.org`.
        async fn with_grant() -> Self {
            let mut cell = Self::asking();
            cell.send("x@a.org", |request| assert_eq!(request_grant(request, 3), Ok(true))).await.unwrap();
            cell
        }
    }

    fn send(to: &str) -> Action {
        action("send", json!({"to": to, "subject": "Hi"}))
    }

    fn request_grant(request: ApprovalRequest, count: u32) -> Result<bool, crate::approval::OutsideGrant> {
        let grant = Grant::of(&request, count).argument("to", GrantPattern::Domain("a.org".to_owned()));
        request.grant(grant)
    }

    fn unasked(request: ApprovalRequest) {
        panic!("asked: {request}");
    }

    fn reject(request: ApprovalRequest) {
        request.reject();
    }

    #[tokio::test(start_paused = true)]
    async fn thirty_seven_mails_take_four_questions() {
        let mut cell = Cell::asking();
        let mut asked = 0;
        for number in 1..=37 {
            let answer = |request: ApprovalRequest| {
                asked += 1;
                assert_eq!(request.proposed_grant().is_some(), asked == 4);
                match request.proposed_grant().cloned() {
                    Some(grant) => assert_eq!(request.grant(grant), Ok(true)),
                    None => assert!(request.accept()),
                }
            };
            cell.send(&format!("person{number}@a.org"), answer).await.unwrap();
        }
        assert_eq!(asked, 4);
        let grants = cell.gate.grants();
        assert_eq!((grants.len(), grants[0].left), (1, 16));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_call_outside_asks_and_says_why() {
        let mut cell = Cell::with_grant().await;
        let outside = |why: &'static str| {
            move |request: ApprovalRequest| {
                assert_eq!(request.outside_of_grants().as_deref(), Some(why));
                request.reject();
            }
        };
        let why = "Outside of grant 1: to='x@b.org' is not an address at a.org";
        cell.send("x@b.org", outside(why)).await.unwrap_err();
        cell.send("y@a.org", unasked).await.unwrap();
        cell.send("z@a.org", unasked).await.unwrap();
        cell.send("z@a.org", outside("Grant 1 is used up: it was for 3 calls")).await.unwrap_err();
        // What was rejected gives nothing.
        cell.send("z@a.org", reject).await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_does_not_cover_its_own_call_permits_nothing() {
        let mut cell = Cell::asking();
        let grant_of_another = |request: ApprovalRequest| {
            let grant = Grant::of(&request, 5).argument("to", GrantPattern::Domain("b.org".to_owned()));
            assert!(request.grant(grant).unwrap_err().to_string().contains("to='x@a.org' is not"));
        };
        let denied = cell.send("x@a.org", grant_of_another).await.unwrap_err();
        assert!(matches!(denied, DenialReason::Rejected { .. }));
        let no_pattern = |request: ApprovalRequest| {
            let grant = Grant::of(&request, 5).argument("to", GrantPattern::Domain("org".to_owned()));
            assert!(request.grant(grant).unwrap_err().to_string().contains("pattern of to is none"));
        };
        cell.send("x@a.org", no_pattern).await.unwrap_err();
        assert!(cell.gate.grants().is_empty());
        // As at prompts, if nothing is proposed.
        cell.send("x@a.org", |request| assert!(request.answer(UserAnswer::Grant))).await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_of_a_cell_ends_with_it_and_one_of_a_session_does_not() {
        let mut cell = Cell::with_grant().await;
        cell.begin();
        cell.send("y@a.org", |request| {
            assert_eq!(request.outside_of_grants(), None);
            let grant = Grant::of(&request, 3).for_session();
            assert_eq!(request.grant(grant), Ok(true));
        })
        .await
        .unwrap();
        cell.begin();
        cell.send("y@a.org", unasked).await.unwrap();
        // As a standing answer, also where nobody can be asked.
        cell.gate.end_cell();
        cell.send("y@a.org", unasked).await.unwrap();
        cell.send("y@a.org", unasked).await.unwrap_err();
        cell.begin();
        assert!(cell.gate.revoke_grant(2) && !cell.gate.revoke_grant(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_of_the_policy_always_wins() {
        let policy =
            "[[rule]]\narguments = [{ pointer = '/to', one_of = ['secret@a.org'] }]\neffect = 'deny'";
        let mut cell = Cell::new(ApprovalPolicy::parse(policy).unwrap(), Audit::off());
        cell.send("x@a.org", |request| drop(request_grant(request, 9))).await.unwrap();
        cell.send("y@a.org", unasked).await.unwrap();
        let denied = cell.send("secret@a.org", unasked).await.unwrap_err();
        assert!(matches!(denied, DenialReason::Policy { .. }));
        assert_eq!(cell.gate.grants()[0].left, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_anyway_uses_no_grant() {
        let mut cell = Cell::with_grant().await;
        cell.gate.decide(send("y@a.org"), &Approver::Consent).await.unwrap().1.leave_to_the_kernel();
        assert_eq!(cell.gate.grants()[0].left, 2);
        cell.send("y@b.org", |request| assert!(request.accept_for_session())).await.unwrap();
        cell.send("y@a.org", unasked).await.unwrap();
        assert_eq!(cell.gate.grants()[0].left, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_changes_in_the_middle_of_a_loop_asks_again() {
        let mut cell = Cell::with_grant().await;
        for changed in [
            Action { definition: Some("2".to_owned()), ..send("y@a.org") },
            Action {
                target: crate::approval::action::Target::Command("other".to_owned()),
                ..send("y@a.org")
            },
            Action { server_name: "mail2".to_owned(), ..send("y@a.org") },
            Action { tool_name: "send_all".to_owned(), ..send("y@a.org") },
        ] {
            let mut was_asked = false;
            let answer = |request: ApprovalRequest| {
                was_asked = true;
                request.reject();
            };
            cell.call(changed, answer).await.unwrap_err();
            assert!(was_asked);
        }
        assert_eq!(cell.gate.grants()[0].left, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_unseen_are_decided_by_a_grant_that_is_given_meanwhile() {
        let Cell { gate, mut requests, .. } = Cell::asking();
        let calls: Vec<_> = (0..5)
            .map(|number| {
                let (gate, to) = (Arc::clone(&gate), format!("p{number}@a.org"));
                tokio::spawn(async move {
                    let decided = gate.decide_for_code(send(&to)).await;
                    decided.map(|(_, on_record)| on_record.leave_to_the_kernel()).is_ok()
                })
            })
            .collect();
        // All of them wait before there is a grant.
        let mut unseen = Vec::new();
        for _ in 0..5 {
            unseen.push(requests.recv().await.unwrap());
        }
        let (first, seen) = (unseen.remove(0), unseen.remove(0));
        first.hand_out();
        seen.hand_out();
        assert_eq!(request_grant(first, 4), Ok(true));
        for request in &mut unseen {
            request.closed().await;
        }
        // It was shown, so its user decides.
        assert!(!seen.is_closed() && seen.reject());
        let mut permitted = 0;
        for call in calls {
            permitted += usize::from(call.await.unwrap());
        }
        assert_eq!((permitted, gate.grants()[0].left), (4, 0));
    }

    #[tokio::test]
    async fn a_withdrawn_call_does_not_give_its_count_back() {
        let directory = tempfile::tempdir().unwrap();
        let mut cell = Cell::new(ApprovalPolicy::always(ApprovalEffect::Ask), log(directory.path()));
        cell.send("x@a.org", |request| drop(request_grant(request, 3))).await.unwrap();
        // It has used the grant, and waits for its record.
        let mut deciding = Box::pin(cell.gate.decide_for_code(send("y@a.org")));
        while cell.gate.grants()[0].left == 2 {
            if futures::poll!(&mut deciding).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(deciding);
        assert_eq!(cell.gate.grants()[0].left, 1);
    }

    #[tokio::test]
    async fn a_grant_that_cannot_be_recorded_does_not_hold() {
        let directory = tempfile::tempdir().unwrap();
        let audit = log(directory.path());
        let mut cell = Cell::new(ApprovalPolicy::always(ApprovalEffect::Ask), audit.clone());
        audit.close().await;
        let denied = cell.send("x@a.org", |request| assert_eq!(request_grant(request, 3), Ok(true))).await;
        assert!(matches!(denied, Err(DenialReason::Unrecorded { .. })), "{denied:?}");
        assert!(cell.gate.grants().is_empty());
        cell.send("x@a.org", reject).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_grant_and_its_uses_are_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let audit = log(directory.path());
        let mut cell = Cell::new(ApprovalPolicy::always(ApprovalEffect::Ask), audit.clone());
        cell.send("x@a.org", |request| assert_eq!(request_grant(request, 3), Ok(true))).await.unwrap();
        cell.send("y@a.org", unasked).await.unwrap();
        assert!(cell.gate.revoke_grant(1) && !cell.gate.revoke_grant(1));
        audit.close().await;
        let text = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert_eq!(text.matches(r#""event":"grant_revoked","grant":1"#).count(), 1);
        let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let decisions: Vec<_> = records.filter(|record| record["event"] == "decision").collect();
        assert_eq!((decisions[0]["by"].as_str(), decisions[0].get("earlier")), (Some("grant"), None));
        assert_eq!(decisions[0]["via"], "rust_library");
        assert_eq!(
            decisions[0]["grant"],
            json!({
                "id": 1, "left": 2,
                "grant": {
                    "server_name": "mail", "tool_name": "send",
                    "arguments": {"subject": {"equal": "Hi"}, "to": {"domain": "a.org"}},
                    "count": 3, "life": "cell",
                },
            })
        );
        assert_eq!((&decisions[1]["by"], &decisions[1]["earlier"]), (&json!("grant"), &json!(true)));
        assert_eq!(decisions[1]["grant"], json!({"id": 1, "left": 1}));
        let mut review =
            crate::approval::AuditReview::new(crate::approval::review::AuditFilter::default(), &[]).unwrap();
        review.read("log", text.as_bytes()).unwrap();
        let report = review.finish().to_string();
        assert!(report.contains("1 grant (remembered), 1 grant by rust_library"), "{report}");
    }

    fn log(directory: &std::path::Path) -> Audit {
        let settings = LogSettings {
            path: directory.join("log"),
            contents: AuditContents::Arguments,
            max_bytes: 1024 * 1024,
            kept_files: 1,
            workspace: directory.join("workspace"),
            face: SessionFace::RustLibrary,
            begin: LogBegin::AtOnce,
        };
        Audit::open(settings, crate::ground::env::Variables::default().redactor().clone()).unwrap()
    }
}
