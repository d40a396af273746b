//! Programs in the workspace that protected configuration names: shells, agents and interpreters run them without being asked, so
//! that code must not replace them.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::command::{is_script, words};
use super::open_places::OpenPlaces;
use super::policy::{PathPattern, PolicyPaths, SandboxRules};
use crate::ground::files::small;

/// Files in the directories of agents and editors that name MCP servers and hooks.
const IN_DIRECTORIES: [&str; 6] =
    ["config.toml", "hooks.json", "mcp.json", "mcp_config.json", "settings.json", "settings.local.json"];

/// The most files that are read.
const MOST_FILES: usize = 200;

/// The directory of an editor whose settings name no programs that it runs unasked, but for MCP servers.
const VSCODE: &str = ".vscode";

/// A variable at the beginning of a path, which is taken for the workspace.
#[expect(clippy::unwrap_used, reason = "the pattern is constant, and tested")]
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"\$\{[A-Za-z_:.]+\}"?/"#).unwrap());

/// The paths of such programs, and the directories of scripts: interpreters import from there.
pub(super) fn named_by_configuration(rules: &SandboxRules, paths: &PolicyPaths) -> BTreeSet<PathBuf> {
    let open = OpenPlaces::of(rules);
    let mut protected = BTreeSet::new();
    let closed = rules.deny_write.iter().filter_map(PathPattern::path);
    let at_top = closed.filter(|path| path.parent() == Some(&paths.workspace));
    for file in at_top.flat_map(configuration).take(MOST_FILES) {
        let Some(text) =
            small::read(&file, small::BY_HAND).ok().and_then(|text| String::from_utf8(text).ok())
        else {
            continue;
        };
        let is_for_shells = !is_structured(&file);
        for line in text.lines() {
            let line = VARIABLE.replace_all(line, "./");
            let is_path = line.contains("PATH");
            // The first word is no program, but a key or a command of the file's own language.
            for word in words(&format!("- {line}")) {
                let path = paths.workspace.join(&word.text);
                let Ok(found) = path.metadata() else { continue };
                if found.is_dir() && is_for_shells && is_path {
                    open.protect(&path, &mut protected).ok();
                } else if found.is_file() && (is_for_shells || is_program(&path, &found)) {
                    open.protect(&path, &mut protected).ok();
                    path.parent().map(|beside| open.protect(beside, &mut protected).ok());
                }
            }
        }
    }
    protected
}

/// The files to read for a protected path.
fn configuration(path: &Path) -> Vec<PathBuf> {
    let Ok(found) = path.symlink_metadata() else { return Vec::new() };
    if !found.is_dir() {
        return vec![path.to_owned()];
    }
    let is_read = |name: &&&str| !path.ends_with(VSCODE) || name.starts_with("mcp");
    let files = IN_DIRECTORIES.iter().filter(is_read).map(|name| path.join(name));
    files.filter(|file| file.is_file()).collect()
}

fn is_program(path: &Path, found: &Metadata) -> bool {
    found.permissions().mode() & 0o111 != 0 || is_script(&path.to_string_lossy())
}

/// Whether a file's format is no language for programs, so that most of its texts name none.
fn is_structured(file: &Path) -> bool {
    let ending = file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    ["json", "jsonc", "toml", "yaml", "yml"].contains(&ending.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::sandbox::SandboxPolicy;

    #[test]
    fn programs_that_agents_and_shells_run_unasked_are_protected_with_their_directories() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let paths = PolicyPaths::below(&base);
        let write = |path: &str, text: &str| {
            let path = base.join("ws").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for directory in ["home", "state", "p/w", "ws/bin", "ws/data"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in
            ["server.py", "tools/server.py", "hooks/check.sh", "renv/activate.R", "data/x.csv", "src/a.py"]
        {
            write(file, "");
        }
        write(
            ".mcp.json",
            r#"{"mcpServers": {"a": {"command": "python3", "args": ["tools/server.py", "data/x.csv"]}}}"#,
        );
        write(".cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "python3", "args": ["server.py"]}}}"#);
        write(".claude/settings.json", r#"{"hooks": [{"command": "${CLAUDE_PROJECT_DIR}/hooks/check.sh"}]}"#);
        write(".vscode/settings.json", r#"{"x": "src/a.py"}"#);
        write(".Rprofile", "source(\"renv/activate.R\")\n");
        write(".envrc", "PATH_add bin\nexport DATA=data\n");
        let rules = SandboxPolicy::embedded().unwrap().rules(&paths).unwrap();
        let found = named_by_configuration(&rules, &paths);
        let found: Vec<_> =
            found.iter().map(|path| path.strip_prefix(base.join("ws")).unwrap().to_str().unwrap()).collect();
        let expected = [
            "bin",
            "hooks",
            "hooks/check.sh",
            "renv",
            "renv/activate.R",
            "server.py",
            "tools",
            "tools/server.py",
        ];
        assert_eq!(found, expected);
    }
}
