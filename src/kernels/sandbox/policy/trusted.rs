//! Files that configure the user's programs in a workspace: programs run commands from them without asking,
//! so sandboxed code must not write them. Other names at the top are in `top_names`.
//!
//! Ordinary source (`package.json`, `Makefile`) is not among them: programs run it only on command.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::paths::real;
use super::top_names::takes_permission;

/// Directories of tools. Missing ones must not be created.
#[rustfmt::skip]
const DIRECTORIES: [&str; 52] = [
    // Editors.
    ".vscode", ".idea", ".zed", ".fleet", ".helix", ".devcontainer", ".run", ".settings", ".vim",
    // Agents.
    ".claude", ".cursor", ".codex", ".gemini", ".qwen", ".windsurf", ".codeium", ".continue", ".cline",
    ".clinerules", ".roo", ".kilocode", ".kiro", ".amazonq", ".opencode", ".crush", ".factory", ".junie",
    ".augment", ".agents", ".trae", ".pi", ".grok", ".qoder", ".vibe", ".codebuddy", ".iflow", ".openhands",
    // Version control, and what it runs.
    ".hg", ".sl", ".jj", ".husky", ".githooks",
    // Shells' extensions, package managers and build tools.
    ".direnv", ".mise", ".yarn", ".bundle", ".cargo", ".mvn", ".config", ".bsp", ".bloop", ".metals",
];

/// Files of tools. Missing ones are replaced by empty stubs, which their programs accept.
#[rustfmt::skip]
const FILES: [&str; 66] = [
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
    ".psysh.php", ".ghci", ".iex.exs", ".ocamlinit", ".perldb", ".python-version", ".merlin", ".latexmkrc",
    "latexmkrc", "gptme.toml", ".lfsconfig",
];

/// The same, but programs refuse empty ones: each with a content that changes nothing.
const FILLED_FILES: [(&str, &str); 8] = [
    ("opencode.json", "{}\n"),
    ("opencode.jsonc", "{}\n"),
    ("crush.json", "{}\n"),
    (".crush.json", "{}\n"),
    (".continuerc.json", "{}\n"),
    ("rust-toolchain", "[toolchain]\ncomponents = []\n"),
    ("rust-toolchain.toml", "[toolchain]\ncomponents = []\n"),
    // A saved workspace of R without a variable: format 2, as text, by R 3.5.0 for R 2.3.0; 254 is the empty list.
    (".RData", "RDA2\nA\n2\n197888\n131840\n254\n"),
];

/// The same, but no content is without an effect: protected only if they exist.
const FILES_IF_THERE: [&str; 2] = ["pnpm-workspace.yaml", ".buckconfig"];

/// The beginnings and ends of other such names: a format of one's choice, a variant for one machine. Protected if they
/// exist.
#[rustfmt::skip]
const FAMILIES: [(&str, &str); 15] = [
    ("lefthook.", ""), (".lefthook.", ""), ("lefthook-local.", ""), (".lefthook-local.", ""),
    (".pre-commit-config.", ""), ("mise.", ".toml"), (".mise.", ".toml"), (".pnpmfile.", ""),
    ("", ".code-workspace"), ("", ".sublime-project"),
    // What an `.envrc` takes the environment from; direnv reads it again after each change.
    (".envrc.", ""), ("flake.", ""), ("shell.nix", ""), ("devenv.", ""), ("devbox.", ""),
];

/// The directory of npm's packages.
pub(in crate::kernels::sandbox) const MODULES: &str = "node_modules";
/// The packages in it that `npx ipybox` takes from a workspace in place of the real ones, without a sandbox. If directories above
/// them are missing, the first of them cannot be made.
const OWN_PACKAGES: [&str; 3] = ["ipybox", "@ipybox-rs", ".bin/ipybox"];

/// Names at the top that other rules are about.
const ELSEWHERE: [&str; 3] = [".git", ".env", ".ipybox"];

/// The file by which git recognises a bare repository, without `.git`.
const BARE_REPOSITORY: &str = "HEAD";

