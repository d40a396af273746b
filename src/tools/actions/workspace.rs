//! The copies of actions that code imports: `gentools/<category>/<name>/` in a workspace.
//!
//! Code can write there: no link is followed, and nothing that is read is trusted.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;

use super::record::{ActionFiles, SOURCES, SavedAction, digest, parser_path};
use super::store::SOURCE_BYTES;
use crate::ground::files::inside;
use crate::ground::files::replacement::{Replacement, sweep};
use crate::ground::files::{if_there, remove_tree_in};

/// The directory of all actions in a workspace.
const DIRECTORY: &str = "gentools";

/// The actions of a workspace. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct WorkspaceActions {
    workspace: PathBuf,
}

impl WorkspaceActions {
    pub(crate) fn of_workspace(workspace: &Path) -> Self {
        Self { workspace: workspace.to_owned() }
    }

    /// The workspace.
    pub(crate) fn path(&self) -> &Path {
        &self.workspace
    }

    /// The differences between the copy of an action and the saved one, in words; `None` if there are none.
    pub(crate) fn difference(&self, action: &SavedAction) -> Option<String> {
        let own = SOURCES.map(|name| (name, place(&action.category, &action.name).join(name)));
        let parsers = action.files.keys().filter_map(|name| Some((name.as_str(), parser_path(name)?)));
        let differs = own.into_iter().chain(parsers).filter_map(|(name, path)| match self.read(&path) {
            Ok(text) if action.files.get(name) == Some(&digest(text.as_bytes())) => None,
            Ok(_) => Some(format!("`{}` is not as it was saved", path.display())),
            Err(error) => Some(format!("`{}` cannot be read: {error}", path.display())),
        });
        let differs: Vec<String> = differs.collect();
        (!differs.is_empty()).then(|| differs.join("; "))
    }

    /// The text of a parser, if the workspace has it.
    ///
    /// # Errors
    /// The file cannot be read, or is too large.
    pub(super) fn parser(&self, path: &Path) -> io::Result<Option<String>> {
        if_there(self.read(path))
    }

    /// Puts the copy of an action in place, as a whole; what has its name is replaced.
    ///
    /// # Errors
    /// The files cannot be written, or a directory above them is a link.
    pub(crate) fn put(&self, category: &str, name: &str, files: &ActionFiles) -> io::Result<()> {
        let own = files.iter().filter(|(name, _)| SOURCES.contains(&name.as_str()));
        let own = own.map(|(name, text)| (name.as_str(), text.as_str()));
        self.put_directory(&place(category, name), own)
    }

    /// Puts a directory with these files in place, as a whole.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub(super) fn put_directory<'f>(
        &self,
        path: &Path,
        files: impl Iterator<Item = (&'f str, &'f str)>,
    ) -> io::Result<()> {
        let above = path.parent().unwrap_or(Path::new(""));
        let above = Dir::from_std_file(inside::make_directory(&self.workspace, above)?.into());
        sweep(&above);
        let written = Replacement::directory(&above)?;
        written.fill(files)?;
        written.exchange(path.file_name().and_then(|name| name.to_str()).unwrap_or_default())
    }

    /// Removes the copy of an action, if it is as it was saved. Returns whether it was.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(&self, action: &SavedAction) -> io::Result<bool> {
        if self.difference(action).is_some() {
            return Ok(false);
        }
        let above = inside::directory(&self.workspace, &Path::new(DIRECTORY).join(&action.category))?;
        if_there(remove_tree_in(&above, &action.name))?;
        Ok(true)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let mut bytes = Vec::new();
        let file = inside::open(&self.workspace, path)?;
        file.take(SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > SOURCE_BYTES {
            let why = format!("it is larger than {SOURCE_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    }
}

fn place(category: &str, name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(category).join(name)
}
