//! The sandbox of Codex, in its own words: it sends them with each call of a tool to servers that ask for them.
//!
//! The forms are those of Codex 0.171 (`permissionProfile`) and of versions up to 0.119 (`sandboxPolicy`). Whatever is not known here is refused:
//! it may take something away.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::client_permissions::{ClientAccess, ClientPermissions};
use super::paths::real;

/// Names in a directory that Codex keeps from its commands though they can write the directory.
const PROTECTED: [&str; 3] = [".git", ".agents", ".codex"];

/// The directories that its `minimal` stands for, of programs and libraries.
const MINIMAL: [&str; 8] =
    ["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"];

/// Why the state cannot be obeyed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableClientState {
    /// It has a form that is not known.
    #[error("read the sandbox that the client has sent: {0}")]
    Form(#[from] serde_json::Error),
    /// It says nothing of permissions.
    #[error(
        "read the sandbox that the client has sent: it has neither `permissionProfile` nor `sandboxPolicy`"
    )]
    Empty,
    /// A part of it means nothing here.
    #[error("read the sandbox that the client has sent: {what} `{value}` is not known")]
    Unknown {
        /// The kind of part.
        what: &'static str,
        /// The part.
        value: String,
    },
    /// A path leads nowhere.
    #[error("find `{path}`, which the client's sandbox names", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The value of `_meta`, of which only this matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SandboxState {
    permission_profile: Option<Profile>,
    sandbox_policy: Option<LegacyPolicy>,
    sandbox_cwd: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Profile {
    Managed { file_system: FileSystem, network: Network },
    Disabled,
    External { network: Network },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum FileSystem {
    Restricted {
        entries: Vec<Entry>,
        /// The depth to which it looks for matches of patterns: ours has no such limit.
        #[serde(default, rename = "glob_scan_max_depth")]
        _depth: Option<u64>,
    },
    Unrestricted,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: EntryPath,
    access: Access,
    #[serde(default)]
    missing_path_behavior: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum EntryPath {
    Path { path: PathBuf },
    GlobPattern { pattern: String },
    Special { value: Special },
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Special {
    Root,
    Minimal,
    #[serde(alias = "current_working_directory")]
    ProjectRoots {
        #[serde(default)]
        subpath: Option<PathBuf>,
    },
    Tmpdir,
    SlashTmp,
    /// Codex itself ignores it.
    Unknown {
        path: String,
    },
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    Read,
    Write,
    #[serde(alias = "none")]
    Deny,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Network {
    Restricted,
    Enabled,
}

/// The policy of earlier versions.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
enum LegacyPolicy {
    DangerFullAccess,
    ExternalSandbox {
        #[serde(default = "restricted")]
        network_access: Network,
    },
    ReadOnly {
        #[serde(default)]
        network_access: bool,
    },
    WorkspaceWrite {
        #[serde(default)]
        writable_roots: Vec<PathBuf>,
        #[serde(default)]
        network_access: bool,
        #[serde(default, rename = "exclude_tmpdir_env_var")]
        _exclude_tmpdir: bool,
        #[serde(default)]
        exclude_slash_tmp: bool,
    },
}

fn restricted() -> Network {
    Network::Restricted
}

impl From<Access> for ClientAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
            Access::Deny => Self::Nothing,
        }
    }
}

impl ClientPermissions {
    /// Reads the value of `codex/sandbox-state-meta`.
    ///
    /// # Errors
    /// It has a part that is not known, or names a path that cannot be resolved.
    pub(crate) fn of_codex(state: &Value) -> Result<Self, UnreadableClientState> {
        let SandboxState { permission_profile, sandbox_policy, sandbox_cwd } =
            SandboxState::deserialize(state)?;
        let cwd = directory(&sandbox_cwd)?;
        match (permission_profile, sandbox_policy) {
            (Some(profile), _) => Self::of_profile(profile, &cwd),
            (None, Some(policy)) => Self::of_legacy(policy, &cwd),
            (None, None) => Err(UnreadableClientState::Empty),
        }
    }

    fn of_profile(profile: Profile, cwd: &Path) -> Result<Self, UnreadableClientState> {
        let (entries, network) = match profile {
            Profile::Disabled => return Ok(Self::everything(true)),
            // Its sandbox is around us, too.
            Profile::External { network }
            | Profile::Managed { file_system: FileSystem::Unrestricted, network } => {
                return Ok(Self::everything(network == Network::Enabled));
            }
            Profile::Managed { file_system: FileSystem::Restricted { entries, .. }, network } => {
                (entries, network)
            }
        };
        let mut permissions = Self { has_network: network == Network::Enabled, ..Self::default() };
        for entry in entries {
            permissions.add_entry(entry, cwd)?;
        }
        permissions.protect_roots()
    }

    fn of_legacy(policy: LegacyPolicy, cwd: &Path) -> Result<Self, UnreadableClientState> {
        let (roots, has_network, has_tmp) = match policy {
            LegacyPolicy::DangerFullAccess => return Ok(Self::everything(true)),
            LegacyPolicy::ExternalSandbox { network_access } => {
                return Ok(Self::everything(network_access == Network::Enabled));
            }
            LegacyPolicy::ReadOnly { network_access } => (Vec::new(), network_access, false),
            LegacyPolicy::WorkspaceWrite { writable_roots, network_access, exclude_slash_tmp, .. } => {
                let roots = writable_roots.into_iter().chain([cwd.to_owned()]).collect();
                (roots, network_access, !exclude_slash_tmp)
            }
        };
        let mut permissions = Self { has_network, ..Self::default() };
        permissions.add("/".into(), ClientAccess::Read);
        for root in roots.into_iter().chain(has_tmp.then(|| "/tmp".into())) {
            permissions.add(resolved(root)?, ClientAccess::Write);
        }
        permissions.protect_roots()
    }

    fn add_entry(&mut self, entry: Entry, cwd: &Path) -> Result<(), UnreadableClientState> {
        let Entry { path, access, missing_path_behavior } = entry;
        let is_skipped = missing_path_behavior.as_deref() == Some("skip");
        let access = ClientAccess::from(access);
        let path = match path {
            EntryPath::Path { path } => path,
            EntryPath::GlobPattern { pattern } if access == ClientAccess::Nothing => {
                self.hidden.insert(cwd.join(pattern).to_string_lossy().into_owned());
                return Ok(());
            }
            EntryPath::GlobPattern { pattern } => {
                return Err(UnreadableClientState::Unknown { what: "a pattern that opens", value: pattern });
            }
            EntryPath::Special { value } => match value {
                Special::Root => "/".into(),
                Special::ProjectRoots { subpath } => cwd.join(subpath.unwrap_or_default()),
                Special::SlashTmp => "/tmp".into(),
                Special::Minimal => {
                    for path in MINIMAL {
                        self.add(resolved(path.into())?, access);
                    }
                    return Ok(());
                }
                // Only the client knows where that is: what it opens stays closed.
                Special::Tmpdir if access != ClientAccess::Nothing => return Ok(()),
                Special::Tmpdir => {
                    return Err(UnreadableClientState::Unknown {
                        what: "a closed",
                        value: "tmpdir".to_owned(),
                    });
                }
                Special::Unknown { path } => {
                    return Err(UnreadableClientState::Unknown { what: "the special path", value: path });
                }
            },
        };
        let path = resolved(path)?;
        self.optional.extend(is_skipped.then(|| path.clone()));
        self.add(path, access);
        Ok(())
    }

    /// Adds what Codex protects in each directory that is writable.
    fn protect_roots(mut self) -> Result<Self, UnreadableClientState> {
        let writable = self.files.iter().filter(|(_, access)| **access == ClientAccess::Write);
        let protected: Vec<PathBuf> =
            writable.flat_map(|(root, _)| PROTECTED.map(|name| root.join(name))).collect();
        for path in protected {
            let path = resolved(path)?;
            if !self.files.contains_key(&path) {
                self.optional.insert(path.clone());
                self.files.insert(path, ClientAccess::Read);
            }
        }
        Ok(self)
    }
}

/// The directory that a `file:` URI or an absolute path names.
fn directory(text: &str) -> Result<PathBuf, UnreadableClientState> {
    let path = match url::Url::parse(text) {
        Ok(url) => url.to_file_path().ok(),
        Err(_) => Some(PathBuf::from(text)),
    };
    let unknown = || UnreadableClientState::Unknown { what: "`sandboxCwd`", value: text.to_owned() };
    resolved(path.filter(|path| path.is_absolute()).ok_or_else(unknown)?)
}

/// The path without links.
fn resolved(path: PathBuf) -> Result<PathBuf, UnreadableClientState> {
    if !path.is_absolute() {
        let value = path.display().to_string();
        return Err(UnreadableClientState::Unknown { what: "the relative path", value });
    }
    real(&path).map_err(|source| UnreadableClientState::Path { path, source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The entries that hold in any case, as `access path`, after the network.
    fn read(state: &Value) -> Result<Vec<String>, String> {
        let permissions = ClientPermissions::of_codex(state).map_err(|error| error.to_string())?;
        let files = permissions.files().filter(|(path, _)| !permissions.is_optional(path));
        let files = files.map(|(path, access)| format!("{access:?} {}", path.display()));
        let hidden = permissions.hidden().map(|pattern| format!("hidden {pattern}"));
        Ok([format!("network {}", permissions.has_network)].into_iter().chain(files).chain(hidden).collect())
    }

    fn restricted_to(entries: &Value) -> Value {
        json!({
            "permissionProfile": {
                "type": "managed",
                "file_system": {"type": "restricted", "entries": entries},
                "network": "restricted",
            },
            "codexLinuxSandboxExe": "/opt/codex",
            "sandboxCwd": "file:///nowhere/some%20project",
            "useLegacyLandlock": false,
            "useMxc": false,
        })
    }

    #[test]
    fn what_codex_sends_is_read() {
        // As Codex 0.171 has sent it with `--sandbox workspace-write`.
        let entries = json!([
            {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
            {"path": {"type": "path", "path": "/nowhere/some project"}, "access": "write"},
            {"path": {"type": "special", "value": {"kind": "slash_tmp"}}, "access": "write"},
            {"path": {"type": "special", "value": {"kind": "tmpdir"}}, "access": "write"},
            {"path": {"type": "path", "path": "/nowhere/some project/.git"}, "access": "read",
             "missing_path_behavior": "skip"},
        ]);
        let expected = ["network false", "Read /", "Write /nowhere/some project", "Write /tmp"];
        assert_eq!(read(&restricted_to(&entries)).unwrap(), expected);
    }

    #[test]
    fn what_codex_protects_in_writable_directories_is_read_alone_if_it_is_there() {
        let entries = json!([{"path": {"type": "path", "path": "/nowhere"}, "access": "write"}]);
        let permissions = ClientPermissions::of_codex(&restricted_to(&entries)).unwrap();
        for name in PROTECTED {
            let path = Path::new("/nowhere").join(name);
            assert!(
                permissions.is_optional(&path) && permissions.access(&path) == ClientAccess::Read,
                "{name}"
            );
        }
    }

    #[test]
    fn denials_patterns_and_project_roots_are_read() {
        let entries = json!([
            {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"},
            {"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"},
            {"path": {"type": "special", "value": {"kind": "project_roots", "subpath": "keys"}}, "access": "deny"},
            {"path": {"type": "glob_pattern", "pattern": "**/*.pem"}, "access": "none"},
        ]);
        let expected = [
            "network false",
            "Read /",
            "Write /nowhere/some project",
            "Nothing /nowhere/some project/keys",
            "hidden /nowhere/some project/**/*.pem",
        ];
        assert_eq!(read(&restricted_to(&entries)).unwrap(), expected);
    }

    #[test]
    fn full_access_and_sandboxes_of_others_restrict_no_files() {
        let cwd = "file:///nowhere";
        let disabled = json!({"permissionProfile": {"type": "disabled"}, "sandboxCwd": cwd});
        let external =
            json!({"permissionProfile": {"type": "external", "network": "enabled"}, "sandboxCwd": cwd});
        let legacy = json!({"sandboxPolicy": {"type": "danger-full-access"}, "sandboxCwd": "/nowhere"});
        for state in [disabled, external, legacy] {
            assert!(ClientPermissions::of_codex(&state).unwrap().is_unrestricted(), "{state}");
        }
    }

    #[test]
    fn policies_of_earlier_versions_are_read() {
        let state = json!({
            "sandboxPolicy": {
                "type": "workspace-write", "writable_roots": ["/nowhere/b"], "network_access": true,
                "exclude_tmpdir_env_var": false, "exclude_slash_tmp": true,
            },
            "sandboxCwd": "/nowhere/a",
        });
        assert_eq!(read(&state).unwrap(), ["network true", "Read /", "Write /nowhere/a", "Write /nowhere/b"]);
        let state = json!({"sandboxPolicy": {"type": "read-only"}, "sandboxCwd": "/nowhere/a"});
        assert_eq!(read(&state).unwrap(), ["network false", "Read /"]);
    }

    #[test]
    fn forms_that_are_not_known_are_refused_by_name() {
        let entry = |path: Value, access: &str| restricted_to(&json!([{"path": path, "access": access}]));
        let special = |kind: Value| json!({"type": "special", "value": kind});
        for (state, part) in [
            (json!({"sandboxCwd": "/nowhere"}), "permissionProfile"),
            (json!({"permissionProfile": {"type": "disabled"}}), "sandboxCwd"),
            (json!({"permissionProfile": {"type": "disabled"}, "sandboxCwd": "here"}), "`here`"),
            (json!({"permissionProfile": {"type": "vm"}, "sandboxCwd": "/nowhere"}), "`vm`"),
            (entry(special(json!({"kind": "unknown", "path": ":later"})), "read"), ":later"),
            (entry(special(json!({"kind": "later"})), "read"), "`later`"),
            (entry(special(json!({"kind": "tmpdir"})), "deny"), "tmpdir"),
            (entry(json!({"type": "path", "path": "/nowhere"}), "execute"), "`execute`"),
            (entry(json!({"type": "path", "path": "nowhere"}), "read"), "`nowhere`"),
            (entry(json!({"type": "glob_pattern", "pattern": "*.py"}), "write"), "*.py"),
        ] {
            let refusal = read(&state).unwrap_err();
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
    }
}
