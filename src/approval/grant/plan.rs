//! A cell's plan: the calls that its code announces before it runs, each as a grant, which the first question about one of them
//! proposes together.
//!
//! The code's word is not trusted: a plan decides nothing. A user reads each grant in the words in which it is checked, so one that
//! could not be shown whole is left out, and so is one that is wider than what ipybox itself would propose.

use std::sync::{Arc, Weak};

use super::propose::{SHOWN_CHARS, may_be_announced};
use super::{Grant, GrantLife, GrantPattern, MOST_ARGUMENTS, can_be_granted};
use crate::approval::action::{Action, as_python};
use crate::approval::provenance::Provenance;

/// The most calls of one kind that a plan may have.
const MOST_COUNT: u32 = 1_000;

/// A call that code has announced, maybe many times.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::approval) struct PlannedCall {
    grant: Grant,
    /// The call with its fixed arguments: its server and its tool as they are now.
    action: Action,
}

/// The announced calls of a cell.
#[derive(Debug, Default)]
pub(super) struct CellPlan {
    calls: Vec<PlannedCall>,
    /// The action whose question proposes them.
    offered: Option<Weak<Action>>,
}

/// A grant that a question proposes, and those for other calls that come with it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::approval) struct GrantProposal {
    pub(in crate::approval) grant: Grant,
    /// The calls of `grant.also()`.
    pub(in crate::approval) planned: Vec<PlannedCall>,
}

impl PlannedCall {
    /// Calls that `grant` covers, of the tool of `action`; `None` if a user should be asked about each.
    pub(in crate::approval) fn new(grant: Grant, action: Action) -> Option<Self> {
        let is_read_only = action.annotations.is_some_and(|hints| hints.read_only == Some(true));
        let is_shown = |(name, pattern): (&String, &GrantPattern)| {
            as_python::is_shown_whole(name)
                && pattern.fault().is_none()
                && pattern.is_shown_whole()
                && may_be_announced(name, pattern, is_read_only)
        };
        let is_plain = grant.also.is_empty()
            && grant.life == GrantLife::Cell
            && grant.count() <= MOST_COUNT
            && grant.arguments.len() <= MOST_ARGUMENTS
            && (&grant.server_name, &grant.tool_name) == (&action.server_name, &action.tool_name);
        // About data that comes from elsewhere its question says more than a list of calls could.
        let is_own = action.known.as_ref().is_none_or(|known| known.origins.is_empty());
        let may_be = is_plain && is_own && can_be_granted(&action) && grant.arguments.iter().all(is_shown);
        may_be.then_some(Self { grant, action })
    }

    pub(in crate::approval) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The call with its fixed arguments.
    pub(in crate::approval) fn action(&self) -> &Action {
        &self.action
    }

    /// Whether `action` is one of these calls.
    fn is_of(&self, action: &Action) -> bool {
        let Action { target, definition, annotations, .. } = &self.action;
        (target, definition, annotations) == (&action.target, &action.definition, &action.annotations)
            && self.grant.covers(action).is_ok()
    }

    /// The call as if it were made with what the session has read when `asked` was.
    fn with_read_of(&self, asked: &Action) -> Self {
        let read = asked.known.as_ref().map(|known| known.read.clone()).unwrap_or_default();
        let known = self.action.known.as_deref().map(|known| Arc::new(Provenance { read, ..known.clone() }));
        Self { grant: self.grant.clone(), action: Action { known, ..self.action.clone() } }
    }
}

impl CellPlan {
    pub(super) fn new(calls: Vec<PlannedCall>) -> Self {
        Self { calls, offered: None }
    }

    /// The grants for all calls, if `action` is one of them and no question has proposed them before; `None` if there is only
    /// this call.
    pub(super) fn offer(&mut self, action: &Arc<Action>) -> Option<GrantProposal> {
        if self.offered.as_ref().is_some_and(|offered| offered.as_ptr() != Arc::as_ptr(action)) {
            return None;
        }
        let own = self.calls.iter().position(|call| call.is_of(action))?;
        let mut planned: Vec<_> = self.calls.iter().map(|call| call.with_read_of(action)).collect();
        let PlannedCall { mut grant, .. } = planned.remove(own);
        grant.also = planned.iter().map(|call| call.grant.clone()).collect();
        let is_readable = grant.to_string().chars().count() <= SHOWN_CHARS;
        if grant.total() < 2 || !is_readable {
            return None;
        }
        self.offered = Some(Arc::downgrade(action));
        Some(GrantProposal { grant, planned })
    }
}

