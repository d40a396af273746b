//! Whether a session was begun as another one would be: only then a client takes it over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::{ApprovalMode, Settings};
use crate::ground::env::{IPYBOX_DOTENV, Variables};
use crate::ground::files::small;

/// The variable by which Claude Code names the conversation to its servers: the same when it is resumed, another one when it
/// is forked.
const CONVERSATION: &str = "CLAUDE_CODE_SESSION_ID";

/// The largest file that is compared, in bytes. All of them are configuration.
const FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The longest JSON with a likeness, in bytes. Each variable of the environment takes some 100, and there may be thousands.
pub(super) const JSON_BYTES: usize = 16 * 1024 * 1024;

/// The conditions that must be the same. Digests, since values are secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionLikeness {
    /// The program: its version, and the file as it was when it was started.
    pub(super) program: String,
    /// All settings, the files that they name, and the variables that the kernel gets.
    pub(super) settings: String,
    /// The client's conversation; `None` if it names none.
    #[serde(default)]
    pub(super) conversation: Option<String>,
    /// All variables, by their names: those that registered servers name must be the same.
    variables: BTreeMap<String, String>,
}

impl SessionLikeness {
    /// That of a session that this process would begin.
    pub(super) fn of(settings: &Settings) -> Self {
        let workspace = settings.workspace.canonicalize().unwrap_or_else(|_| settings.workspace.clone());
        let variables = Variables::load(&workspace);
        let digests =
            variables.all_in_process().map(|(name, value)| (name.to_owned(), digest(&[value]))).collect();
        let conversation = variables.in_process(CONVERSATION).filter(|id| !id.is_empty());
        Self {
            program: program(),
            settings: digest_of(settings, &workspace, &variables),
            conversation: conversation.map(|id| digest(&[id])),
            variables: digests,
        }
    }

    /// The same of another program.
    pub(super) fn of_program(&self, program: String) -> Self {
        Self { program, ..self.clone() }
    }

    /// The reason why a client that would begin a session in this other way cannot have the one of a workspace with this
    /// state.
    pub(super) fn refusal(&self, other: &Self, state: &Path) -> Option<String> {
        let why = if self.program != other.program {
            "another ipybox has begun it"
        } else if self.conversation != other.conversation {
            "it belongs to another conversation"
        } else if self.settings != other.settings {
            "it was begun with other flags, files or variables"
        } else {
            let differing = self.differing_variables(other, state);
            return (!differing.is_empty())
                .then(|| format!("these variables have changed: {}", differing.join(", ")));
        };
        Some(why.to_owned())
    }

    /// The variables that differ in another one, of those that the servers of the workspace with this state name.
    fn differing_variables(&self, other: &Self, state: &Path) -> Vec<String> {
        let registered = small::read_text(&state.join("servers.json"), FILE_BYTES).unwrap_or_default();
        let mut names = placeholders(&registered);
        names.retain(|name| self.variables.get(*name) != other.variables.get(*name));
        names.into_iter().map(str::to_owned).collect()
    }
}

