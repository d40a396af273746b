//! Files that configure the user's programs in a workspace: programs run commands from them without asking,
//! so sandboxed code must not write them.
//!
//! Ordinary source (`package.json`, `Makefile`) is not among them: programs run it only on command.

use std::path::{Path, PathBuf};

/// Directories of tools. Missing ones must not be created.
#[rustfmt::skip]
const DIRECTORIES: [&str; 38] = [
    // Editors.
    ".vscode", ".idea", ".zed", ".fleet", ".helix", ".devcontainer", ".run", ".settings",
    // Agents.
    ".claude", ".cursor", ".codex", ".gemini", ".qwen", ".windsurf", ".codeium", ".continue", ".cline",
    ".roo", ".kilocode", ".kiro", ".amazonq", ".opencode", ".crush", ".factory", ".junie", ".augment",
    ".agents",
    // Version control, and what it runs.
    ".hg", ".jj", ".husky", ".githooks",
    // Shells' extensions, package managers and build tools.
    ".direnv", ".mise", ".yarn", ".bundle", ".cargo", ".mvn", ".config",
];

/// Files of tools. Missing ones are replaced by empty stubs, which their programs accept.
#[rustfmt::skip]
const FILES: [&str; 59] = [
    // Shells, and what they run in a directory.
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv",
    ".zlogin", ".zlogout", ".envrc", ".tool-versions", ".mise.toml", "mise.toml", ".mise.local.toml",
    "mise.local.toml", ".rvmrc",
    // Version control, and what it runs.
    ".gitconfig", ".gitmodules", ".gitattributes", ".pre-commit-config.yaml", ".overcommit.yml",
    "lefthook.yml", ".lefthook.yml", "lefthook-local.yml", ".lefthook-local.yml",
    // Package managers and build tools.
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", "bunfig.toml", "uv.toml",
    ".pdm-python", "pip.conf", ".bazelrc", ".bazeliskrc",
    // Agents and editors.
    ".mcp.json", ".aider.conf.yml", ".devcontainer.json", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua",
    ".dir-locals.el", ".dir-locals-2.el",
    // Interpreters and debuggers, which read them where they are started.
    ".ripgreprc", ".gdbinit", ".lldbinit", ".pdbrc", ".irbrc", ".pryrc", ".Rprofile", ".Renviron", ".octaverc",
    ".ghci", ".iex.exs", ".ocamlinit", ".perldb",
];

/// The same, but programs refuse empty ones: protected only if they exist.
#[rustfmt::skip]
const FILES_IF_THERE: [&str; 9] = [
    "rust-toolchain", "rust-toolchain.toml", "pnpm-workspace.yaml", "opencode.json", "opencode.jsonc",
    "crush.json", ".crush.json", ".RData", ".buckconfig",
];

/// The file by which git recognises a bare repository, without `.git`.
const BARE_REPOSITORY: &str = "HEAD";

/// The default depth of the search below the workspace.
pub(super) const DEPTH: u64 = 3;
/// The most entries that are searched, and the most matches that are protected. Code may have created any
/// number.
const MOST_ENTRIES: usize = 50_000;
const MOST_FOUND: usize = 400;
/// Directories that are not searched: they are large, and installed.
const NOT_SEARCHED: [&str; 2] = ["node_modules", "site-packages"];

/// The paths that must not be written: at the top of `workspace`, existing or not, and existing ones further
/// down.
pub(super) fn trusted(workspace: &Path, is_git_open: bool, depth: u64) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let top = DIRECTORIES.iter().chain(&FILES).map(|name| workspace.join(name));
    let there = FILES_IF_THERE.iter().map(|name| workspace.join(name)).filter(|path| path.exists());
    let mut top: Vec<PathBuf> = top.chain(there).collect();
    let git = workspace.join(".git");
    if !is_git_open {
        if git.join(BARE_REPOSITORY).symlink_metadata().is_err() && !git.is_file() {
            top.push(workspace.join(BARE_REPOSITORY));
        }
        top.push(git);
    } else if git.is_dir() {
        top.push(git.join("hooks"));
    }
    let mut search = Search { found: Vec::new(), entries: 0, is_git_open };
    search.below(workspace, depth);
    if search.is_over() {
        tracing::warn!(
            workspace = %workspace.display(),
            "the workspace is too large to protect all that configures other programs further down in it"
        );
    }
    (top, search.found)
}

/// Whether a program expects a directory of this name.
pub(in crate::kernels::sandbox) fn is_directory(name: &str) -> bool {
    [".git", "hooks", ".ssh", ".gnupg", ".aws", ".azure", ".oci", ".kube", ".docker", ".mozilla"]
        .contains(&name)
        || DIRECTORIES.contains(&name)
}

struct Search {
    found: Vec<PathBuf>,
    entries: usize,
    is_git_open: bool,
}

impl Search {
    fn is_over(&self) -> bool {
        self.entries >= MOST_ENTRIES || self.found.len() >= MOST_FOUND
    }

    /// Searches the subdirectories of `directory`. Follows no links.
    fn below(&mut self, directory: &Path, depth: u64) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            if self.is_over() {
                return;
            }
            self.entries += 1;
            let name = entry.file_name();
            let is_searched = entry.file_type().is_ok_and(|kind| kind.is_dir())
                && !name.to_str().is_some_and(|name| {
                    NOT_SEARCHED.contains(&name) || DIRECTORIES.contains(&name) || name == ".git"
                });
            if is_searched {
                self.take(&entry.path());
                if depth > 1 {
                    self.below(&entry.path(), depth - 1);
                }
            }
        }
    }

    fn take(&mut self, directory: &Path) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|_| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
            else {
                continue;
            };
            let path = entry.path();
            if name == ".git" {
                let parts = [Some("hooks"), (!self.is_git_open).then_some("config")];
                let parts = parts.into_iter().flatten().map(|part| path.join(part));
                // Of a submodule or a worktree it is a file.
                let own = if path.is_dir() { parts.collect() } else { vec![path] };
                self.found.extend(own.into_iter().filter(|path| path.exists()));
            } else if DIRECTORIES.contains(&name) || FILES.contains(&name) || FILES_IF_THERE.contains(&name) {
                self.found.push(path);
            }
        }
    }
}