impl From<Grant> for GrantProposal {
    fn from(grant: Grant) -> Self {
        Self { grant, planned: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::super::tests::action;
    use super::*;
    use crate::approval::action::ToolAnnotations;

    fn grant(tool: &str, arguments: &Value, count: u32) -> Grant {
        let grant = json!({
            "server_name": "mail", "tool_name": tool, "arguments": arguments, "count": count, "life": "cell"
        });
        serde_json::from_value(grant).unwrap()
    }

    fn tool(name: &str, read_only: bool) -> Action {
        let annotations = Some(ToolAnnotations { read_only: Some(read_only), ..ToolAnnotations::default() });
        Action { annotations, ..action(name, json!({})) }
    }

    fn planned(name: &str, arguments: Value, count: u32) -> Option<PlannedCall> {
        PlannedCall::new(grant(name, &arguments, count), tool(name, false))
    }

    fn asked(name: &str, arguments: Value) -> Arc<Action> {
        let Value::Object(tool_args) = arguments else { panic!("an object") };
        Arc::new(Action { tool_args, ..tool(name, false) })
    }

    #[test]
    fn the_first_question_proposes_all_calls_and_no_other_one_does() {
        let fixed = |key: &str| json!({"key": {"equal": key}});
        let within = json!({"path": {"within": "out"}, "text": {"any": {}}});
        let calls =
            [planned("read", fixed("A"), 1), planned("read", fixed("B"), 1), planned("write", within, 10)];
        let mut plan = CellPlan::new(calls.into_iter().flatten().collect());
        let first = asked("read", json!({"key": "B"}));
        assert_eq!(plan.offer(&asked("read", json!({"key": "C"}))), None);
        assert_eq!(plan.offer(&Arc::new(Action { definition: None, ..Action::clone(&first) })), None);
        let proposal = plan.offer(&first).unwrap();
        assert_eq!(
            proposal.grant.to_string(),
            "mail.read(key='B'); up to 1: mail.read(key='A'); up to 10: mail.write(path=<a path within 'out'>, text=<any \
             value>)"
        );
        assert_eq!((proposal.grant.count(), proposal.grant.total(), proposal.planned.len()), (1, 12, 2));
        // Somebody else is asked the same.
        assert_eq!(plan.offer(&first), Some(proposal));
        assert_eq!(plan.offer(&asked("read", json!({"key": "A"}))), None);
        assert_eq!(plan.offer(&asked("read", json!({"key": "B"}))), None);
    }

    #[test]
    fn a_single_call_proposes_nothing() {
        let mut plan = CellPlan::new(planned("send", json!({"to": {"equal": "x"}}), 1).into_iter().collect());
        assert_eq!(plan.offer(&asked("send", json!({"to": "x"}))), None);
    }

    #[test]
    fn too_much_to_read_is_not_proposed() {
        let call = |number: usize| planned("send", json!({"body": {"equal": "x".repeat(150 + number)}}), 1);
        let mut plan = CellPlan::new((0..30).filter_map(call).collect());
        assert_eq!(plan.calls.len(), 30);
        assert_eq!(plan.offer(&asked("send", json!({"body": "x".repeat(150)}))), None);
    }

    #[track_caller]
    fn check(arguments: Value, expected: bool, expected_of_reads: bool) {
        let of = |read_only| PlannedCall::new(grant("t", &arguments, 5), tool("t", read_only)).is_some();
        assert_eq!((of(false), of(true)), (expected, expected_of_reads), "{arguments}");
    }

    #[test]
    fn what_is_wide_or_not_shown_whole_is_left_out() {
        let one = |name: &str, pattern: Value| Value::Object(Map::from_iter([(name.to_owned(), pattern)]));
        let any = json!({"any": {}});
        check(one("text", any.clone()), true, true);
        for name in ["path", "to", "command", "userId"] {
            check(one(name, any.clone()), false, true);
        }
        for name in ["url", "link", "host", "imageUri"] {
            check(one(name, any.clone()), false, false);
        }
        check(one("to", json!({"equal": "x"})), true, true);
        check(one("to", json!({"equal": "x".repeat(201)})), false, false);
        check(one("to", json!({"equal": {"x".repeat(201): 1}})), false, false);
        check(one("to", json!({"equal": ["x".repeat(201)]})), false, false);
        check(one(&"x".repeat(101), json!({"equal": 1})), false, false);
        check(one("to", json!({"domain": "example.com"})), true, true);
        check(one("to", json!({"domain": "gmail.com"})), false, false);
        check(one("to", json!({"domain": "@"})), false, false);
        check(one("path", json!({"within": "/work/out"})), true, true);
        for directory in ["/", "/tmp", "/home/me", "/etc/x", "../x"] {
            check(one("path", json!({"within": directory})), false, false);
        }
        check(one("name", json!({"prefix": "issue-"})), true, true);
        for prefix in ["i-", "issue", "", "--"] {
            check(one("name", json!({"prefix": prefix})), false, false);
        }
        check(one("n", json!({"between": {"min": 1, "max": 9}})), true, true);
        check(one("body", json!({"text": {"max_chars": 9}})), false, false);
        check(one("to", json!({"each": {"pattern": {"any": {}}, "max_items": 5}})), false, false);
    }

    #[test]
    fn a_grant_of_another_kind_is_none_of_a_plan() {
        let grant = || grant("send", &json!({}), 5);
        let call = || tool("send", false);
        assert!(PlannedCall::new(grant(), call()).is_some());
        assert_eq!(PlannedCall::new(grant().for_session(), call()), None);
        assert_eq!(PlannedCall::new(Grant { also: vec![grant()], ..grant() }, call()), None);
        assert_eq!(PlannedCall::new(self::grant("send", &json!({}), 1_001), call()), None);
        assert_eq!(PlannedCall::new(self::grant("other", &json!({}), 1), call()), None);
        let ours = Action { target: crate::approval::action::Target::Kernel, ..call() };
        assert_eq!(PlannedCall::new(grant(), ours), None);
    }
}
