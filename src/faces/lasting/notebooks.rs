//! The notebooks of sessions, also of those that have ended.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;
use super::list::KeptSessions;
use crate::config::{notebooks_dir, workspace_state_dir};

/// The least characters of an id that name a session: the beginning of one is enough.
const ID_CHARS: usize = 4;

impl KeptSessions {
    /// The notebook of the session with this id, or with the only id that begins so; of one that has ended, if ipybox has
    /// chosen its place.
    ///
    /// # Errors
    /// There is none.
    pub fn notebook(&self, id: &str) -> Result<PathBuf, Error> {
        if let Some(notebook) =
            self.list()?.into_iter().find(|session| session.id == id).and_then(|it| it.notebook)
        {
            return Ok(notebook);
        }
        let workspaces = workspace_state_dir(&self.states, Path::new(""));
        let workspaces = workspaces.parent().unwrap_or(&self.states);
        let directories = std::fs::read_dir(workspaces).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = directories
            .flat_map(|directory| notebooks_in(&notebooks_dir(&directory.path())))
            .filter(|(_, path)| id_of(path).is_some_and(|its| id.len() >= ID_CHARS && its.starts_with(id)))
            .map(|(_, path)| path)
            .collect();
        match (found.pop(), found.is_empty()) {
            (Some(path), true) => Ok(path),
            _ => Err(Error::NoNotebookOf { id: id.to_owned() }),
        }
    }

    /// The newest of the notebooks that ipybox has made for a workspace.
    ///
    /// # Errors
    /// There is none.
    pub fn newest_notebook(&self, workspace: &Path) -> Result<PathBuf, Error> {
        let path = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let newest =
            notebooks_in(&notebooks_dir(&workspace_state_dir(&self.states, &path))).into_iter().max();
        newest.map(|(_, path)| path).ok_or(Error::NoNotebook { path })
    }
}

fn notebooks_in(directory: &Path) -> Vec<(SystemTime, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let notebooks = entries.filter(|entry| id_of(&entry.path()).is_some());
    notebooks.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect()
}

/// The id in the name of a notebook that ipybox has made, `<date>-<time>-<id>.ipynb`.
fn id_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".ipynb")?;
    Some(name.rsplit_once('-')?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notebooks_are_found_by_their_sessions_and_workspaces() {
        let root = tempfile::tempdir().unwrap();
        let (states, workspace) = (root.path().join("states"), root.path().join("w"));
        std::fs::create_dir(&workspace).unwrap();
        let workspace = workspace.canonicalize().unwrap();
        let directory = notebooks_dir(&workspace_state_dir(&states, &workspace));
        std::fs::create_dir_all(&directory).unwrap();
        let sessions = KeptSessions { states };
        assert!(sessions.newest_notebook(&workspace).is_err());
        for (age, name) in ["2026-01-02-030405-abcd1234.ipynb", "2026-01-02-030406-abcd5678.ipynb", "x.txt"]
            .iter()
            .enumerate()
        {
            let file = std::fs::File::create(directory.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64)).unwrap();
        }
        let path = |name: &str| directory.join(name);
        assert_eq!(sessions.newest_notebook(&workspace).unwrap(), path("2026-01-02-030406-abcd5678.ipynb"));
        assert_eq!(sessions.notebook("abcd1").unwrap(), path("2026-01-02-030405-abcd1234.ipynb"));
        for wrong in ["", "a", "abcd", "bcd1", "ffffffff", "../x"] {
            let error = sessions.notebook(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("the session `{wrong}`: there is none")), "{error}");
        }
    }
}
