//! Grants: one answer to many calls of a tool, which are bounded by their arguments, their number and a time.
//!
//! ```text
//! permits of a cell → propose ┬→ grants, as part of an answer → given ── claim: covers, counts down ──→ permit
//! what code announces → plan ─┘
//! ```
//!
//! A grant never changes but for its count. A call that it does not surely cover is outside of it.

mod address;
mod given;
mod path;
mod pattern;
mod plan;
mod propose;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::given::GivenGrant;
pub(super) use self::given::{GrantEffect, SessionGrants, UsedGrant};
pub use self::pattern::GrantPattern;
pub(super) use self::plan::{GrantProposal, PlannedCall};
use crate::approval::action::{Action, ELICITATION, OURSELVES, Target, as_python};

/// The most calls that a grant may allow: nobody can foresee more.
const MOST_CALLS: u32 = 10_000;

/// The most arguments that a grant may have.
const MOST_ARGUMENTS: usize = 200;

/// One answer to many calls: to those of a tool whose arguments fit its patterns, to so many of them, in a cell or in a
/// session.
///
/// [`ApprovalRequest::proposed_grant`] proposes one; [`Grant::of`] begins with the call of a request alone, and each
/// [`argument`](Self::argument) after that loosens it. [`ApprovalRequest::grant`] answers with it. `Display` writes it as a
/// call: `mail.send(to=<an address at example.com>, subject='Hi')`.
///
/// [`ApprovalRequest::proposed_grant`]: crate::ApprovalRequest::proposed_grant
/// [`ApprovalRequest::grant`]: crate::ApprovalRequest::grant
///
/// It holds for the server and the tool as they are defined when it is given. Every argument of a call needs a pattern that
/// covers it, and every argument of the grant must be there.
///
/// ```
/// # fn example(request: ipybox::ApprovalRequest) -> Result<(), ipybox::OutsideGrant> {
/// use ipybox::{Grant, GrantPattern};
///
/// let grant = Grant::of(&request, 20).argument("to", GrantPattern::Domain("example.com".to_owned()));
/// request.grant(grant)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    server_name: String,
    tool_name: String,
    arguments: BTreeMap<String, GrantPattern>,
    count: NonZeroU32,
    life: GrantLife,
    /// Those for other calls, which are given with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<Grant>,
}

/// The lifetime of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "there are no other ones")]
pub enum GrantLife {
    /// Until the end of the cell whose call was asked about.
    Cell,
    /// Until the end of the session; resets do not end it.
    Session,
}

/// Why a grant does not cover a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutsideGrant(String);

impl OutsideGrant {
    pub(super) fn not_proposed(also: &Grant) -> Self {
        Self(format!("the request does not propose the grant that is given with it: {also}"))
    }

    pub(super) fn of_another_process() -> Self {
        Self("a request of a tool server in another process cannot be answered with a grant".to_owned())
    }
}

impl Grant {
    pub(super) fn new(action: &Action, arguments: BTreeMap<String, GrantPattern>, count: u32) -> Self {
        Self {
            server_name: action.server_name.clone(),
            tool_name: action.tool_name.clone(),
            arguments,
            count: NonZeroU32::new(count.min(MOST_CALLS)).unwrap_or(NonZeroU32::MIN),
            life: GrantLife::Cell,
            also: Vec::new(),
        }
    }

    /// It without those that are given with it.
    fn alone(&self) -> Self {
        Self { also: Vec::new(), ..self.clone() }
    }

