//! The meet of rules with a client's permissions.
//!
//! In rules a denial of writing holds for all beneath it. What a client opens again beneath such a denial stays closed.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::{Value, json};

use super::client_permissions::{ClientAccess, ClientPermissions};
use super::paths::{GLOB, PathPattern, real};
use super::rules::{TEMPORARY, unique};
use super::{PolicyPaths, PolicyProblem, PolicySource, SandboxPolicy, SandboxPolicyError, SandboxRules};
use crate::kernels::sandbox::stubs::is_stub;

/// The name of the policy that only a client's permissions make, in errors.
const OF_CLIENT: &str = "the client's sandbox";

/// The client's permissions in errors.
const CLIENT: &str = "what the client allows";

/// Directories of the kernel, which a sandbox makes itself.
const VIRTUAL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The place of the libraries of every Python.
const PROGRAMS: &str = "/usr";

impl SandboxPolicy {
    /// The policy of a session that has none of its own and whose client's commands are restricted: code may write where
    /// they may. Directories for temporary files are not among it, since the session has one of its own; in place of a
    /// directory above the workspace there is the workspace.
    pub(crate) fn of_client(client: &ClientPermissions, workspace: &Path, home: &Path) -> Self {
        let writable = client.files().filter(|(_, access)| *access == ClientAccess::Write);
        let mut open: Vec<&Path> = Vec::new();
        for (path, _) in writable {
            let is_above = workspace.starts_with(path) || home.starts_with(path);
            let is_temporary = TEMPORARY.iter().any(|directory| path == Path::new(directory));
            if is_above {
                open.push(workspace);
            } else if !is_temporary && path.exists() {
                open.push(path);
            }
        }
        let document = json!({
            "network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": open, "denyWrite": []},
        });
        let document = document.as_object().cloned().unwrap_or_default();
        let source = PolicySource { name: OF_CLIENT.to_owned(), file: None };
        Self { document, source, has_defaults: false, on_default: None, opens_network: true }
    }
}

impl SandboxRules {
    /// The rules for what both these rules and the client allow. Python and the session's own files stay readable, and its directory for
    /// temporary files writable.
    ///
    /// # Errors
    /// No kernel could start by what the client allows, or it has a pattern that cannot be held.
    pub(crate) fn within(
        mut self,
        client: &ClientPermissions,
        paths: &PolicyPaths,
    ) -> Result<Self, SandboxPolicyError> {
        if client.access(Path::new(PROGRAMS)) == ClientAccess::Nothing {
            return Err(refused(PROGRAMS, "no Python starts without it"));
        }
        let needed =
            paths.python_prefixes.iter().chain([&paths.private_directory, &paths.writable_directory]);
        let needed: Vec<PathBuf> = needed.filter_map(|path| real(path).ok()).collect();
        self.narrow_reading(client, &needed, paths)?;
        self.narrow_writing(client, paths);
        if !client.has_network() {
            self.allowed_domains.clear();
            self.allow_all_unix_sockets = false;
        }
        for list in [&mut self.allow_write, &mut self.allow_read, &mut self.deny_read, &mut self.deny_write] {
            unique(list);
        }
        Ok(self)
    }

    fn narrow_reading(
        &mut self,
        client: &ClientPermissions,
        needed: &[PathBuf],
        paths: &PolicyPaths,
    ) -> Result<(), SandboxPolicyError> {
        let is_read = |path: &Path| client.access(path) != ClientAccess::Nothing;
        let opened: Vec<PathPattern> = client
            .files()
            .filter(|(path, _)| is_read(path) && !path.parent().is_none_or(is_read))
            .filter(|(path, _)| !is_virtual(path) && self.reads(path))
            .map(|(path, _)| PathPattern::Path(path.to_owned()))
            .collect();
        self.allow_read.retain(|open| {
            is_read(open.root()) || open.path().is_some_and(|path| needed.iter().any(|needed| needed == path))
        });
        self.allow_read.extend(opened);
        let closed = client.files().filter(|(path, access)| {
            let is_needless = client.is_optional(path) && is_missing(path);
            *access == ClientAccess::Nothing && *path != Path::new("/") && !is_needless
        });
        self.deny_read.extend(closed.map(|(path, _)| PathPattern::Path(path.to_owned())));
        if !is_read(Path::new("/")) {
            self.deny_read.extend(unreadable_at_top(client)?);
        }
        for pattern in client.hidden() {
            let resolved = PathPattern::resolve(pattern, &paths.workspace, &paths.home);
            self.deny_read.push(resolved.map_err(|problem| {
                let problem = PolicyProblem::Path { value: pattern.to_owned(), problem };
                SandboxPolicyError::Key { name: CLIENT.to_owned(), key: "a pattern".to_owned(), problem }
            })?);
        }
        Ok(())
    }

