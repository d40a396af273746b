//! One result of a check, and its text. Pure.

use serde::Serialize;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CheckFinding {
    /// The name of the check; stable across versions.
    pub(crate) name: &'static str,
    /// Its status.
    pub(crate) status: FindingStatus,
    /// The findings: version, path, output.
    pub(crate) found: String,
    /// The consequence: what does not work for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) consequence: Option<String>,
    /// The remedy.
    #[serde(flatten)]
    pub(crate) remedy: Option<CheckRemedy>,
}

/// The status of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FindingStatus {
    /// All is well.
    Ok,
    /// It works with a limitation, or only something else does not work.
    Warning,
    /// The function of the group does not work.
    Failed,
    /// It does not matter here.
    NotNeeded,
}

/// The way to fix something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckRemedy {
    /// A command to run.
    Command(String),
    /// Advice to read.
    Advice(String),
}

impl CheckFinding {
    /// All is well.
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, FindingStatus::Ok, found)
    }

    /// It does not matter, for the reason in `found`.
    pub(crate) fn not_needed(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, FindingStatus::NotNeeded, found)
    }

    /// A limitation.
    pub(crate) fn warning(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        remedy: CheckRemedy,
    ) -> Self {
        let finding = Self::new(name, FindingStatus::Warning, found);
        Self { consequence: Some(consequence.into()), remedy: Some(remedy), ..finding }
    }

    /// The function of the group does not work.
    pub(crate) fn failed(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        remedy: CheckRemedy,
    ) -> Self {
        Self { status: FindingStatus::Failed, ..Self::warning(name, found, consequence, remedy) }
    }

    /// Whether the check failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.status == FindingStatus::Failed
    }

    fn new(name: &'static str, status: FindingStatus, found: impl Into<String>) -> Self {
        Self { name, status, found: found.into(), consequence: None, remedy: None }
    }
}

impl CheckRemedy {
    /// As text, for the end of a sentence.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Command(command) => format!("run `{command}`"),
            Self::Advice(advice) => advice.clone(),
        }
    }
}

/// Findings as they follow the first words of an error: one line each, and then the hints.
pub(super) fn text_of(findings: &[CheckFinding]) -> String {
    let mut text = String::new();
    let mut hints = String::new();
    for (number, CheckFinding { name, found, remedy, .. }) in findings.iter().enumerate() {
        let start = if number == 0 { ": " } else { "; " };
        text.push_str(&format!("{start}{name}: {found}"));
        let hint = remedy.as_ref().map(|remedy| format!("\nhint: {}", remedy.words())).unwrap_or_default();
        if !hints.contains(&hint) {
            hints.push_str(&hint);
        }
    }
    text + &hints
}
