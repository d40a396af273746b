//! Notes about saved variables, for the model.

use std::time::Duration;

use super::manifest::{CheckpointConditions, CheckpointContent, Manifest, SavedVariable};
use crate::ground::text::first_few;

/// The number of names that a note has, of saved and of missing variables.
const SAVED_NAMES: usize = 30;
const MISSING_NAMES: usize = 10;

/// The offer to a fresh kernel; `None` if there is nothing to have back.
pub(super) fn offer(content: &CheckpointContent) -> Option<String> {
    let CheckpointContent { variables, missing } = content;
    let newest = variables.iter().map(SavedVariable::age).min()?;
    let saved = names(variables.iter().map(|variable| variable.name.as_str()), SAVED_NAMES);
    let first = &variables.first()?.name;
    let mut note = format!(
        "Variables of an earlier kernel are saved ({}): {saved}. To have them back, run `import ipybox_checkpoint; \
         ipybox_checkpoint.restore()`, or `ipybox_checkpoint.restore(\"{first}\")` for single ones.",
        ago(newest)
    );
    if !missing.is_empty() {
        let names = names(missing.iter().map(|missing| missing.name.as_str()), MISSING_NAMES);
        note += &format!(" Not saved: {names}; `restore()` says why.");
    }
    Some(note)
}

/// Why what `others` hold is not offered; `None` if there is nothing.
pub(super) fn not_offered(
    others: &[Manifest],
    conditions: &CheckpointConditions,
    python: &str,
) -> Option<String> {
    let other = others.iter().find(|other| !other.content.variables.is_empty())?;
    let why = match &other.conditions {
        them if them.site != conditions.site => {
            format!("saved by a kernel {}, and this one runs {}", them.site, conditions.site)
        }
        them if them.policy != conditions.policy => {
            "saved by a kernel in a sandbox with another policy".to_owned()
        }
        _ => format!("saved by Python {}, and this is {python}", other.python),
    };
    Some(format!("Variables of an earlier session are not offered to this kernel: they were {why}."))
}

fn names<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> String {
    first_few(names.map(|name| format!("`{name}`")), most)
}

fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..=59 => format!("{seconds} s ago"),
        60..=3_599 => format!("{} min ago", seconds / 60),
        3_600..=86_399 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::UnsavedVariable;
    use super::*;

    fn content(names: &[&str]) -> CheckpointContent {
        let variables = names.iter().map(|name| SavedVariable {
            name: (*name).to_owned(),
            digest: String::new(),
            bytes: 0,
            saved_at: 0,
        });
        CheckpointContent { variables: variables.collect(), missing: Vec::new() }
    }

    #[test]
    fn an_offer_names_what_is_saved_and_what_is_not() {
        let mut saved = content(&["df", "model"]);
        saved.missing.push(UnsavedVariable { name: "file".to_owned(), why: "an open file".to_owned() });
        let note = offer(&saved).unwrap();
        for words in ["`df`", "`model`", "restore(\"df\")", "Not saved: `file`"] {
            assert!(note.contains(words), "{note}");
        }
        assert!(offer(&content(&[])).is_none());
    }

    #[test]
    fn a_long_offer_is_shortened() {
        let names: Vec<String> = (0..100).map(|number| format!("v{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let note = offer(&content(&names)).unwrap();
        assert!(note.contains("and 70 more") && !note.contains("`v30`"), "{note}");
    }

    #[track_caller]
    fn check_not_offered(site: &str, policy: &str, python: &str, words: &str) {
        let manifest = |site: &str, policy: &str| Manifest {
            conditions: CheckpointConditions { site: site.to_owned(), policy: policy.to_owned() },
            python: python.to_owned(),
            tag: String::new(),
            content: content(&["x"]),
        };
        let here = CheckpointConditions { site: "in a sandbox (bwrap)".to_owned(), policy: "p".to_owned() };
        let note = not_offered(&[manifest(site, policy)], &here, "3.12").unwrap();
        assert!(note.contains(words), "{note}");
    }

    #[test]
    fn a_note_says_why_variables_are_not_offered() {
        check_not_offered(
            "without a sandbox",
            "",
            "3.12",
            "without a sandbox, and this one runs in a sandbox",
        );
        check_not_offered("in a sandbox (bwrap)", "q", "3.12", "another policy");
        check_not_offered("in a sandbox (bwrap)", "p", "3.11", "by Python 3.11, and this is 3.12");
        let here = CheckpointConditions::default();
        assert!(not_offered(&[], &here, "3.12").is_none());
    }
}