    /// Has this argument fit `pattern`.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, pattern: GrantPattern) -> Self {
        self.arguments.insert(name.into(), pattern);
        self
    }

    /// Has the grant hold until the session ends.
    #[must_use]
    pub fn for_session(self) -> Self {
        Self { life: GrantLife::Session, ..self }
    }

    /// The name under which the MCP server is registered.
    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    /// The tool's name on its server.
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }

    /// The patterns of the arguments, by their names.
    pub fn arguments(&self) -> &BTreeMap<String, GrantPattern> {
        &self.arguments
    }

    /// The number of calls that it allows in all, that of its request among them.
    pub fn count(&self) -> u32 {
        self.count.get()
    }

    /// Its lifetime.
    pub fn life(&self) -> GrantLife {
        self.life
    }

    /// The grants that are given with it: for the other calls that the cell's code has announced, which its first question
    /// proposes. Each has its own number of calls.
    pub fn also(&self) -> &[Self] {
        &self.also
    }

    /// The number of calls that it and those that are given with it allow.
    pub(super) fn total(&self) -> u32 {
        self.also.iter().fold(self.count(), |total, grant| total.saturating_add(grant.count()))
    }

    /// The calls that it covers, without those of [`also`](Self::also).
    pub(super) fn call(&self) -> String {
        let argument =
            |(name, pattern): (&String, &GrantPattern)| format!("{}={pattern}", as_python::name(name));
        let arguments: Vec<_> = self.arguments.iter().map(argument).collect();
        let names = [&self.server_name, &self.tool_name].map(|name| as_python::name(name));
        format!("{}({})", names.join("."), arguments.join(", "))
    }

    /// Whether this grant may be given, and covers `action`.
    pub(super) fn check(&self, action: &Action) -> Result<(), OutsideGrant> {
        if !can_be_granted(action) {
            return Err(OutsideGrant("only calls of tools of MCP servers can be granted".to_owned()));
        }
        if self.count.get() > MOST_CALLS || self.arguments.len() > MOST_ARGUMENTS {
            return Err(OutsideGrant(
                "the grant is for too many calls, or has too many arguments".to_owned(),
            ));
        }
        let fault = |(name, pattern): (&String, &GrantPattern)| {
            pattern.fault().map(|fault| {
                OutsideGrant(format!("the pattern of {} is none: {fault}", as_python::name(name)))
            })
        };
        match self.arguments.iter().find_map(fault) {
            Some(fault) => Err(fault),
            None => self.covers(action),
        }
    }

    /// The arguments that have one value alone.
    pub(crate) fn fixed(&self) -> Map<String, Value> {
        let value = |(name, pattern): (&String, &GrantPattern)| match pattern {
            GrantPattern::Equal(value) => Some((name.clone(), value.clone())),
            _ => None,
        };
        self.arguments.iter().filter_map(value).collect()
    }

    /// Whether this covers `action`, of whose server and tool only the names are compared.
    fn covers(&self, action: &Action) -> Result<(), OutsideGrant> {
        if (&self.server_name, &self.tool_name) != (&action.server_name, &action.tool_name) {
            return Err(OutsideGrant("it is for another tool".to_owned()));
        }
        for (name, value) in &action.tool_args {
            match self.arguments.get(name) {
                None => {
                    return Err(OutsideGrant(format!("the argument {} is not in it", as_python::name(name))));
                }
                Some(pattern) if !pattern.covers(value) => {
                    let name = as_python::name(name);
                    let value = as_python::value(value, SHOWN_CHARS, SHOWN_VALUE_CHARS);
                    return Err(OutsideGrant(format!("{name}={value} is not {}", pattern.words())));
                }
                Some(_) => {}
            }
        }
        match self.arguments.keys().find(|name| !action.tool_args.contains_key(*name)) {
            Some(missing) => {
                Err(OutsideGrant(format!("the argument {} is missing", as_python::name(missing))))
            }
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Grant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.call())?;
        self.also.iter().try_for_each(|grant| write!(formatter, "; up to {}: {grant}", grant.count()))
    }
}

/// The number of characters of each text outside that are shown.
const SHOWN_CHARS: usize = 100;

/// The number of characters that are shown of a value that is outside, and may be a long list.
const SHOWN_VALUE_CHARS: usize = 300;