/// An update replaces the program's file, or its version, or both.
pub(super) fn program() -> String {
    use std::os::unix::fs::MetadataExt as _;

    let path = std::env::current_exe().unwrap_or_default();
    let file = std::fs::metadata(&path)
        .map(|file| (file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
        .unwrap_or_default();
    format!("{} {} {file:?}", env!("CARGO_PKG_VERSION"), path.display())
}

fn digest_of(settings: &Settings, workspace: &Path, variables: &Variables) -> String {
    let settings = Settings { workspace: workspace.to_owned(), ..settings.clone() };
    let mut parts = vec![format!("{settings:?}").into_bytes()];
    for file in files(&settings, workspace) {
        parts.push(file.as_os_str().as_encoded_bytes().to_owned());
        // A sandbox has empty files where files are missing. One that cannot be read is an error of whoever begins the
        // session.
        parts.push(match small::read(&workspace.join(file), FILE_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => error.to_string().into_bytes(),
        });
    }
    let policy = settings.sandbox.as_ref().map(|sandbox| sandbox.policy(workspace));
    parts.extend(policy.map(|policy| policy.map_or_else(|error| error.to_string(), |it| it.text()).into()));
    let kernel = variables.for_kernel();
    parts.extend(kernel.into_iter().flat_map(|(name, value)| [name.into_bytes(), value.into_bytes()]));
    if let Some(remote) = &settings.remote {
        let named = remote.token_env.as_deref().and_then(|name| variables.get(name));
        let headers = remote.headers.iter().map(|header| header.text(variables));
        let secrets = [named, remote.token.as_deref()].into_iter().chain(headers);
        parts.extend(secrets.map(|secret| secret.unwrap_or_default().into()));
    }
    parts.push(variables.in_process(IPYBOX_DOTENV).unwrap_or_default().into());
    digest(&parts)
}

/// A digest of parts, which others do not have.
fn digest(parts: &[impl AsRef<[u8]>]) -> String {
    let mut digest = Sha256::new();
    for part in parts.iter().map(AsRef::as_ref) {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    format!("{:x}", digest.finalize())
}

/// The files that decide what a session may do, but for the sandbox's policy.
fn files(settings: &Settings, workspace: &Path) -> Vec<PathBuf> {
    let mut files = vec![workspace.join(".env")];
    if let ApprovalMode::Policy(policy) = &settings.approval.mode {
        files.push(std::path::absolute(policy).unwrap_or_else(|_| policy.clone()));
    }
    files.extend(settings.remote.as_ref().and_then(|remote| remote.ca.clone()));
    files.extend(
        settings.mcp_configs.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone())),
    );
    files
}

/// The variables that registered servers name.
fn placeholders(registered: &str) -> Vec<&str> {
    let mut names: Vec<&str> = registered
        .split("${")
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))?;
            Some(&rest[..end])
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SandboxSettings;

    #[test]
    fn what_decides_is_compared() {
        let workspace = tempfile::tempdir().unwrap();
        let settings = || {
            let state_dir = Some(workspace.path().join("../state"));
            Settings { workspace: workspace.path().to_owned(), state_dir, ..Settings::default() }
        };
        let plain = SessionLikeness::of(&settings());
        assert_eq!(plain, SessionLikeness::of(&settings()));

        let mut asking = settings();
        asking.approval.mode = ApprovalMode::Ask;
        assert_ne!(plain, SessionLikeness::of(&asking));

        let policy = workspace.path().join("policy.toml");
        let mut by_policy = settings();
        by_policy.approval.mode = ApprovalMode::Policy(policy.clone());
        let likenesses = ["default = \"ask\"", "default = \"deny\""].map(|content| {
            std::fs::write(&policy, content).unwrap();
            SessionLikeness::of(&by_policy)
        });
        assert_ne!(likenesses[0], likenesses[1]);

        let mut sandboxed = settings();
        sandboxed.sandbox = Some(SandboxSettings { workspace_config: true, ..SandboxSettings::default() });
        let confined = SessionLikeness::of(&sandboxed);
        let file = workspace.path().join("sandbox-config.json");
        for content in ["", "{", "{}"] {
            std::fs::write(&file, content).unwrap();
            assert_ne!(confined, SessionLikeness::of(&sandboxed), "{content:?}");
        }

        let dotenv = workspace.path().join(".env");
        std::fs::write(&dotenv, "").unwrap();
        assert_eq!(plain, SessionLikeness::of(&settings()));
        std::fs::write(&dotenv, "API_KEY=1").unwrap();
        assert_ne!(plain, SessionLikeness::of(&settings()));
    }

    #[test]
    fn variables_of_servers_are_compared() {
        let state = tempfile::tempdir().unwrap();
        let servers = r#"{"env": {"X": "${A_TOKEN}", "Y": "${MISSING:-d} ${A_TOKEN}"}}"#;
        std::fs::write(state.path().join("servers.json"), servers).unwrap();
        let likeness = |value: &str| SessionLikeness {
            program: String::new(),
            settings: String::new(),
            conversation: None,
            variables: [("A_TOKEN", value), ("UNUSED", value)]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
        };
        assert_eq!(likeness("1").differing_variables(&likeness("2"), state.path()), ["A_TOKEN"]);
        assert!(likeness("1").differing_variables(&likeness("1"), state.path()).is_empty());
    }
}
