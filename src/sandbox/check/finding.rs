//! One thing that was looked at, and how it is told. Pure.

use serde::Serialize;

/// What came of looking at one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at; never changes from version to version.
    pub(crate) name: &'static str,
    /// Whether it is as it should be.
    pub(crate) status: Status,
    /// What is there: version, path, what was said.
    pub(crate) found: String,
    /// What does not work because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) consequence: Option<String>,
    /// What mends it.
    #[serde(flatten)]
    pub(crate) remedy: Option<Remedy>,
}

/// Whether something is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// It is.
    Ok,
    /// It works, or only something else does not.
    Warning,
    /// What the group is about does not work.
    Failed,
    /// It does not matter here.
    NotNeeded,
}

/// What mends something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Remedy {
    /// To be typed as it is.
    Command(String),
    /// To be read.
    Advice(String),
}

impl Finding {
    /// All is well.
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, found)
    }

    /// It does not matter, for the reason in `found`.
    pub(crate) fn not_needed(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::NotNeeded, found)
    }

    /// Something lesser does not work.
    pub(crate) fn warning(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        let finding = Self::new(name, Status::Warning, found);
        Self { consequence: Some(consequence.into()), remedy: Some(remedy), ..finding }
    }

    /// What the group is about does not work.
    pub(crate) fn failed(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        Self { status: Status::Failed, ..Self::warning(name, found, consequence, remedy) }
    }

    /// Whether it stands in the way.
    pub(crate) fn is_failed(&self) -> bool {
        self.status == Status::Failed
    }

    fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { name, status, found: found.into(), consequence: None, remedy: None }
    }
}

impl Remedy {
    /// In words, for the end of a sentence.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Command(command) => format!("run `{command}`"),
            Self::Advice(advice) => advice.clone(),
        }
    }
}

/// Findings as they follow the first words of an error: one line each, and then the hints.
pub(super) fn text_of(findings: &[Finding]) -> String {
    let mut text = String::new();
    let mut hints = String::new();
    for (number, Finding { name, found, remedy, .. }) in findings.iter().enumerate() {
        let start = if number == 0 { ": " } else { "; " };
        text.push_str(&format!("{start}{name}: {found}"));
        let hint = remedy.as_ref().map(|remedy| format!("\nhint: {}", remedy.words())).unwrap_or_default();
        if !hints.contains(&hint) {
            hints.push_str(&hint);
        }
    }
    text + &hints
}