/// Whether grants are for such actions: ipybox's own ones, and what servers ask users, need an answer each.
fn can_be_granted(action: &Action) -> bool {
    matches!(action.target, Target::Command(_) | Target::Url(_))
        && action.server_name != OURSELVES
        && action.tool_name != ELICITATION
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(in crate::approval) fn action(tool_name: &str, arguments: Value) -> Action {
        let Value::Object(tool_args) = arguments else { panic!("an object") };
        let target = Target::Command("mail-server".to_owned());
        let action = Action::new("mail".to_owned(), tool_name.to_owned(), tool_args, target);
        Action { definition: Some("1".to_owned()), ..action }
    }

    pub(super) fn grant(arguments: Value, count: u32) -> Grant {
        let grant = json!({
            "server_name": "mail", "tool_name": "send", "arguments": arguments, "count": count, "life": "cell"
        });
        serde_json::from_value(grant).unwrap()
    }

    #[track_caller]
    fn check(arguments: Value, outside: Option<&str>) {
        let grant = grant(json!({"to": {"domain": "a.org"}, "body": {"text": {"max_chars": 5}}}), 3);
        let checked = grant.check(&action("send", arguments));
        assert_eq!(checked.err().map(|why| why.to_string()).as_deref(), outside);
    }

    #[test]
    fn every_argument_is_covered() {
        check(json!({"to": "x@a.org", "body": "hello"}), None);
        check(json!({"body": "hello", "to": "x@a.org"}), None);
        check(json!({"to": "x@b.org", "body": "hello"}), Some("to='x@b.org' is not an address at a.org"));
        check(
            json!({"to": "x@a.org", "body": "hello!"}),
            Some("body='hello!' is not any text of up to 5 characters"),
        );
        check(json!({"to": "x@a.org"}), Some("the argument body is missing"));
        check(json!({"to": "x@a.org", "body": "", "cc": "x"}), Some("the argument cc is not in it"));
        check(json!({"to": "x@a.org", "body": "", "cc": null}), Some("the argument cc is not in it"));
        check(json!({"To": "x@a.org", "body": ""}), Some("the argument To is not in it"));
        check(json!({"t\u{43e}": "x@a.org", "body": ""}), Some("the argument 't\\u043e' is not in it"));
        check(json!({}), Some("the argument body is missing"));
    }

    #[test]
    fn a_grant_is_for_one_tool_of_a_server() {
        let grant = grant(json!({}), 1);
        assert!(grant.check(&action("send", json!({}))).is_ok());
        assert!(grant.check(&action("delete", json!({}))).is_err());
        assert!(
            grant.check(&Action { server_name: "other".to_owned(), ..action("send", json!({})) }).is_err()
        );
    }

    #[test]
    fn what_is_ipyboxs_own_or_the_users_is_never_granted() {
        for (server_name, tool_name, target) in [
            (OURSELVES, "shell", Target::Kernel),
            (OURSELVES, "register_mcp_server", Target::Host),
            (OURSELVES, "login", Target::Command("x".to_owned())),
            ("s", ELICITATION, Target::Command("x".to_owned())),
            ("s", "t", Target::Kernel),
        ] {
            let server_name = server_name.to_owned();
            let tool_name = tool_name.to_owned();
            let action = Action { server_name, tool_name, target, ..action("", json!({})) };
            let checked = Grant::new(&action, BTreeMap::new(), 1).check(&action);
            assert!(checked.unwrap_err().to_string().contains("only calls of tools"));
        }
    }

    #[test]
    fn a_grant_is_shown_as_a_call() {
        let grant = grant(
            json!({
                "to": {"each": {"pattern": {"domain": "a.org"}, "max_items": 2}},
                "body": {"text": {"max_chars": 5}},
                "path": {"within": "/work/out"},
                "subject": {"equal": "Hi"},
                "odd name": {"between": {"min": 1, "max": 2.5}},
            }),
            1,
        );
        assert_eq!(
            grant.to_string(),
            "mail.send(body=<any text of up to 5 characters>, 'odd name'=<a number from 1 to 2.5>, \
             path=<a path within '/work/out'>, subject='Hi', to=<up to 2 times an address at a.org>)"
        );
    }

    #[test]
    fn what_is_outside_is_shown_within_bounds() {
        let grant = grant(json!({"to": {"domain": "a.org"}}), 1);
        for long in [json!("\u{202e}x".repeat(100_000)), json!(vec!["x"; 100_000])] {
            let why = grant.check(&action("send", json!({"to": long}))).unwrap_err().to_string();
            assert!(why.chars().count() < 500 && !why.contains('\u{202e}'), "{why}");
        }
    }

    #[test]
    fn a_grant_is_read_with_known_fields_alone() {
        let written =
            json!({"server_name": "s", "tool_name": "t", "arguments": {}, "count": 1, "life": "cell"});
        assert!(serde_json::from_value::<Grant>(written.clone()).is_ok());
        for (field, value) in
            [("more", json!(1)), ("count", json!(0)), ("count", json!(-1)), ("life", json!("ever"))]
        {
            let mut changed = written.clone();
            changed[field] = value;
            assert!(serde_json::from_value::<Grant>(changed).is_err(), "{field}");
        }
        let many = Grant { count: NonZeroU32::new(10_001).unwrap(), ..grant(json!({}), 1) };
        assert!(many.check(&action("send", json!({}))).is_err());
    }
}
