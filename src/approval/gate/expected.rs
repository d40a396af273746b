//! The result that a server is about to return, to be entered into the provenance memory before code gets it.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::approval::provenance::{AwaitedSource, ProvenanceMemory};

/// The coming result of a server. Code gets it once it is entered.
#[derive(Debug)]
pub(crate) struct ExpectedResult {
    memory: Arc<ProvenanceMemory>,
    pub(super) reading: AwaitedSource,
}

impl ExpectedResult {
    /// The result of a call whose server has its label from now on.
    pub(super) fn begin(memory: Arc<ProvenanceMemory>, server: &str, tool: &str) -> Self {
        let reading = memory.begin(server, tool);
        Self { memory, reading }
    }

    /// Enters the texts that `write` writes.
    pub(crate) fn enter(&self, write: impl FnOnce(&mut dyn Write) -> fmt::Result) {
        self.memory.enter(self.reading, write);
    }
}
