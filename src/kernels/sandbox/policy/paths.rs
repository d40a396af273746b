//! Paths as a policy spells them, made absolute and real.
//!
//! srt drops rules whose paths lead through symbolic links, and bubblewrap cannot mount on a link: both get
//! paths without any. It reads the file system, and changes nothing in it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A path, or a glob for many.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathPattern {
    /// A file, or a directory with all that is beneath it. Absolute, without `..` and symbolic links; it may be missing.
    Path(PathBuf),
    /// An absolute glob: `*` and `?` within a name, `**` across names, `[…]`. The part before its first name
    /// with one of these is a real path.
    Glob(String),
}

/// Why a path cannot be used in a policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathProblem {
    /// `~name`.
    #[error(
        "homes of other users are not known\nhint: write the path from `/`, or `./~…` for a file of that name"
    )]
    OtherHome,
    /// A zero byte.
    #[error("a path cannot contain a zero byte")]
    ZeroByte,
    /// A glob in a list where srt has none.
    #[error(
        "patterns are not supported here on Linux, and would have no effect\nhint: name the paths one by one, or a directory"
    )]
    NoGlob,
    /// A glob that srt would not expand.
    #[error(
        "a pattern has to begin with a directory, or it would have no effect\nhint: write a directory before it, like `~/**/*.pem`"
    )]
    Unanchored,
    /// `..` behind a `*`.
    #[error("`..` cannot follow a pattern\nhint: write the path without `..`")]
    ParentOfGlob,
    /// A glob that may match a hidden path.
    #[error("this pattern may match what ipybox hides\nhint: name the paths one by one, or begin with a directory that is not above `{}`", hidden.display())]
    MayMatch {
        /// The hidden path.
        hidden: PathBuf,
    },
    /// The workspace, home or another directory has `*`, `?`, `[` or `]` in its path.
    #[error("`{}` would be taken for a pattern\nhint: use a path without `*`, `?`, `[` and `]`", path.display())]
    LooksLikeGlob {
        /// The path that it leads to.
        path: PathBuf,
    },
    /// The path is no text.
    #[error("`{}` is not UTF-8, which the sandbox's settings cannot hold", path.display())]
    Encoding {
        /// The path that it leads to.
        path: PathBuf,
    },
    /// A denial of what the sandbox itself needs.
    #[error("the sandbox has to write in `{}`\nhint: leave it out, or open less by `allowWrite`", needed.display())]
    Needed {
        /// The path that has to be writable.
        needed: PathBuf,
    },
    /// A link that code inside could replace by its own file.
    #[error(
        "it is a symbolic link in a directory that code in the sandbox may write, which could replace it\n\
         hint: put the file or directory itself there, or remove the link"
    )]
    Link,
    /// Symbolic links that lead in a circle, or a directory that cannot be listed.
    #[error("look where it leads: {0}")]
    File(#[from] io::Error),
}

impl PathPattern {
    /// Resolves `text` of a policy, relative to `workspace`; `~` is `home`. `dir/**` is `dir`.
    ///
    /// # Errors
    /// It names no path that could be in the sandbox's settings.
    pub(super) fn resolve(text: &str, workspace: &Path, home: &Path) -> Result<Self, PathProblem> {
        if text.contains('\0') {
            return Err(PathProblem::ZeroByte);
        }
        let bare = match text.strip_suffix("/**") {
            Some("") => "/",
            Some(directory) => directory,
            None if text == "**" => ".",
            None => text,
        };
        if !has_glob(bare) {
            return usable(real(&absolute(bare, workspace, home)?)?).map(Self::Path);
        }
        // The directory form is kept: srt hides directories whole by it.
        let mut names = text.split('/');
        let literal: Vec<&str> = names.by_ref().take_while(|name| !has_glob(name)).collect();
        let pattern = &text[literal.iter().map(|name| name.len() + 1).sum::<usize>()..];
        if pattern.split('/').any(|name| name == "..") {
            return Err(PathProblem::ParentOfGlob);
        }
        let directory = match literal.join("/") {
            directory if directory.is_empty() && text.starts_with('/') => {
                return Err(PathProblem::Unanchored);
            }
            directory if directory.is_empty() && pattern.starts_with('~') => {
                return Err(PathProblem::OtherHome);
            }
            directory => usable(real(&absolute(&directory, workspace, home)?)?)?,
        };
        let Some(directory) = directory.to_str().filter(|directory| *directory != "/") else {
            return Err(PathProblem::Unanchored);
        };
        let names: Vec<&str> = pattern.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        Ok(Self::Glob(format!("{directory}/{}", names.join("/"))))
    }

