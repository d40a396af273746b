//! The environment of a process: of ours, or of one that asks for a session.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The environment of a process.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct ProcessEnvironment(pub(super) BTreeMap<String, String>);

impl ProcessEnvironment {
    /// That of this process, without what is no Unicode.
    pub(super) fn ours() -> Self {
        let variables = std::env::vars_os();
        let texts =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self(texts.collect())
    }
}

/// Without the values, which may be secrets.
impl std::fmt::Debug for ProcessEnvironment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}
