//! The consent of the user to what the sandbox policy of a workspace opens, by the policy's content. It is in the state
//! directory, which code in a sandbox neither reads nor writes.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Error;
use super::states::{create_in, create_workspace, states_dir, workspace_state_dir};
use crate::ground::env::Variables;
use crate::ground::files::StateFile;
use crate::kernels::sandbox::{PolicyPaths, SandboxPolicy};

/// The file of consents in the state directory of a workspace.
const FILE: &str = "sandbox-policies.json";

#[derive(Default, Serialize, Deserialize)]
struct ConsentDocument {
    #[serde(default)]
    allowed: Vec<Consent>,
}

#[derive(Serialize, Deserialize)]
struct Consent {
    /// The digest of the policy's file.
    content: String,
    /// The openings, for readers only.
    opens: Vec<String>,
}

/// Whether the user has allowed a policy with this content. Blocks.
pub(super) fn is_given(state_dir: &Path, content: &str) -> io::Result<bool> {
    let document: ConsentDocument = StateFile::new(state_dir.join(FILE)).read()?;
    Ok(document.allowed.iter().any(|consent| consent.content == content))
}

fn give(state_dir: &Path, content: &str, opens: &[String]) -> io::Result<()> {
    StateFile::new(state_dir.join(FILE)).change(|document: &mut ConsentDocument| {
        if !document.allowed.iter().any(|consent| consent.content == content) {
            document.allowed.push(Consent { content: content.to_owned(), opens: opens.to_owned() });
        }
    })
}

/// The sandbox policy of a workspace, `sandbox-config.json`, as its user looks at it before allowing it.
#[derive(Debug)]
pub struct WorkspacePolicy {
    file: PathBuf,
    content: String,
    openings: Vec<String>,
    state_dir: PathBuf,
}

impl WorkspacePolicy {
    /// The policy of `workspace`; `None` if it has none. `state_dir` is as in [`Settings`](super::Settings).
    ///
    /// # Errors
    /// The file is no policy, or the state directory cannot be used.
    pub fn find(workspace: &Path, state_dir: Option<PathBuf>) -> Result<Option<Self>, Error> {
        let workspace = create_workspace(workspace)?;
        let variables = Variables::load(&workspace);
        let states = states_dir(state_dir, &variables)?;
        let state_dir = workspace_state_dir(&states, &workspace);
        create_in(&states, &state_dir, &variables)?;
        let home = variables.in_process("HOME").filter(|home| home.starts_with('/')).unwrap_or("/").into();
        let policy = SandboxPolicy::of_workspace(&workspace)?;
        let file = workspace.join(SandboxPolicy::WORKSPACE_FILE);
        let paths = PolicyPaths { workspace, home, ..PolicyPaths::default() };
        let openings = policy.openings(&paths);
        let content = policy.content_of_workspace();
        Ok(content.map(|content| Self { file, content, openings, state_dir }))
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The openings beyond the default, each as `` `key`: value ``. Safe to show.
    pub fn openings(&self) -> &[String] {
        &self.openings
    }

    /// Whether the user has allowed this content.
    ///
    /// # Errors
    /// The file of consents cannot be read.
    pub fn is_allowed(&self) -> io::Result<bool> {
        is_given(&self.state_dir, &self.content)
    }

    /// Allows this content from now on.
    ///
    /// # Errors
    /// The file of consents cannot be written.
    pub fn allow(&self) -> io::Result<()> {
        give(&self.state_dir, &self.content, &self.openings)
    }
}
