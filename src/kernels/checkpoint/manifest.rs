//! The description of saved variables, beside their pickled bytes.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::ground::text::{one_line, shortened};

/// The greatest size of one pickled variable, and of all of them together. `ipybox_saving.py` has the same limits.
pub(super) const VARIABLE_BYTES: u64 = 128 * 1024 * 1024;
pub(super) const TOTAL_BYTES: u64 = 4 * VARIABLE_BYTES;
/// The number of variables that are saved, and of further ones that are named.
const VARIABLES: usize = 2000;
/// The time that a saved variable is kept that nobody restores.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest name, in bytes, and the longest reason, in characters.
const NAME_BYTES: usize = 200;
const REASON_CHARS: usize = 300;
/// The hexadecimal digits of a SHA-256.
const DIGEST_CHARS: usize = 64;

/// The conditions that have to be the same for a kernel to be offered what an earlier one has saved.
///
/// Variables of a sandboxed kernel are made by code that nobody trusts, and to load it is to run it: never in a kernel that
/// may do more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointConditions {
    /// The place of the kernel, in words.
    pub(crate) site: String,
    /// The permissions of its sandbox.
    pub(crate) policy: String,
}

/// The document beside the bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) conditions: CheckpointConditions,
    /// The Python of the kernel, by its version.
    pub(super) python: String,
    /// The kernel's name of its Python.
    pub(super) tag: String,
    #[serde(flatten)]
    pub(super) content: CheckpointContent,
}

/// Variables, and those that could not be saved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CheckpointContent {
    pub(super) variables: Vec<SavedVariable>,
    pub(super) missing: Vec<UnsavedVariable>,
}

/// A saved variable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedVariable {
    pub(super) name: String,
    /// The SHA-256 of its bytes, which is their file's name.
    pub(super) digest: String,
    pub(super) bytes: u64,
    /// In seconds since 1970.
    pub(super) saved_at: u64,
}

/// A variable that could not be saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnsavedVariable {
    pub(super) name: String,
    pub(super) why: String,
}

/// The report of a kernel that has sent all variables. Code may have written it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointReport {
    pub(super) python: String,
    pub(super) has_cloudpickle: bool,
    /// The names that it has taken from an earlier kernel.
    pub(super) restored: BTreeSet<String>,
    variables: Vec<SentVariable>,
    missing: Vec<UnsavedVariable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentVariable {
    name: String,
    digest: String,
    bytes: u64,
}

impl CheckpointReport {
    /// Its variables, as far as they can be believed: `has` says whether there are bytes with this digest and length.
    pub(super) fn content(self, has: impl Fn(&str, u64) -> bool) -> CheckpointContent {
        let saved_at = now();
        let mut seen = BTreeSet::new();
        let mut content = CheckpointContent::default();
        for SentVariable { name, digest, bytes } in self.variables.into_iter().take(VARIABLES) {
            if !is_name(&name) || !seen.insert(name.clone()) {
                continue;
            }
            if is_digest(&digest) && has(&digest, bytes) {
                content.variables.push(SavedVariable { name, digest, bytes, saved_at });
            } else {
                content.missing.push(UnsavedVariable { name, why: "its bytes did not arrive".to_owned() });
            }
        }
        for UnsavedVariable { name, why } in self.missing.into_iter().take(VARIABLES) {
            if is_name(&name) && seen.insert(name.clone()) {
                content.missing.push(UnsavedVariable { name, why: shortened(&one_line(&why), REASON_CHARS) });
            }
        }
        content
    }
}

impl CheckpointContent {
    /// The rest of it beside what a later kernel has saved: all but the names that it has `restored`, or given anew, as
    /// far as there is room.
    pub(super) fn left_by(&self, later: &Self, restored: &BTreeSet<String>) -> Self {
        let anew: BTreeSet<&str> = later.names().collect();
        let is_left = |name: &str| !restored.contains(name) && !anew.contains(name);
        let mut variables: Vec<&SavedVariable> =
            self.variables.iter().filter(|variable| is_left(&variable.name)).collect();
        variables.sort_by_key(|variable| std::cmp::Reverse(variable.saved_at));
        let taken = later.variables.iter().map(|variable| variable.bytes).sum();
        let mut room = TOTAL_BYTES.saturating_sub(taken);
        let fitting = variables.into_iter().filter(|variable| {
            let left = room.checked_sub(variable.bytes);
            room = left.unwrap_or(room);
            left.is_some()
        });
        let missing = self.missing.iter().filter(|missing| is_left(&missing.name));
        Self {
            variables: fitting.take(VARIABLES.saturating_sub(later.variables.len())).cloned().collect(),
            missing: missing.take(VARIABLES.saturating_sub(later.missing.len())).cloned().collect(),
        }
    }

