//! The rules of a policy, and their decision about an action.

use std::sync::Arc;

use serde::Deserialize;

use super::approvers::{self, NamedApprovers};
use super::condition::RuleCondition;
use super::glob::{self, RuleGlobs};
use super::operator::TextReader;
use super::text;
use super::verdict::RuleVerdict;
use crate::approval::action::{Action, Target, ToolAnnotations};
use crate::approval::provenance::{Label, Provenance, ServerLabels};

/// The effect of a rule, in order of strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ApprovalEffect {
    /// It runs.
    Allow,
    /// A user is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// Decides about actions by their names, arguments and annotations: the first rule that holds, else the default.
#[derive(Debug, Clone)]
pub struct ApprovalPolicy {
    rules: Vec<PolicyRule>,
    default: ApprovalEffect,
    labels: ServerLabels,
}

/// The policy's decision about one action, and the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::approval) struct PolicyJudgement {
    pub(in crate::approval) effect: ApprovalEffect,
    /// The rule in words for a user; `None` if it is the default.
    pub(in crate::approval) rule: Option<Arc<str>>,
    /// The people who are asked instead of the session's user.
    pub(in crate::approval) approvers: Option<Arc<NamedApprovers>>,
}

/// One rule: all given conditions have to hold; an absent one holds for everything.
#[derive(Debug, Clone)]
pub(super) struct PolicyRule {
    /// The rule in words for a user.
    pub(super) words: Arc<str>,
    pub(super) approvers: Option<Arc<NamedApprovers>>,
    pub(super) entry: RuleEntry,
}

/// A rule as the file contains it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleEntry {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(default, deserialize_with = "glob::names")]
    server: Option<RuleGlobs>,
    #[serde(default, deserialize_with = "glob::names")]
    tool: Option<RuleGlobs>,
    #[serde(default, deserialize_with = "glob::targets")]
    target: Option<RuleGlobs>,
    annotations: Option<Hints>,
    #[serde(default)]
    arguments: Vec<RuleCondition>,
    /// The session has read data with this label.
    tainted_by: Option<Label>,
    /// An argument has data with this label.
    contains_from: Option<Label>,
    effect: ApprovalEffect,
    #[serde(default, deserialize_with = "approvers::names")]
    approver: Option<Vec<String>>,
    /// Whether the session's user may be one of the approvers.
    self_approval: Option<bool>,
}

/// The hints that a server must give, with these values.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hints {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
}

impl ApprovalPolicy {
    /// The same effect for every action.
    pub fn always(effect: ApprovalEffect) -> Self {
        Self::new(Vec::new(), effect, ServerLabels::default())
    }

    pub(super) fn new(rules: Vec<PolicyRule>, default: ApprovalEffect, labels: ServerLabels) -> Self {
        Self { rules, default, labels }
    }

    /// The labels of servers.
    pub(in crate::approval) fn labels(&self) -> &ServerLabels {
        &self.labels
    }

    /// Whether it lets everything run, so that nobody needs to know where data comes from.
    pub(in crate::approval) fn is_open(&self) -> bool {
        self.rules.is_empty() && self.default == ApprovalEffect::Allow
    }

    /// The first rule that holds decides. An earlier rule that is in doubt can only make the result stricter.
    pub(in crate::approval) fn judge(&self, action: &Action) -> PolicyJudgement {
        let mut decision = PolicyJudgement { effect: self.default, rule: None, approvers: None };
        let mut doubtful: Option<&PolicyRule> = None;
        for rule in &self.rules {
            match rule.entry.judge(action) {
                RuleVerdict::Fails => {}
                RuleVerdict::InDoubt => {
                    let is_stricter =
                        doubtful.is_none_or(|doubtful| rule.strictness() > doubtful.strictness());
                    doubtful = if is_stricter { Some(rule) } else { doubtful };
                }
                RuleVerdict::Holds => {
                    decision = rule.judgement(Arc::clone(&rule.words));
                    break;
                }
            }
        }
        match doubtful {
            Some(rule) if rule.strictness() > (decision.effect, decision.approvers.is_some()) => {
                rule.judgement(format!("{}, in doubt", rule.words).into())
            }
            _ => decision,
        }
    }

    /// Whether it takes what is known of the data in `action` to decide about it.
    pub(in crate::approval) fn reads_provenance(&self, action: &Action) -> bool {
        self.rules.iter().any(|rule| {
            let reads = rule.entry.tainted_by.is_some() || rule.entry.contains_from.is_some();
            reads && rule.entry.judge(action) != RuleVerdict::Fails
        })
    }

