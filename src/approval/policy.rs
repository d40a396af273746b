//! What is allowed, asked for or denied without anybody having been asked.

use std::sync::Arc;

use super::action::Action;

/// What becomes of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// It runs.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// Decides about actions by their names, arguments and annotations.
#[derive(Debug, Clone)]
pub struct Policy {
    default: Effect,
}

/// Why a text is no policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {}

/// What a policy says of one action, and which of its rules says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) effect: Effect,
    /// The rule in words for a user; `None` if it is the default.
    pub(super) rule: Option<Arc<str>>,
}

impl Policy {
    /// The same for every action.
    pub fn always(effect: Effect) -> Self {
        Self { default: effect }
    }

    /// Reads a policy from a file.
    pub fn read(_path: &std::path::Path) -> Result<Self, PolicyError> {
        Ok(Self::always(Effect::Ask))
    }

    pub(super) fn judge(&self, _action: &Action) -> Judgement {
        Judgement { effect: self.default, rule: None }
    }
}