    /// Both together.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self {
            variables: [self.variables.as_slice(), &other.variables].concat(),
            missing: [self.missing.as_slice(), &other.missing].concat(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let missing = self.missing.iter().map(|missing| missing.name.as_str());
        self.variables.iter().map(|variable| variable.name.as_str()).chain(missing)
    }

    /// Leaves out what is too old.
    pub(super) fn forget_old(&mut self) {
        self.variables.retain(|variable| variable.age() <= KEPT_FOR);
    }
}

impl SavedVariable {
    pub(super) fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.saved_at))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether it can be the name of a variable: it is shown to models and users.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES
        && name.chars().all(|character| character.is_alphanumeric() || character == '_')
        && name.chars().next().is_some_and(|first| !first.is_numeric())
}

pub(super) fn is_digest(digest: &str) -> bool {
    digest.len() == DIGEST_CHARS && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(variables: serde_json::Value, missing: serde_json::Value) -> CheckpointReport {
        let report = json!({
            "python": "CPython 3.12", "has_cloudpickle": true, "restored": [], "variables": variables, "missing": missing,
        });
        serde_json::from_value(report).unwrap()
    }

    fn names(content: &CheckpointContent) -> Vec<&str> {
        content.variables.iter().map(|variable| variable.name.as_str()).collect()
    }

    #[test]
    fn what_cannot_be_the_name_of_a_variable_is_left_out() {
        let digest = "a".repeat(64);
        let sent = |name: &str| json!({"name": name, "digest": digest, "bytes": 1});
        let names_sent = ["x", "x", "größe", "a b", "a`", "", "1a", "\u{202e}x", &"y".repeat(201)].map(sent);
        let why = "no\n\u{1b}[31m".to_owned() + &"z".repeat(1000);
        let missing = json!([{"name": "f", "why": why}, {"name": "x", "why": ""}, {"name": "-", "why": ""}]);
        let content = report(json!(names_sent), missing).content(|_, _| true);
        assert_eq!(names(&content), ["x", "größe"]);
        let [UnsavedVariable { name, why }] = content.missing.as_slice() else { panic!("{content:?}") };
        assert_eq!(name, "f");
        assert!(why.starts_with("no ") && !why.contains('\u{1b}') && why.chars().count() <= REASON_CHARS + 1);
    }

    #[test]
    fn a_variable_without_its_bytes_is_missing() {
        let sent = |name: &str, digest: &str| json!({"name": name, "digest": digest, "bytes": 5});
        let digest = "b".repeat(64);
        let sent = json!([sent("a", &digest), sent("b", "../../etc/passwd"), sent("c", &"c".repeat(64))]);
        let content = report(sent, json!([])).content(|found, bytes| found == digest && bytes == 5);
        assert_eq!(names(&content), ["a"]);
        assert_eq!(content.missing.len(), 2);
    }

    #[test]
    fn earlier_variables_stay_until_they_are_taken_or_named_anew() {
        let variable = |name: &str, bytes| SavedVariable {
            name: name.to_owned(),
            digest: "d".repeat(64),
            bytes,
            saved_at: now(),
        };
        let earlier = CheckpointContent {
            variables: vec![
                variable("taken", 1),
                variable("anew", 1),
                variable("failed", 1),
                variable("left", 1),
                variable("large", TOTAL_BYTES),
            ],
            missing: vec![UnsavedVariable { name: "gone".to_owned(), why: "an open file".to_owned() }],
        };
        let own = CheckpointContent {
            variables: vec![variable("anew", 1)],
            missing: vec![UnsavedVariable { name: "failed".to_owned(), why: "a generator".to_owned() }],
        };
        let left = earlier.left_by(&own, &BTreeSet::from(["taken".to_owned()]));
        assert_eq!(names(&left), ["left"]);
        let all = own.and(&left);
        assert_eq!(names(&all), ["anew", "left"]);
        assert_eq!(
            all.missing.iter().map(|missing| missing.name.as_str()).collect::<Vec<_>>(),
            ["failed", "gone"]
        );
    }
}