/// The default depth of the search below the workspace.
pub(super) const DEPTH: u64 = 3;
/// The most entries that are searched, the most repositories and the most other matches that are protected. Code may have created
/// any number.
const MOST_ENTRIES: usize = 50_000;
const MOST_REPOSITORIES: usize = 1000;
const MOST_FOUND: usize = 400;
/// The depth to which submodules and parts of their names are searched below `.git/modules`.
const SUBMODULE_DEPTH: u32 = 4;
/// Directories that are not searched: they are large, and installed.
const NOT_SEARCHED: [&str; 2] = ["node_modules", "site-packages"];

/// Whether a file in a workspace may configure programs that start there, or further down.
pub(crate) fn configures_programs(path: &Path) -> bool {
    path.iter().map(OsStr::to_string_lossy).any(|name| name == MODULES || takes_permission(&name))
}

/// The paths that must not be written.
pub(super) struct TrustedPaths {
    /// At the top of the workspace, existing or not.
    pub(super) top: Vec<PathBuf>,
    /// Existing ones further down.
    pub(super) below: Vec<PathBuf>,
    /// Whether there are more than can be found.
    pub(super) is_cut: bool,
}

/// Finds the paths in `workspace` that must not be written. Those in `directories`, which were found in earlier sandboxes, come
/// first, however many others code has made since.
pub(super) fn trusted(
    workspace: &Path,
    is_git_open: bool,
    depth: u64,
    directories: &BTreeSet<PathBuf>,
) -> TrustedPaths {
    let filled = FILLED_FILES.iter().map(|(name, _)| name);
    let top = DIRECTORIES.iter().chain(&FILES).chain(filled).map(|name| workspace.join(name));
    let there = FILES_IF_THERE.iter().map(|name| workspace.join(name)).filter(|path| path.exists());
    let mut top: Vec<PathBuf> = top.chain(there).chain(own_packages(workspace)).collect();
    let git = workspace.join(".git");
    if !is_git_open {
        if git.join(BARE_REPOSITORY).symlink_metadata().is_err() && !git.is_file() {
            top.push(workspace.join(BARE_REPOSITORY));
        }
        top.push(git);
    } else if git.is_dir() {
        top.push(git.join("hooks"));
        hooks_of_submodules(&git.join("modules"), SUBMODULE_DEPTH, &mut top);
    }
    let mut search = TrustedSearch {
        found: BTreeSet::new(),
        repositories: usize::MAX,
        others: usize::MAX,
        entries: 0,
        is_cut: false,
        is_git_open,
    };
    for directory in directories {
        search.take(directory);
    }
    search.repositories = MOST_REPOSITORIES;
    search.others = MOST_FOUND;
    search.take_entries(workspace, |name| {
        let is_of_any_program = name.starts_with('.') && !ELSEWHERE.contains(&name) && takes_permission(name);
        is_of_family(name) || is_of_any_program
    });
    search.below(workspace, depth);
    TrustedPaths { top, below: search.found.into_iter().collect(), is_cut: search.is_cut }
}

/// The places that programs would take ipybox from. Nothing can be mounted on a link: if `node_modules` is one, they are where it
/// leads, and the top level is looked after while cells run; if one below is, the directory that it is in is closed.
fn own_packages(workspace: &Path) -> BTreeSet<PathBuf> {
    let Ok(modules) = real(&workspace.join(MODULES)) else { return BTreeSet::new() };
    if !modules.starts_with(workspace) {
        return BTreeSet::new();
    }
    let place = |package: &&str| {
        let mut reached = modules.clone();
        for name in Path::new(package) {
            if reached.join(name).is_symlink() {
                return reached;
            }
            reached.push(name);
        }
        reached
    };
    OWN_PACKAGES.iter().map(place).collect()
}

fn is_of_family(name: &str) -> bool {
    FAMILIES.iter().any(|(start, end)| name.starts_with(start) && name.ends_with(end))
}

fn is_configuration(name: &str) -> bool {
    DIRECTORIES.contains(&name)
        || FILES.contains(&name)
        || FILLED_FILES.iter().any(|(filled, _)| *filled == name)
        || FILES_IF_THERE.contains(&name)
        || is_of_family(name)
}

/// The content of a file that takes the place of a missing one.
pub(in crate::kernels::sandbox) fn placeholder(name: &str) -> &'static str {
    FILLED_FILES.iter().find(|(filled, _)| *filled == name).map_or("", |(_, content)| content)
}

