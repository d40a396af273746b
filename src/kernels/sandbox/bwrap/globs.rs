//! Globs in rules, as the paths that match them now: `*` and `?` within a name, `**` for any directories, `[…]`.
//!
//! `**` follows no links, and a match that is a link is replaced by its target.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::Error;

/// The most names that are tested for one glob. It takes a second or two.
const MOST_NAMES: usize = 500_000;

/// Matches of one glob. Each is a mount, and three words of the command line.
const MOST_MATCHES: usize = 2_000;

/// The paths that match `glob`, which is absolute.
///
/// # Errors
/// There are too many, or a directory cannot be listed.
pub(super) fn expand(glob: &str) -> Result<Vec<PathBuf>, Error> {
    let parts =
        glob.split('/').filter(|part| !part.is_empty()).map(GlobPart::new).collect::<Result<Vec<_>, _>>();
    let parts =
        parts.map_err(|error| Error::Glob { glob: glob.to_owned(), source: io::Error::other(error) })?;
    let mut search = GlobSearch { glob, names: 0, matches: Vec::new() };
    search.descend(Path::new("/"), &parts)?;
    search.matches.sort();
    search.matches.dedup();
    Ok(search.matches)
}

enum GlobPart<'a> {
    Name(&'a str),
    /// `**`: any number of directories.
    Any,
    Matching(Regex),
}

impl<'a> GlobPart<'a> {
    fn new(text: &'a str) -> Result<Self, regex::Error> {
        match text {
            "**" => Ok(Self::Any),
            _ if !text.contains(['*', '?', '[', ']']) => Ok(Self::Name(text)),
            _ => pattern(text).map(Self::Matching),
        }
    }
}

/// A pattern for one name. A `[` that is not closed is literal.
fn pattern(text: &str) -> Result<Regex, regex::Error> {
    let mut pattern = String::from("(?s)^");
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let (taken, meaning) = match (class(rest), character) {
            (Some(class), _) => {
                let (not, members) = class.strip_prefix(['!', '^']).map_or(("", class), |rest| ("^", rest));
                let members = members.split('-').map(regex::escape).collect::<Vec<_>>().join("-");
                (class.len() + "[]".len(), format!("[{not}{members}]"))
            }
            (None, '*') => (1, ".*".to_owned()),
            (None, '?') => (1, ".".to_owned()),
            (None, _) => (character.len_utf8(), regex::escape(&rest[..character.len_utf8()])),
        };
        pattern.push_str(&meaning);
        rest = &rest[taken..];
    }
    pattern.push('$');
    Regex::new(&pattern)
}

/// The text between the brackets at the beginning of `text`. A `]` that comes first is a member.
fn class(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('[')?;
    let first = inside.chars().take_while(|c| matches!(c, '!' | '^')).count();
    let end = inside.char_indices().skip(first + 1).find(|(_, character)| *character == ']')?.0;
    Some(&inside[..end])
}

struct GlobSearch<'a> {
    glob: &'a str,
    names: usize,
    matches: Vec<PathBuf>,
}

impl GlobSearch<'_> {
    fn descend(&mut self, directory: &Path, parts: &[GlobPart<'_>]) -> Result<(), Error> {
        match parts {
            [] => self.found(directory),
            [GlobPart::Name(name), rest @ ..] => {
                let path = directory.join(name);
                if path.symlink_metadata().is_ok() { self.descend(&path, rest) } else { Ok(()) }
            }
            // `dir/**` is the directory.
            [GlobPart::Any] => self.found(directory),
            [GlobPart::Any, rest @ ..] => {
                self.descend(directory, rest)?;
                for (path, is_directory) in self.list(directory)? {
                    if is_directory {
                        self.descend(&path, parts)?;
                    }
                }
                Ok(())
            }
            [GlobPart::Matching(pattern), rest @ ..] => {
                for (path, _) in self.list(directory)? {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    if pattern.is_match(&name) {
                        self.descend(&path, rest)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn found(&mut self, path: &Path) -> Result<(), Error> {
        if self.matches.len() == MOST_MATCHES {
            return Err(Error::TooMuch { glob: self.glob.to_owned() });
        }
        // A dangling link hides nothing.
        if let Ok(real) = path.canonicalize() {
            self.matches.push(real);
        }
        Ok(())
    }

    /// The entries of a directory, each with whether it is a directory. A non-directory is empty, and so is
    /// another user's directory that we may not read: code inside may not read it either.
    fn list(&mut self, directory: &Path) -> Result<Vec<(PathBuf, bool)>, Error> {
        let failed = |source| Error::Glob { glob: self.glob.to_owned(), source };
        let entries = match directory.read_dir() {
            Ok(entries) => entries,
            Err(error) if is_nothing(&error, directory) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            listed.push((entry.path(), is_directory));
        }
        self.names += listed.len();
        if self.names > MOST_NAMES { Err(Error::TooMuch { glob: self.glob.to_owned() }) } else { Ok(listed) }
    }
}

fn is_nothing(error: &io::Error, directory: &Path) -> bool {
    let is_ours = || {
        let owner = directory.metadata().map(|metadata| metadata.uid());
        owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
    };
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        // Code inside could change the mode of ours.
        io::ErrorKind::PermissionDenied => !is_ours(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn check(glob: &str, expected: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for path in ["a/b/key.pem", "a/.env.local", "a/.env", "a/b/.env.x", "c/key.pem", "a/[x]", "a/äb"] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), "").unwrap();
        }
        symlink(root.join("c"), root.join("a/link")).unwrap();
        symlink("../c/key.pem", root.join("a/linked.pem")).unwrap();
        symlink("nowhere", root.join("a/dangling.pem")).unwrap();
        let found = expand(&format!("{}/{glob}", root.display())).unwrap();
        let found: Vec<&str> =
            found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
        assert_eq!(found, expected, "{glob}");
    }

    #[test]
    fn globs_find_what_is_there() {
        check("a/.env.*", &["a/.env.local"]);
        check("a/*.pem", &["c/key.pem"]);
        check("*/key.pem", &["c/key.pem"]);
        check("a/**/*.pem", &["a/b/key.pem", "c/key.pem"]);
        check("**/.env*", &["a/.env", "a/.env.local", "a/b/.env.x"]);
        check("a/**", &["a"]);
        check("a/?b", &["a/äb"]);
        check("a/[^.]", &["a/b"]);
        check("a/.en[v-z]", &["a/.env"]);
        check("a/[[]x[]]", &["a/[x]"]);
        check("missing/*", &[]);
        check("a/.env/*", &[]);
    }
}
