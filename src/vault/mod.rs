//! Secrets of a state directory, by key, in a file that this user alone can read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::StateFile;

/// The secrets of a state directory. All methods block.
#[derive(Debug)]
pub(crate) struct Vault {
    file: StateFile,
}

#[derive(Default, Serialize, Deserialize)]
struct Document {
    secrets: BTreeMap<String, String>,
}

impl Vault {
    /// The vault of a state directory, which may not exist yet.
    pub(crate) fn in_directory(state_directory: &Path) -> Self {
        Self { file: StateFile::new(state_directory.join("secrets.json")) }
    }

    /// The secret under `key`.
    pub(crate) fn get(&self, key: &str) -> io::Result<Option<String>> {
        Ok(self.file.read::<Document>()?.secrets.remove(key))
    }

    /// Keeps a secret under `key`, in place of an earlier one.
    pub(crate) fn put(&self, key: &str, secret: &str) -> io::Result<()> {
        self.file.change(|document: &mut Document| {
            document.secrets.insert(key.to_owned(), secret.to_owned());
        })
    }

    /// Removes the secret under `key`. Returns whether there was one.
    pub(crate) fn remove(&self, key: &str) -> io::Result<bool> {
        let mut was_there = false;
        self.file.change(|document: &mut Document| was_there = document.secrets.remove(key).is_some())?;
        Ok(was_there)
    }
}
