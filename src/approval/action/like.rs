//! Which actions are alike, so that one standing answer covers them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{Action, Target, ToolAnnotations};
use crate::approval::provenance::Label;

/// The common features of alike actions.
///
/// Calls of an MCP tool are alike whatever their arguments are, as long as the server's name has the same
/// definition and the tool has the same description, schemas and annotations: the user's answer was about these. Shell commands,
/// registrations and installations are alike if their arguments are the same, since these determine what is
/// done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::approval) struct AlikeActions {
    server_name: String,
    tool_name: String,
    target: Target,
    /// Hash of the server's and the tool's definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<ToolAnnotations>,
    /// Hash of the arguments as JSON, keys sorted, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments_sha256: Option<String>,
    /// The labels of what the session had read, and of what was in the arguments: an answer was about these.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    read: BTreeSet<Label>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    contained: BTreeSet<Label>,
}

impl AlikeActions {
    pub(in crate::approval) fn of(action: &Action) -> Self {
        let is_of_server = matches!(action.target, Target::Command(_) | Target::Url(_));
        Self {
            server_name: action.server_name.clone(),
            tool_name: action.tool_name.clone(),
            target: action.target.clone(),
            definition_sha256: action.definition.clone(),
            annotations: action.annotations,
            arguments_sha256: (!is_of_server).then(|| hash(action)),
            read: action.known.iter().flat_map(|known| known.read.keys().copied()).collect(),
            contained: action.known.iter().flat_map(|known| known.labels()).collect(),
        }
    }

    /// Whether this is of the same tool of the same server, which was defined in another way.
    pub(in crate::approval) fn is_of_earlier(&self, now: &Self) -> bool {
        self.arguments_sha256.is_none()
            && (&self.server_name, &self.tool_name, &self.target)
                == (&now.server_name, &now.tool_name, &now.target)
            && self != now
    }

    /// Whether the arguments are compared.
    pub(in crate::approval) fn has_arguments(&self) -> bool {
        self.arguments_sha256.is_some()
    }
}

fn hash(action: &Action) -> String {
    let mut arguments = Value::Object(action.tool_args.clone());
    arguments.sort_all_objects();
    format!("{:x}", Sha256::digest(arguments.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn action(target: Target, arguments: Value) -> Action {
        let Value::Object(tool_args) = arguments else { panic!("an object") };
        let (server_name, tool_name) = ("s".to_owned(), "t".to_owned());
        Action::new(server_name, tool_name, tool_args, target)
    }

    #[track_caller]
    fn check(left: &Action, right: &Action, expected: bool) {
        assert_eq!(AlikeActions::of(left) == AlikeActions::of(right), expected);
    }

    #[test]
    fn calls_of_a_tool_are_alike_whatever_their_arguments() {
        let call = |line: &str, arguments| action(Target::Command(line.to_owned()), arguments);
        let one = call("x", json!({"a": 1}));
        check(&one, &call("x", json!({"a": 2})), true);
        check(&one, &Action { tool_name: "u".to_owned(), ..one.clone() }, false);
        check(&one, &Action { server_name: "u".to_owned(), ..one.clone() }, false);
    }

    #[test]
    fn what_stands_behind_a_name_makes_a_difference() {
        let call = |target| action(target, json!({}));
        check(&call(Target::Command("x".to_owned())), &call(Target::Command("y".to_owned())), false);
        check(&call(Target::Command("x".to_owned())), &call(Target::Url("x".to_owned())), false);
        check(&call(Target::Kernel), &call(Target::Host), false);
        let one = call(Target::Command("x".to_owned()));
        check(&one, &Action { definition: Some("other variables".to_owned()), ..one.clone() }, false);
    }

    #[test]
    fn what_a_server_says_of_a_tool_makes_a_difference() {
        let one = action(Target::Url("x".to_owned()), json!({}));
        let saying = |read_only| Action {
            annotations: Some(ToolAnnotations { read_only, ..ToolAnnotations::default() }),
            ..one.clone()
        };
        check(&one, &saying(None), false);
        check(&saying(Some(true)), &saying(Some(true)), true);
        check(&saying(Some(true)), &saying(Some(false)), false);
    }

    #[test]
    fn commands_are_alike_if_their_arguments_are_the_same() {
        let call = |arguments| action(Target::Kernel, arguments);
        check(&call(json!({"cmd": "ls"})), &call(json!({"cmd": "ls"})), true);
        check(&call(json!({"cmd": "ls"})), &call(json!({"cmd": "ls "})), false);
        check(
            &call(json!({"a": 1, "b": {"c": 2, "d": 3}})),
            &call(json!({"b": {"d": 3, "c": 2}, "a": 1})),
            true,
        );
        check(&call(json!({"a": [1, 2]})), &call(json!({"a": [2, 1]})), false);
    }
}