    /// Whether it takes the arguments of `action` to decide about it.
    pub(in crate::approval) fn reads_arguments(&self, action: &Action) -> bool {
        let may_hold = |rule: &&PolicyRule| rule.entry.judge_without_arguments(action) != RuleVerdict::Fails;
        for rule in self.rules.iter().filter(may_hold) {
            if !rule.entry.arguments.is_empty() {
                return true;
            }
            if rule.entry.judge_without_arguments(action) == RuleVerdict::Holds {
                return false;
            }
        }
        false
    }
}

impl PolicyRule {
    /// A question to other people is stricter than one to the user.
    fn strictness(&self) -> (ApprovalEffect, bool) {
        (self.entry.effect, self.approvers.is_some())
    }

    fn judgement(&self, words: Arc<str>) -> PolicyJudgement {
        PolicyJudgement { effect: self.entry.effect, rule: Some(words), approvers: self.approvers.clone() }
    }
}

impl RuleEntry {
    /// The approvers, if there are any.
    ///
    /// # Errors
    /// The keys contradict each other: the key, and why.
    pub(super) fn approvers(&self) -> Result<Option<Arc<NamedApprovers>>, (&'static str, &'static str)> {
        match (&self.approver, self.self_approval) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(("self_approval", "means nothing without `approver`")),
            (Some(_), _) if self.effect != ApprovalEffect::Ask => {
                Err(("approver", "is for rules with `effect = \"ask\"`"))
            }
            (Some(names), includes_user) => {
                let includes_user = includes_user.unwrap_or_default();
                Ok(Some(Arc::new(NamedApprovers { names: names.clone(), includes_user })))
            }
        }
    }

    fn judge(&self, action: &Action) -> RuleVerdict {
        let reader = if action.target == Target::Kernel { TextReader::Shell } else { TextReader::Tool };
        let arguments = self.arguments.iter().map(|condition| condition.judge(&action.tool_args, reader));
        let contains = self.contains_from.map(|label| knows(action, |known| known.contains_from(label)));
        RuleVerdict::all(
            std::iter::once(self.judge_without_arguments(action)).chain(arguments).chain(contains),
        )
    }

    fn judge_without_arguments(&self, action: &Action) -> RuleVerdict {
        let names = [(&self.server, &action.server_name), (&self.tool, &action.tool_name)];
        let names = names
            .map(|(globs, name)| RuleVerdict::of(globs.as_ref().is_none_or(|globs| globs.is_match(name))));
        let target = self.target.as_ref().map(|globs| leads_to(globs, &action.target));
        let hints =
            self.annotations.map(|hints| RuleVerdict::of(hints.are_given(action.annotations.as_ref())));
        let tainted = self.tainted_by.map(|label| knows(action, |known| known.is_tainted_by(label)));
        RuleVerdict::all(names.into_iter().chain(target).chain(hints).chain(tainted))
    }
}

impl Hints {
    /// A hint that is not given is not assumed, though MCP has defaults.
    fn are_given(&self, annotations: Option<&ToolAnnotations>) -> bool {
        annotations.is_some_and(|given| {
            let pairs = [
                (self.read_only, given.read_only),
                (self.destructive, given.destructive),
                (self.idempotent, given.idempotent),
                (self.open_world, given.open_world),
            ];
            pairs.into_iter().all(|(wanted, given)| wanted.is_none() || wanted == given)
        })
    }
}

/// A condition on the origins of an action's data; in doubt if nobody has looked.
fn knows(action: &Action, holds: impl FnOnce(&Provenance) -> bool) -> RuleVerdict {
    action.known.as_ref().map_or(RuleVerdict::InDoubt, |known| RuleVerdict::of(holds(known)))
}