    /// The path, unless it is a glob.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Glob(_) => None,
        }
    }

    /// As the sandbox's settings spell it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Path(path) => path.to_string_lossy().into_owned(),
            Self::Glob(glob) => glob.clone(),
        }
    }

    /// The directory that contains all its matches.
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::Path(path) => path,
            Self::Glob(glob) => {
                let literal = glob.split(GLOB).next().unwrap_or_default();
                Path::new(literal.rsplit_once('/').map_or(literal, |(directory, _)| directory))
            }
        }
    }
}

/// The characters by which srt knows a pattern.
pub(super) const GLOB: [char; 4] = ['*', '?', '[', ']'];

/// Whether srt would take it for a pattern.
pub(super) fn has_glob(text: &str) -> bool {
    text.contains(GLOB)
}

/// A path that the sandbox's settings can hold.
pub(super) fn usable(path: PathBuf) -> Result<PathBuf, PathProblem> {
    match path.to_str() {
        None => Err(PathProblem::Encoding { path }),
        Some(text) if has_glob(text) => Err(PathProblem::LooksLikeGlob { path }),
        Some(_) => Ok(path),
    }
}

/// The path of `text` as it is spelled, as far as it is no glob.
pub(super) fn spelled(text: &str, workspace: &Path, home: &Path) -> Result<PathBuf, PathProblem> {
    let literal = text.split('/').take_while(|name| !has_glob(name));
    let literal = literal.collect::<Vec<_>>().join("/");
    let is_root = literal.is_empty() && text.starts_with('/');
    absolute(if is_root { "/" } else { &literal }, workspace, home)
}

fn absolute(text: &str, workspace: &Path, home: &Path) -> Result<PathBuf, PathProblem> {
    match text.strip_prefix('~') {
        Some("") => Ok(home.to_owned()),
        // `Path::join` would begin anew at a second slash.
        Some(rest) if rest.starts_with('/') => Ok(home.join(rest.trim_start_matches('/'))),
        Some(_) => Err(PathProblem::OtherHome),
        None => Ok(workspace.join(text)),
    }
}

/// As many links are followed as Linux follows.
const MOST_LINKS: usize = 40;

/// Resolves an absolute path, whose end may be missing: without `.`, `..` and symbolic links. An unreadable
/// part is taken literally.
///
/// # Errors
/// Links lead in a circle.
pub(super) fn real(path: &Path) -> io::Result<PathBuf> {
    resolution_steps(path).map(|mut steps| steps.pop().unwrap_or_default())
}

/// The places whose contents decide how an absolute path is resolved: its symbolic links, the directories
/// before a `..`, and last its [`real`] path.
///
/// # Errors
/// Links lead in a circle.
pub(crate) fn resolution_steps(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut ahead: VecDeque<OsString> = names(path);
    let mut reached = PathBuf::from("/");
    let mut steps = Vec::new();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            steps.push(reached.clone());
            reached.pop();
            continue;
        }
        reached.push(name);
        let Ok(target) = std::fs::read_link(&reached) else { continue };
        links += 1;
        if links > MOST_LINKS {
            let message = format!("more than {MOST_LINKS} symbolic links");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        steps.push(reached.clone());
        reached.pop();
        if target.is_absolute() {
            reached = PathBuf::from("/");
        }
        let mut through = names(&target);
        through.append(&mut ahead);
        ahead = through;
    }
    steps.push(reached);
    Ok(steps)
}

