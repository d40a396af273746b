//! In how many cells each action has worked or failed, as the host has seen it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ground::files::{StateFile, create_private_directory};

/// The counts of all actions: `uses.json`.
#[derive(Debug)]
pub(crate) struct ActionUses {
    file: StateFile,
    directory: PathBuf,
}

/// The cells that have called an action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UseCount {
    /// The number of cells that ended without an error.
    pub(crate) worked: u64,
    /// The number of the others.
    pub(crate) failed: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct UsesDocument {
    actions: BTreeMap<String, UseCount>,
}

impl ActionUses {
    pub(super) fn in_directory(directory: &Path) -> Self {
        Self { file: StateFile::new(directory.join("uses.json")), directory: directory.to_owned() }
    }

    /// The counts by name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn all(&self) -> io::Result<BTreeMap<String, UseCount>> {
        Ok(self.file.read::<UsesDocument>()?.actions)
    }

    /// Counts a cell that has called these actions.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn count(&self, names: &[String], has_worked: bool) -> io::Result<()> {
        create_private_directory(&self.directory)?;
        self.file.change(|document: &mut UsesDocument| {
            for name in names {
                let count = document.actions.entry(name.clone()).or_default();
                count.worked += u64::from(has_worked);
                count.failed += u64::from(!has_worked);
            }
        })
    }

    /// Forgets an action that is removed.
    pub(super) fn forget(&self, name: &str) -> io::Result<()> {
        self.file.change(|document: &mut UsesDocument| {
            document.actions.remove(name);
        })
    }
}