fn leads_to(globs: &RuleGlobs, target: &Target) -> RuleVerdict {
    match target {
        Target::Command(line) if text::is_plain_command_line(line) => RuleVerdict::of(globs.is_match(line)),
        Target::Command(_) => RuleVerdict::InDoubt,
        Target::Url(url) => {
            text::plain(url).map_or(RuleVerdict::InDoubt, |url| RuleVerdict::of(globs.is_match(&url)))
        }
        // ipybox itself has no target to match.
        Target::Kernel | Target::Host => RuleVerdict::Fails,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn action(server: &str, tool: &str, arguments: Value) -> Action {
        let Value::Object(tool_args) = arguments else { panic!("an object") };
        Action::new(
            server.to_owned(),
            tool.to_owned(),
            tool_args,
            Target::Command("npx -y files /tmp".to_owned()),
        )
    }

    #[track_caller]
    fn check(policy: &str, action: &Action, effect: ApprovalEffect, rule: impl Into<Option<&'static str>>) {
        let judgement = ApprovalPolicy::parse(policy).unwrap().judge(action);
        assert_eq!((judgement.effect, judgement.rule.as_deref()), (effect, rule.into()));
    }

    #[test]
    fn what_no_rule_decides_gets_the_default() {
        let other = action("s", "t", json!({}));
        check("", &other, ApprovalEffect::Ask, None);
        check("default = 'deny'", &other, ApprovalEffect::Deny, None);
        check(
            "default = 'allow'\n[[rule]]\ntool = 'x'\neffect = 'deny'",
            &other,
            ApprovalEffect::Allow,
            None,
        );
        assert_eq!(
            ApprovalPolicy::always(ApprovalEffect::Allow).judge(&other),
            PolicyJudgement { effect: ApprovalEffect::Allow, rule: None, approvers: None }
        );
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let policy = "
            [[rule]]
            server = 'git*'
            tool = ['get_*', 'list_*']
            effect = 'allow'
            [[rule]]
            name = 'no deletions'
            tool = '*delete*'
            effect = 'deny'
            [[rule]]
            effect = 'allow'";
        check(policy, &action("github", "list_x", json!({})), ApprovalEffect::Allow, "rule 1");
        check(policy, &action("github", "get_delete_x", json!({})), ApprovalEffect::Allow, "rule 1");
        check(
            policy,
            &action("other", "get_delete_x", json!({})),
            ApprovalEffect::Deny,
            "rule 2 (\"no deletions\")",
        );
        check(policy, &action("other", "get_x", json!({})), ApprovalEffect::Allow, "rule 3");
    }

    #[test]
    fn hints_must_be_given_just_so() {
        let policy = "[[rule]]\nannotations = { read_only = true, open_world = false }\neffect = 'allow'";
        let hinted = |read_only, open_world| Action {
            annotations: Some(ToolAnnotations { read_only, open_world, ..ToolAnnotations::default() }),
            ..action("s", "t", json!({}))
        };
        check(policy, &hinted(Some(true), Some(false)), ApprovalEffect::Allow, "rule 1");
        check(policy, &hinted(Some(true), Some(true)), ApprovalEffect::Ask, None);
        check(policy, &hinted(Some(true), None), ApprovalEffect::Ask, None);
        check(policy, &action("s", "t", json!({})), ApprovalEffect::Ask, None);
    }

    #[test]
    fn all_conditions_must_hold() {
        let policy = "
            [[rule]]
            arguments = [{ pointer = '/a', equals = 1 }, { pointer = '/b', present = false }]
            effect = 'allow'";
        check(policy, &action("s", "t", json!({"a": 1})), ApprovalEffect::Allow, "rule 1");
        check(policy, &action("s", "t", json!({"a": 1, "b": 2})), ApprovalEffect::Ask, None);
        check(policy, &action("s", "t", json!({})), ApprovalEffect::Ask, None);
    }

    #[test]
    fn a_target_is_what_stands_behind_the_name() {
        let at = |target| Action { target, ..action("s", "t", json!({})) };
        let command = |line: &str| at(Target::Command(line.to_owned()));
        let url = |url: &str| at(Target::Url(url.to_owned()));
        let policy = "[[rule]]\ntarget = ['npx -y files **', 'https://*.a.org/mcp']\neffect = 'allow'";
        check(policy, &command("npx -y files /tmp"), ApprovalEffect::Allow, "rule 1");
        check(policy, &command("npx -y filesx /tmp"), ApprovalEffect::Ask, None);
        check(policy, &command("npx -y files /tmp/../etc"), ApprovalEffect::Ask, None);
        check(policy, &url("https://x.a.org/mcp"), ApprovalEffect::Allow, "rule 1");
        check(policy, &url("https://b.org/x.a.org/mcp"), ApprovalEffect::Ask, None);
        check(policy, &url("https://b.org?.a.org/mcp"), ApprovalEffect::Ask, None);
        check("[[rule]]\ntarget = '**'\neffect = 'allow'", &at(Target::Kernel), ApprovalEffect::Ask, None);
        check("[[rule]]\ntarget = '**'\neffect = 'allow'", &at(Target::Host), ApprovalEffect::Ask, None);
    }

    #[test]
    fn in_doubt_the_stricter_outcome_counts() {
        let rule = |effect: &str| {
            format!(
                "[[rule]]\nname = 'etc'\narguments = [{{ pointer = '/path', glob = '/etc/**' }}]\neffect = '{effect}'\n"
            )
        };
        let climbing = action("s", "t", json!({"path": "/home/../etc/passwd"}));
        let in_doubt = "rule 1 (\"etc\"), in doubt";
        check(&rule("allow"), &climbing, ApprovalEffect::Ask, None);
        check(&format!("default = 'allow'\n{}", rule("deny")), &climbing, ApprovalEffect::Deny, in_doubt);
        check(&format!("default = 'allow'\n{}", rule("ask")), &climbing, ApprovalEffect::Ask, in_doubt);
        check(&format!("default = 'deny'\n{}", rule("ask")), &climbing, ApprovalEffect::Deny, None);
        check(
            &format!("{}[[rule]]\neffect = 'allow'", rule("deny")),
            &climbing,
            ApprovalEffect::Deny,
            in_doubt,
        );
        check(
            &format!("{}[[rule]]\neffect = 'deny'", rule("ask")),
            &climbing,
            ApprovalEffect::Deny,
            "rule 2",
        );
        check(
            &format!("[[rule]]\neffect = 'allow'\n{}", rule("deny")),
            &climbing,
            ApprovalEffect::Allow,
            "rule 1",
        );
    }

    #[test]
    fn a_shell_command_is_judged_as_a_shell_reads_it() {
        let policy = "
            [[rule]]
            server = 'ipybox'
            tool = 'shell'
            arguments = [{ pointer = '/cmd', glob = 'git **' }]
            effect = 'allow'";
        let shell = |command: &str| Action {
            target: Target::Kernel,
            ..action("ipybox", "shell", json!({ "cmd": command }))
        };
        check(policy, &shell("git log --oneline"), ApprovalEffect::Allow, "rule 1");
        check(policy, &shell("git log; reboot"), ApprovalEffect::Ask, None);
    }

    /// A rule as the reference sees it.
    #[derive(Debug, Clone)]
    struct Simple {
        tool: Option<&'static str>,
        at_most: Option<i64>,
        effect: ApprovalEffect,
    }

    impl Simple {
        fn toml(&self) -> String {
            let tool = self.tool.map(|tool| format!("tool = '{tool}'\n")).unwrap_or_default();
            let limit =
                self.at_most.map(|limit| format!("arguments = [{{ pointer = '/n', at_most = {limit} }}]\n"));
            let effect = format!("{:?}", self.effect).to_lowercase();
            format!("[[rule]]\n{tool}{}effect = '{effect}'\n", limit.unwrap_or_default())
        }

        /// `None` if it is in doubt.
        fn holds(&self, action: &Action) -> Option<bool> {
            if self.tool.is_some_and(|tool| tool != action.tool_name) {
                return Some(false);
            }
            match (self.at_most, action.tool_args.get("n")) {
                (None, _) => Some(true),
                (Some(_), None) => Some(false),
                (Some(limit), Some(value)) => value.as_i64().map(|number| number <= limit),
            }
        }
    }

    /// The strictest effect over all resolutions of the doubts.
    fn strictest(rules: &[Simple], action: &Action) -> ApprovalEffect {
        let Some((rule, rest)) = rules.split_first() else { return ApprovalEffect::Ask };
        match rule.holds(action) {
            Some(true) => rule.effect,
            Some(false) => strictest(rest, action),
            None => rule.effect.max(strictest(rest, action)),
        }
    }

    fn any_rule() -> impl Strategy<Value = Simple> {
        let tool = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
        let at_most = prop_oneof![Just(None), (0..3_i64).prop_map(Some)];
        let effect =
            prop_oneof![Just(ApprovalEffect::Allow), Just(ApprovalEffect::Ask), Just(ApprovalEffect::Deny)];
        (tool, at_most, effect).prop_map(|(tool, at_most, effect)| Simple { tool, at_most, effect })
    }

    proptest! {
        #[test]
        fn judging_agrees_with_a_naive_reference(
            rules in proptest::collection::vec(any_rule(), 0..6),
            tool in prop_oneof![Just("a"), Just("b"), Just("c")],
            arguments in prop_oneof![Just(json!({})), (0..4_i64).prop_map(|n| json!({"n": n})), Just(json!({"n": "1"}))],
        ) {
            let action = action("s", tool, arguments);
            let policy = ApprovalPolicy::parse(&rules.iter().map(Simple::toml).collect::<String>()).unwrap();
            prop_assert_eq!(policy.judge(&action).effect, strictest(&rules, &action));
        }
    }
}