    fn narrow_writing(&mut self, client: &ClientPermissions, paths: &PolicyPaths) {
        let own = real(&paths.writable_directory).unwrap_or_else(|_| paths.writable_directory.clone());
        let clients =
            client.files().filter(|(_, access)| *access == ClientAccess::Write).map(|(path, _)| path);
        let clients: Vec<&Path> = clients.filter(|path| !is_virtual(path)).collect();
        let is_under =
            |path: &Path, all: &[PathPattern]| all.iter().any(|open| path.starts_with(open.root()));
        let ours: Vec<PathPattern> =
            self.allow_write.iter().filter(|open| open.path().is_some()).cloned().collect();
        let narrower = clients.iter().filter(|path| is_under(path, &ours) && self.reads(path));
        let narrower: Vec<PathPattern> = narrower.map(|path| PathPattern::Path((*path).to_owned())).collect();
        self.allow_write
            .retain(|open| open.root() == own || client.access(open.root()) == ClientAccess::Write);
        self.allow_write.extend(narrower);
        let closed = client.files().filter(|(path, access)| {
            let is_needless = client.is_optional(path) && is_missing(path);
            *access != ClientAccess::Write
                && !own.starts_with(path)
                && !is_needless
                && is_under(path, &self.allow_write)
        });
        let closed: Vec<PathPattern> = closed.map(|(path, _)| PathPattern::Path(path.to_owned())).collect();
        self.deny_write.extend(closed);
    }

    /// Whether the nearest rule above a path lets it be read; not if a pattern hides what is above it.
    fn reads(&self, path: &Path) -> bool {
        let named = |list: &[PathPattern], place: &Path| list.iter().any(|rule| rule.path() == Some(place));
        let nearest = path.ancestors().find_map(|above| {
            let is_denied = named(&self.deny_read, above);
            let is_open = named(&self.allow_read, above) || named(&self.allow_write, above);
            (is_denied || is_open).then_some(!is_denied)
        });
        let is_hidden = self.deny_read.iter().any(|rule| rule.path().is_none() && may_cover(rule, path));
        !is_hidden && nearest.unwrap_or(true)
    }
}

/// Whether a pattern may match a path or a directory above it.
fn may_cover(pattern: &PathPattern, path: &Path) -> bool {
    if !path.starts_with(pattern.root()) {
        return false;
    }
    let mut expression = String::from("^");
    let text = pattern.text();
    for part in text.split('/').filter(|part| !part.is_empty()) {
        // More than it matches: from the first to the last character that means others.
        match (part.find(GLOB), part.rfind(GLOB)) {
            _ if part == "**" => expression.push_str("(/.*)?"),
            (Some(first), Some(last)) => {
                let before = regex::escape(&part[..first]);
                let after = regex::escape(&part[last + 1..]);
                expression.push_str(&format!("/{before}[^/]*{after}"));
            }
            _ => expression.push_str(&format!("/{}", regex::escape(part))),
        }
    }
    expression.push_str("(/|$)");
    // A pattern that is none may match everything.
    Regex::new(&expression).map_or(true, |expression| expression.is_match(&path.to_string_lossy()))
}

/// The directories and files of the root directory that the client's commands cannot read as a whole.
fn unreadable_at_top(client: &ClientPermissions) -> Result<Vec<PathPattern>, SandboxPolicyError> {
    let unlisted = |_| refused("/", "it cannot be listed, so that the rest of it cannot be hidden");
    let mut hidden = Vec::new();
    for entry in std::fs::read_dir("/").map_err(unlisted)? {
        let path = entry.map_err(unlisted)?.path();
        let is_link = path.is_symlink();
        if !is_link && !is_virtual(&path) && client.access(&path) == ClientAccess::Nothing {
            hidden.push(PathPattern::Path(path));
        }
    }
    Ok(hidden)
}

/// Whether nothing is there, but perhaps the stub of another sandbox.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().map_or(true, |found| is_stub(&found))
}

fn is_virtual(path: &Path) -> bool {
    VIRTUAL.iter().any(|directory| path.starts_with(directory))
}

fn refused(path: &str, reason: &'static str) -> SandboxPolicyError {
    let problem = PolicyProblem::Refused { value: Value::from(path).to_string(), reason };
    SandboxPolicyError::Key { name: CLIENT.to_owned(), key: "reading".to_owned(), problem }
}
