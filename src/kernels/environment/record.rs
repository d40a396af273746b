//! The recorded facts about an interpreter, so that the next start need not run it.
//!
//! A start with a valid record costs one small read and three `stat`s, instead of 40–100 ms for the
//! interpreter. For the managed environment the record, written last, also shows that its creation was
//! completed. It lies beside the environment and not in it: code in the kernel may be allowed to write there,
//! and the record chooses what the host runs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::contents;
use super::probe::PythonFacts;
use crate::ground::files::replacement::{PRIVATE, parent_of, replace};
use crate::ground::files::{if_there, small};

/// The place of one record.
#[derive(Debug, Clone)]
pub(super) struct RecordFile {
    path: PathBuf,
}

/// The installer of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum InstallerTool {
    Uv,
    Pip,
}

/// An interpreter's requested path, and its facts at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EnvironmentRecord {
    pub(super) python: PathBuf,
    pub(super) tool: InstallerTool,
    pub(super) facts: PythonFacts,
    stamp: RecordStamp,
}

/// Distinguishes versions of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RecordStamp {
    inode: u64,
    size_bytes: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

/// The content of a record file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordContent {
    /// It is still valid, as far as `stat` shows.
    True(EnvironmentRecord),
    /// Something has changed since.
    Stale(EnvironmentRecord),
    /// It is of another version of ipybox, or damaged.
    Unreadable,
    /// There is none.
    Missing,
}

impl RecordFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the record and compares it with the files of `python`.
    // Blocking calls on purpose: a handful of `stat`s in a local directory take microseconds.
    pub(super) fn recall(&self, python: &Path) -> RecordContent {
        let text = match small::read(&self.path, small::BY_HAND) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return RecordContent::Missing,
            Err(_) => return RecordContent::Unreadable,
        };
        match serde_json::from_slice::<EnvironmentRecord>(&text) {
            Ok(record) if record.holds_for(python) => RecordContent::True(record),
            Ok(record) => RecordContent::Stale(record),
            Err(_) => RecordContent::Unreadable,
        }
    }

    /// Saves `facts` about `python`, unless `stat` cannot check them later.
    ///
    /// A shim is not saved: which interpreter it runs depends on more than its own file.
    pub(super) fn keep(&self, python: &Path, tool: InstallerTool, facts: &PythonFacts) -> io::Result<()> {
        let record = EnvironmentRecord {
            python: python.to_owned(),
            tool,
            facts: facts.clone(),
            stamp: RecordStamp::of(python)?,
        };
        let (directory, name) = parent_of(&self.path)?;
        replace(&directory, name, PRIVATE, &serde_json::to_vec_pretty(&record)?)
    }

    /// Removes the record before the environment is changed.
    pub(super) fn forget(&self) -> io::Result<()> {
        if_there(std::fs::remove_file(&self.path)).map(drop)
    }
}

impl EnvironmentRecord {
    /// The facts, should packages have been replaced since, by the names of files alone: nothing is run. `None` if more
    /// has changed.
    pub(super) fn after_installations(&self) -> Option<PythonFacts> {
        if !self.is_of(&self.python) {
            return None;
        }
        let [ipython, pydantic] = self.facts.metadata()?;
        let mut facts = self.facts.clone();
        facts.details.ipython = contents::installed(ipython.parent()?, "ipython");
        facts.details.pydantic = contents::installed(pydantic.parent()?, "pydantic");
        Some(facts)
    }

    /// Whether it is about this interpreter, which is still the same.
    fn is_of(&self, python: &Path) -> bool {
        self.python == python
            && self.facts.details.executable == python
            && RecordStamp::of(python).is_ok_and(|stamp| stamp == self.stamp)
    }

    fn holds_for(&self, python: &Path) -> bool {
        self.is_of(python)
            && self.facts.lacking().is_empty()
            && self.facts.metadata().is_some_and(|paths| paths.iter().all(|path| path.exists()))
    }
}