/// Whether a program expects a directory of this name.
pub(in crate::kernels::sandbox) fn is_directory(name: &str) -> bool {
    [".git", "hooks", ".ssh", ".gnupg", ".aws", ".azure", ".oci", ".kube", ".docker", ".mozilla"]
        .contains(&name)
        || DIRECTORIES.contains(&name)
        || OWN_PACKAGES.iter().any(|path| path.rsplit('/').next() == Some(name))
}

struct TrustedSearch {
    found: BTreeSet<PathBuf>,
    /// The number of repositories that may still be found.
    repositories: usize,
    /// The number of other matches that may still be found.
    others: usize,
    entries: usize,
    /// Whether something was left out.
    is_cut: bool,
    is_git_open: bool,
}

impl TrustedSearch {
    /// Searches the subdirectories of `directory`, the nearest first. Follows no links.
    fn below(&mut self, directory: &Path, depth: u64) {
        let mut directories = VecDeque::from([(directory.to_owned(), depth)]);
        while let Some((directory, depth)) = directories.pop_front() {
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            for entry in entries.flatten() {
                if self.entries == MOST_ENTRIES {
                    self.is_cut = true;
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
                        directories.push_back((entry.path(), depth - 1));
                    }
                }
            }
        }
    }

    fn take(&mut self, directory: &Path) {
        if is_repository(directory) {
            return self.take_repository(directory);
        }
        self.take_repository(&directory.join(".git"));
        if directory.ends_with(".github") {
            // Of agents; the rest is ordinary source.
            self.take_one(directory.join("hooks"), Self::others);
        }
        self.take_entries(directory, is_configuration);
    }

    /// Of a submodule or a worktree it is a file, which says where the repository is.
    fn take_repository(&mut self, git: &Path) {
        let is_whole = !self.is_git_open || git.is_file();
        let path = if is_whole { git.to_owned() } else { git.join("hooks") };
        self.take_one(path, Self::repositories);
    }

    fn take_entries(&mut self, directory: &Path, is_taken: fn(&str) -> bool) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(is_taken) {
                self.take_one(entry.path(), Self::others);
            }
        }
    }

    /// Takes a path that is there and new, as long as there is room for its kind.
    fn take_one(&mut self, path: PathBuf, room: fn(&mut Self) -> &mut usize) {
        if !path.symlink_metadata().is_ok_and(|found| !found.is_symlink()) || self.found.contains(&path) {
            return;
        }
        let room = room(self);
        match room.checked_sub(1) {
            Some(left) => {
                *room = left;
                self.found.insert(path);
            }
            None => self.is_cut = true,
        }
    }

    fn repositories(&mut self) -> &mut usize {
        &mut self.repositories
    }

    fn others(&mut self) -> &mut usize {
        &mut self.others
    }
}

/// Adds the hooks of submodules, whose names may be paths, and of theirs.
fn hooks_of_submodules(modules: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(modules) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let below = if is_repository(&entry.path()) {
            found.push(entry.path().join("hooks"));
            entry.path().join("modules")
        } else {
            entry.path()
        };
        if depth > 1 {
            hooks_of_submodules(&below, depth - 1, found);
        }
    }
}

/// Whether an entry of a policy that names such a file or directory permits code to write what is protected otherwise.
pub(super) fn is_protected(name: &str) -> bool {
    is_configuration(name) || name == MODULES || name == BARE_REPOSITORY
}

/// Whether no policy permits to write `path`: a repository, the file that makes one, a package of ours.
pub(super) fn is_never_permitted(path: &Path) -> bool {
    let is_of_git =
        path.components().any(|part| part.as_os_str() == ".git") || path.ends_with(BARE_REPOSITORY);
    is_of_git
        || path.ends_with(MODULES)
        || OWN_PACKAGES.iter().any(|own| path.ends_with(Path::new(MODULES).join(own)))
}

/// Whether `directory` is a repository under another name than `.git`, which a file `.git` may refer to.
fn is_repository(directory: &Path) -> bool {
    directory.join(BARE_REPOSITORY).is_file() && directory.join("objects").is_dir()
}
