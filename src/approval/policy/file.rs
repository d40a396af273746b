//! A policy from its file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::rules::{ApprovalEffect, ApprovalPolicy, PolicyRule, RuleEntry};
use crate::approval::provenance::ServerLabels;
use crate::ground::files::small;

/// Why a policy could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("read the approval policy `{path}`", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file's content is no policy.
    #[error("use the approval policy `{path}`", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<PolicyError>,
    },
    /// The text is no TOML, or has other top-level keys than `default`, `[labels]` and `[[rule]]`.
    #[error("read its TOML")]
    Toml(#[source] toml::de::Error),
    /// A rule cannot be used.
    #[error("use {rule}")]
    Rule {
        /// The rule in words: its number and name.
        rule: String,
        /// The key and what is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A fault of a rule.
#[derive(Debug, thiserror::Error)]
enum RuleProblem {
    #[error("{0}")]
    Rule(String),
    #[error("`{key}`: {problem}")]
    Key { key: String, problem: String },
}

/// The file; its rules are parsed one by one, so that errors can name them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    default: Option<ApprovalEffect>,
    /// The user's labels for the data of servers, by their names.
    #[serde(default)]
    labels: ServerLabels,
    #[serde(default)]
    rule: Vec<toml::Table>,
}

impl ApprovalPolicy {
    /// A policy from the text of its file. Actions that no rule decides are asked about, unless `default`
    /// says otherwise.
    ///
    /// # Errors
    /// [`PolicyError`] if anything in it is unknown or invalid: a rule with a misspelt key must not match
    /// more actions than was meant.
    pub fn parse(toml: &str) -> Result<Self, PolicyError> {
        let document: PolicyDocument = toml::from_str(toml).map_err(PolicyError::Toml)?;
        let rules = document.rule.into_iter().enumerate().map(|(index, table)| rule(index + 1, table));
        let rules = rules.collect::<Result<_, _>>()?;
        Ok(Self::new(rules, document.default.unwrap_or(ApprovalEffect::Ask), document.labels))
    }

    /// A policy from a file, a regular one of at most 1 MiB.
    ///
    /// # Errors
    /// [`PolicyError`], which names the file, if it cannot be read or is no policy.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, PolicyError> {
        let path = path.as_ref();
        let text = small::read_text(path, small::BY_HAND)
            .map_err(|source| PolicyError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
            .map_err(|source| PolicyError::File { path: path.to_owned(), source: Box::new(source) })
    }

    /// The same; a file of the `workspace`, which may come from a stranger, is not reached by a link out of it.
    pub(crate) fn read_in(workspace: &Path, path: &Path) -> Result<Self, PolicyError> {
        small::check_link(workspace, path)
            .map_err(|source| PolicyError::Read { path: path.to_owned(), source })?;
        Self::read(path)
    }
}

fn rule(number: usize, table: toml::Table) -> Result<PolicyRule, PolicyError> {
    let words = match table.get("name").and_then(toml::Value::as_str) {
        Some(name) => format!("rule {number} ({name:?})"),
        None => format!("rule {number}"),
    };
    match serde_path_to_error::deserialize::<_, RuleEntry>(toml::Value::Table(table)) {
        Ok(entry) => match entry.approvers() {
            Ok(approvers) => Ok(PolicyRule { words: words.into(), approvers, entry }),
            Err((key, problem)) => {
                let problem = RuleProblem::Key { key: key.to_owned(), problem: problem.to_owned() };
                Err(PolicyError::Rule { rule: words, source: Box::new(problem) })
            }
        },
        Err(error) => {
            let key = error.path().to_string();
            let problem = error.inner().message().to_owned();
            let problem =
                if key == "." { RuleProblem::Rule(problem) } else { RuleProblem::Key { key, problem } };
            Err(PolicyError::Rule { rule: words, source: Box::new(problem) })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a user reads it.
    fn words(error: &dyn std::error::Error) -> String {
        let causes = std::iter::successors(Some(error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    #[track_caller]
    fn refused(toml: &str, expected: &str) {
        let words = words(&ApprovalPolicy::parse(toml).unwrap_err());
        assert!(words.contains(expected), "{words}");
    }

    #[test]
    fn errors_name_the_rule_and_the_key() {
        let rules = "[[rule]]\neffect = 'ask'\n[[rule]]\nname = \"it's\"\n";
        let refused = |rule: &str, expected: &str| {
            refused(&format!("{rules}{rule}"), &format!("use rule 2 (\"it's\"): {expected}"));
        };
        refused("", "missing field `effect`");
        refused("effects = 'ask'", "`effects`: unknown field `effects`, expected one of `name`, `server`");
        refused("effect = 'yes'", "`effect`: unknown variant `yes`, expected one of `allow`, `ask`, `deny`");
        refused("tool = 5", "`tool`: invalid type: integer `5`, expected a glob or a list of globs");
        refused("tool = []", "`tool`: an empty list matches nothing");
        refused("tool = ['a', 5]", "`tool[1]`: invalid type: integer `5`, expected a string");
        refused("tool = '[a]'", "`tool`: `[` has no meaning in the glob `[a]`");
        refused("annotations = { readonly = true }", "`annotations.readonly`: unknown field `readonly`");
        refused("annotations = { read_only = 'y' }", "`annotations.read_only`: invalid type: string \"y\"");
        refused(
            "arguments = [{ pointer = 'a', equals = 1 }]",
            "`arguments[0]`: `pointer = \"a\"` is no JSON",
        );
        refused("arguments = [{ pointer = '/a', glob = '' }]", "`arguments[0].glob`: the empty glob");
        refused(
            "effect = 'ask'\napprover = 'finance'",
            "`approver`: \"finance\" is no approver: write `group:NAME`",
        );
        refused("effect = 'ask'\napprover = ['user:fay']", "`approver`: \"user:fay\" is no approver");
        refused("effect = 'ask'\napprover = []", "`approver`: a rule has 1 to 100 approvers");
        refused("effect = 'ask'\napprover = 5", "`approver`: an approver, as");
        refused("effect = 'allow'\napprover = 'group:a'", "`approver`: is for rules with `effect = \"ask\"`");
        refused("effect = 'ask'\nself_approval = true", "`self_approval`: means nothing without `approver`");
        refused("arguments = [{ pointer = '/a', equal = 1 }]", "`arguments[0].equal`: unknown field `equal`");
    }

    #[test]
    fn a_rule_without_a_name_has_its_number() {
        refused("[[rule]]\nname = 5\neffect = 'ask'", "use rule 1: `name`: invalid type: integer `5`");
    }

    #[test]
    fn errors_at_the_top_show_the_line() {
        refused("\ndefault = 'maybe'", "line 2");
        refused("default = 'maybe'", "unknown variant `maybe`, expected one of `allow`, `ask`, `deny`");
        refused("defaults = 'ask'", "unknown field `defaults`, expected one of `default`, `labels`, `rule`");
        refused(
            "[labels]\nmail = 'secret'",
            "unknown variant `secret`, expected one of `trusted`, `untrusted`",
        );
        refused("[labels]\n'git_*' = 'trusted'", "`git_*` is no name of a server");
        refused("[rule]\neffect = 'ask'", "expected a sequence");
        refused("rule = [5]", "expected a map");
        refused("[[rule]]\nname = 'a'\nname = 'b'", "line 3");
        refused("=", "line 1");
    }

    #[test]
    fn errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let name = path.display().to_string();
        assert!(words(&ApprovalPolicy::read(&path).unwrap_err()).contains(&name));
        std::fs::write(&path, "[[rule]]").unwrap();
        let words = words(&ApprovalPolicy::read(&path).unwrap_err());
        assert!(words.contains(&name) && words.contains("rule 1"), "{words}");
        std::fs::write(&path, "[[rule]]\neffect = 'deny'").unwrap();
        ApprovalPolicy::read(&path).unwrap();
    }

    #[test]
    fn the_policies_in_the_documentation_can_be_read() {
        let chapters =
            [include_str!("../../../docs/approval-policy.md"), include_str!("../../../docs/provenance.md")];
        let policies = |chapter: &'static str| {
            let policies = chapter.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
            policies.collect::<Vec<&str>>()
        };
        let policies = chapters.map(policies);
        assert!(policies[0].len() > 3 && !policies[1].is_empty());
        let policies = policies.concat();
        for policy in policies {
            if let Err(error) = ApprovalPolicy::parse(policy) {
                panic!("{}\n{policy}", words(&error));
            }
        }
    }

    const PIECES: &str = "(\\[\\[rule\\]\\]\n|default|effect|tool|arguments|annotations|pointer|glob|at_most| = |'|\"|\\[|\\]|\\{|\\}|allow|/a/|\\*|5|nan|,|\n|.){0,24}";

    proptest! {
        #[test]
        fn parsing_never_panics(text in prop_oneof![Just(PIECES).prop_flat_map(|pieces| pieces), ".*"]) {
            drop(ApprovalPolicy::parse(&text));
        }
    }
}