impl RecordStamp {
    /// Follows links: a virtual environment's `python` is a link to the interpreter that may change.
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            inode: metadata.ino(),
            size_bytes: metadata.len(),
            modified_secs: metadata.mtime(),
            modified_nanos: metadata.mtime_nsec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::tests::venv;
    use super::*;

    /// A directory that looks like an environment with IPython 9.5.0 and pydantic 2.6, and its record.
    fn environment() -> (tempfile::TempDir, PathBuf, RecordFile) {
        let directory = tempfile::tempdir().unwrap();
        let python = directory.path().join("bin/python");
        for name in ["bin", "ipython-9.5.0.dist-info", "pydantic-2.6.dist-info"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(&python, "an interpreter").unwrap();
        let file = RecordFile::new(directory.path().join("python.json"));
        (directory, python, file)
    }

    fn check_stale(change: impl FnOnce(&Path)) {
        let (directory, python, file) = environment();
        let facts = venv(directory.path().to_str().unwrap(), Some("9.5.0"), Some("2.6"));
        file.keep(&python, InstallerTool::Uv, &facts).unwrap();
        assert!(matches!(file.recall(&python), RecordContent::True(record) if record.facts == facts));
        change(directory.path());
        assert!(matches!(file.recall(&python), RecordContent::Stale(_)));
    }

    #[test]
    fn a_record_is_true_until_something_changes() {
        check_stale(|root| std::fs::remove_dir(root.join("ipython-9.5.0.dist-info")).unwrap());
        check_stale(|root| std::fs::write(root.join("bin/python"), "another interpreter").unwrap());
        check_stale(|root| std::fs::remove_file(root.join("bin/python")).unwrap());
    }

    #[test]
    fn packages_that_were_replaced_are_found_by_their_names() {
        let (directory, python, file) = environment();
        let root = directory.path();
        let facts = venv(root.to_str().unwrap(), Some("9.5.0"), Some("2.6"));
        file.keep(&python, InstallerTool::Uv, &facts).unwrap();
        let replace = |before: &str, after: &str| {
            std::fs::rename(root.join(before), root.join(after)).unwrap();
            match file.recall(&python) {
                RecordContent::Stale(record) => record.after_installations(),
                recalled => panic!("{recalled:?}"),
            }
        };
        let found = replace("pydantic-2.6.dist-info", "pydantic-2.11.0.dist-info").unwrap();
        assert_eq!(found, venv(root.to_str().unwrap(), Some("9.5.0"), Some("2.11.0")));
        let found = replace("pydantic-2.11.0.dist-info", "pydantic_core-2.11.0.dist-info").unwrap();
        assert_eq!((found.lacking(), found.details.pydantic), (vec!["pydantic>=2.6".to_owned()], None));
        std::fs::write(&python, "another interpreter").unwrap();
        assert_eq!(replace("pydantic_core-2.11.0.dist-info", "pydantic-2.11.0.dist-info"), None);
    }

    #[test]
    fn a_record_of_another_interpreter_is_stale() {
        let (directory, python, file) = environment();
        let facts = venv(directory.path().to_str().unwrap(), Some("9.5.0"), Some("2.6"));
        file.keep(&python, InstallerTool::Pip, &facts).unwrap();
        let other = directory.path().join("bin/python3");
        std::fs::write(&other, "an interpreter").unwrap();
        assert!(matches!(file.recall(&other), RecordContent::Stale(_)));
    }

    #[test]
    fn a_damaged_record_is_distinguished_from_a_missing_one() {
        let (_directory, python, file) = environment();
        assert_eq!(file.recall(&python), RecordContent::Missing);
        std::fs::write(&file.path, "{\"python\": 1}").unwrap();
        assert_eq!(file.recall(&python), RecordContent::Unreadable);
        file.forget().unwrap();
        file.forget().unwrap();
        assert_eq!(file.recall(&python), RecordContent::Missing);
    }
}