/// The names of a path, with `..`.
fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|component| matches!(component, Component::Normal(_) | Component::ParentDir))
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace and a home side by side, with links between them.
    fn root() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("ws/sub")).unwrap();
        std::fs::create_dir_all(root.join("home/data")).unwrap();
        symlink("../home/data", root.join("ws/data")).unwrap();
        symlink(root.join("home/later"), root.join("ws/dangling")).unwrap();
        symlink("loop", root.join("ws/loop")).unwrap();
        (directory, root)
    }

    fn resolve(root: &Path, text: &str) -> Result<PathPattern, PathProblem> {
        PathPattern::resolve(text, &root.join("ws"), &root.join("home"))
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let (_directory, root) = root();
        let text = text.replace("ROOT", root.to_str().unwrap());
        let resolved = resolve(&root, &text).unwrap();
        let shown = resolved.text().replace(root.to_str().unwrap(), "ROOT");
        let kind = if resolved.path().is_some() { "path" } else { "glob" };
        assert_eq!(format!("{kind} {shown}"), expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let (_directory, root) = root();
        let problem = resolve(&root, text).unwrap_err().to_string();
        assert!(problem.contains(expected), "{text}: {problem}");
    }

    #[test]
    fn paths_become_absolute_and_real() {
        check(".", "path ROOT/ws");
        check("./", "path ROOT/ws");
        check("sub//x/.", "path ROOT/ws/sub/x");
        check("..", "path ROOT");
        check("missing/../../home", "path ROOT/home");
        check("~", "path ROOT/home");
        check("~/", "path ROOT/home");
        check("~//etc", "path ROOT/home/etc");
        check("./~x", "path ROOT/ws/~x");
        check("/", "path /");
        check("/..", "path /");
        check("ROOT/ws/sub/", "path ROOT/ws/sub");
        check("data", "path ROOT/home/data");
        check("data/../x", "path ROOT/home/x");
        check("data/new", "path ROOT/home/data/new");
        check("dangling/x", "path ROOT/home/later/x");
    }

    #[test]
    fn a_directory_with_all_beneath_is_the_directory() {
        check("sub/**", "path ROOT/ws/sub");
        check("/**", "path /");
        check("**", "path ROOT/ws");
        check("~/**", "path ROOT/home");
    }

    #[test]
    fn globs_begin_with_a_real_directory() {
        check(".env.*", "glob ROOT/ws/.env.*");
        check("**/*.pem", "glob ROOT/ws/**/*.pem");
        check("**/build/**", "glob ROOT/ws/**/build/**");
        check("~/*.key", "glob ROOT/home/*.key");
        check("data/../*/./x//[ab]", "glob ROOT/home/*/x/[ab]");
    }

    #[test]
    fn what_would_have_no_effect_or_another_one_is_refused() {
        refused("~alice/x", "other users");
        refused("~*/x", "other users");
        refused("a\0b", "zero byte");
        refused("/**/*.pem", "begin with a directory");
        refused("/*", "begin with a directory");
        refused("*/../x", "cannot follow a pattern");
        refused("loop/x", "symbolic links");
    }

    #[test]
    fn a_path_that_leads_to_something_like_a_pattern_is_refused() {
        let (_directory, root) = root();
        let workspace = root.join("[id]");
        for text in [".", "x", "*.pem"] {
            let problem = PathPattern::resolve(text, &workspace, &root).unwrap_err().to_string();
            assert!(problem.contains("[id]") && problem.contains("taken for a pattern"), "{problem}");
        }
    }

    #[test]
    fn the_root_of_a_glob_is_above_all_that_it_matches() {
        for (glob, expected) in
            [("/a/b/*", "/a/b"), ("/a/b*/c", "/a"), ("/a/**/c", "/a"), ("/a/b/.env.*", "/a/b")]
        {
            assert_eq!(PathPattern::Glob(glob.to_owned()).root(), Path::new(expected));
        }
    }
}
