//! The backends that make sandboxes.

use serde::Deserialize;

/// The program that makes the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SandboxBackend {
    /// Anthropic's sandbox-runtime, `srt`.
    #[default]
    Srt,
    /// Bubblewrap, directly: Linux only, needs no Node.js, and starts faster.
    #[serde(rename = "bwrap")]
    Bubblewrap,
}

impl SandboxBackend {
    /// As the flag `--sandbox-backend` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Srt => "srt",
            Self::Bubblewrap => "bwrap",
        }
    }
}
