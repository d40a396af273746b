//! Exposed places: those that code in a sandbox can write, from which programs of the host must read neither code nor
//! configuration.
//!
//! It resolves paths, and changes nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::policy::{PathPattern, SandboxRules, resolution_steps};

/// Characters before and after a path in an argument or a variable, as in `--root=/a:/b` or `sh -c "cd '/a';
/// ls"`.
const DELIMITERS: &[char] = &[
    '=', ':', ',', ';', '@', '&', '|', '<', '>', '(', ')', '{', '}', '[', ']', '"', '\'', '`', '$', '?', '#',
    '*',
];

/// Variables that are lists of directories, each of which is checked separately.
const LISTS: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"];
const HOME: &str = "HOME";

/// The places that code in a sandbox can write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExposedPlaces {
    /// Writable paths, each with all beneath it.
    open: Vec<PathBuf>,
    /// Paths beneath them that are not writable.
    closed: Vec<PathBuf>,
    /// The home directory.
    #[serde(skip)]
    home: PathBuf,
}

/// The way in which the text of an argument or a variable refers to an exposed place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// It names a directory that is writable as a whole, like the workspace: code cannot replace the
    /// directory itself.
    Directory(PathBuf),
    /// It names a path in such a directory, or through it. Code can put anything there.
    Within(PathBuf),
}

impl ExposedPlaces {
    /// The places that `rules` make writable. `home` is `~`.
    pub(crate) fn new(rules: &SandboxRules, home: &Path) -> Self {
        let roots = |patterns: &[PathPattern]| patterns.iter().map(|one| one.root().to_owned()).collect();
        let paths = rules.deny_write.iter().filter_map(PathPattern::path);
        Self {
            open: roots(&rules.allow_write),
            closed: paths.map(Path::to_owned).collect(),
            home: home.to_owned(),
        }
    }

    /// A place that code could write as a whole.
    pub(crate) fn place(path: PathBuf) -> Self {
        Self { open: vec![path], ..Self::default() }
    }

    /// Those that are not in `directory`.
    pub(crate) fn outside(&self, directory: &Path) -> Self {
        let kept = |paths: &[PathBuf]| {
            paths.iter().filter(|path| !path.starts_with(directory)).cloned().collect::<Vec<_>>()
        };
        Self { open: kept(&self.open), closed: kept(&self.closed), home: self.home.clone() }
    }

    /// The writable paths, each with all beneath it.
    pub(crate) fn open(&self) -> &[PathBuf] {
        &self.open
    }

    /// The paths beneath them that are not writable.
    pub(crate) fn closed(&self) -> &[PathBuf] {
        &self.closed
    }

    /// All places: for when it is not known which.
    pub(crate) fn everywhere() -> Self {
        Self { open: vec![PathBuf::from("/")], ..Self::default() }
    }

    /// Adds the places that code in another sandbox can write. Afterwards a path is exposed if it is in either.
    pub(crate) fn add(&mut self, other: Self) {
        let kept = |closed: &mut Vec<PathBuf>, against: &Self| {
            closed.retain(|path| !against.opens_any_of(path));
        };
        let mut closed = other.closed.clone();
        kept(&mut closed, self);
        kept(&mut self.closed, &other);
        self.closed.extend(closed);
        self.open.extend(other.open);
        for places in [&mut self.open, &mut self.closed] {
            places.sort();
            places.dedup();
        }
        if self.home.as_os_str().is_empty() {
            self.home = other.home;
        }
    }

    /// Whether there is no exposed place.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The first place in the resolution of `path` that code can change, if there is one: a link, or its
    /// target.
    pub(crate) fn on_the_way(&self, path: &Path) -> Option<PathBuf> {
        match resolution_steps(path) {
            Ok(steps) => steps.into_iter().find(|place| self.is_open(place)),
            // Code may have made the circle of links, and can also end it.
            Err(_) => Some(path.to_owned()),
        }
    }

    /// The first place in the resolution of a program or a Python environment, by its path in the current directory, that code
    /// can change.
    pub(crate) fn leads_to(&self, program: &Path) -> Option<PathBuf> {
        self.on_the_way(&std::path::absolute(program).ok()?)
    }

    /// The first place in the resolution of `directory` that code can replace by a link, if there is one.
    pub(crate) fn replaceable(&self, directory: &Path) -> Option<PathBuf> {
        let place = self.on_the_way(directory)?;
        matches!(self.exposure(place.clone()), Exposure::Within(_)).then_some(place)
    }

    /// The writable directory that `directory` is or is in, even if it is protected itself: programs search
    /// for configuration in parent directories, too.
    pub(crate) fn above(&self, directory: &Path) -> Option<PathBuf> {
        let real = resolution_steps(directory).ok().and_then(|mut steps| steps.pop());
        let open = |path: &Path| self.open.iter().find(|open| path.starts_with(open)).cloned();
        real.map_or_else(|| Some(directory.to_owned()), |real| open(&real))
            .or_else(|| self.on_the_way(directory))
    }

    /// The exposed place that `text` names; relative paths in it are relative to `directory`.
    ///
    /// A path within such a place takes precedence over the place itself.
    pub(crate) fn named_by(&self, text: &str, directory: &Path) -> Option<Exposure> {
        let home = self.home.to_string_lossy();
        let text = &text.replace("${HOME}", &home).replace("$HOME", &home);
        let mut found = self.mentioned_by(text);
        for part in parts(text) {
            let path = match part.strip_prefix("~/") {
                Some(rest) => self.home.join(rest),
                None => directory.join(part),
            };
            found.extend(self.on_the_way(&path).map(|place| self.exposure(place)));
        }
        let is_within = |exposure: &Exposure| matches!(exposure, Exposure::Within(_));
        let position = found.iter().position(is_within).unwrap_or(0);
        found.into_iter().nth(position)
    }

    /// The value of an inherited variable for a program of the host: all of it, the safe entries of a list,
    /// or nothing. Relative paths are relative to `directory`.
    ///
    /// The home directory is kept: a user who exposes it has agreed to that.
    pub(crate) fn safe_value(&self, name: &str, value: &str, directory: &Path) -> Option<String> {
        if name == HOME || value.is_empty() {
            return Some(value.to_owned());
        }
        if LISTS.contains(&name) {
            let (kept, _) = self.without_exposed(value);
            return (!kept.is_empty()).then_some(kept);
        }
        self.named_by(value, directory).is_none().then(|| value.to_owned())
    }

    /// `list`, directories as in `PATH`, without those that code can write and without relative ones, and the
    /// removed entries.
    pub(crate) fn without_exposed(&self, list: &str) -> (String, Vec<String>) {
        let is_kept =
            |entry: &&str| Path::new(entry).is_absolute() && self.on_the_way(Path::new(entry)).is_none();
        let (kept, left): (Vec<&str>, Vec<&str>) = list.split(':').partition(is_kept);
        (kept.join(":"), left.into_iter().map(str::to_owned).collect())
    }

    /// Whether code can write `path` itself, links aside.
    fn is_open(&self, path: &Path) -> bool {
        let is_in = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        is_in(&self.open) && !is_in(&self.closed)
    }

    /// Whether code can write `path` or something beneath it.
    fn opens_any_of(&self, path: &Path) -> bool {
        self.is_open(path) || self.open.iter().any(|open| open.starts_with(path) && self.is_open(open))
    }

    fn exposure(&self, place: PathBuf) -> Exposure {
        if self.open.contains(&place) && place.is_dir() {
            Exposure::Directory(place)
        } else {
            Exposure::Within(place)
        }
    }

    /// The paths in `text` that begin with a writable directory, at any position: `-I/workspace/lib`.
    fn mentioned_by(&self, text: &str) -> Vec<Exposure> {
        let mut found = Vec::new();
        for open in self.open.iter().filter_map(|open| open.to_str()) {
            for (start, _) in text.match_indices(open) {
                let before = text[..start].rsplit(is_delimiter).next().unwrap_or_default();
                let rest = &text[start + open.len()..];
                let is_other_name = !open.ends_with('/') && !rest.is_empty() && !rest.starts_with(is_end);
                if is_other_name || is_of_path(before) {
                    continue;
                }
                let end = rest.find(is_delimiter).unwrap_or(rest.len());
                let path = PathBuf::from(format!("{open}{}", &rest[..end]));
                found.extend(self.on_the_way(&path).map(|place| self.exposure(place)));
            }
        }
        found
    }
}

/// Whether the text before a path makes it the end of another one: `/srv` before `/workspace`. An option
/// (`-I`) does not, nor does the host of a URL (`//localhost`).
fn is_of_path(before: &str) -> bool {
    let names = before.trim_start_matches('/');
    let is_absolute = before.starts_with('/') && !before.starts_with("//");
    names.contains('/') || is_absolute && !names.is_empty()
}

fn is_delimiter(character: char) -> bool {
    character.is_whitespace() || DELIMITERS.contains(&character)
}

fn is_end(character: char) -> bool {
    character == '/' || is_delimiter(character)
}

/// The possible paths in `text`: all of it, and the parts between delimiters.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split(is_delimiter).filter(move |piece| *piece != text);
    std::iter::once(text).chain(pieces).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A workspace that is open but for `kept`, beside a directory that is not, with links between them.
    fn scene() -> (tempfile::TempDir, PathBuf, ExposedPlaces) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["ws/kept", "ws/sub", "other", "ws2"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink(root.join("ws/sub"), root.join("other/in")).unwrap();
        symlink(root.join("ws"), root.join("other/ws")).unwrap();
        symlink(root.join("other"), root.join("ws/out")).unwrap();
        symlink(root.join("ws/kept"), root.join("other/kept")).unwrap();
        let exposed = ExposedPlaces {
            open: vec![root.join("ws")],
            closed: vec![root.join("ws/kept")],
            home: root.join("other"),
        };
        (directory, root, exposed)
    }

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let (_directory, root, exposed) = scene();
        let text = text.replace("ROOT", root.to_str().unwrap());
        let shown = |path: PathBuf| path.display().to_string().replace(root.to_str().unwrap(), "ROOT");
        let found = exposed.named_by(&text, &root.join("other")).map(|exposure| match exposure {
            Exposure::Directory(path) => format!("is {}", shown(path)),
            Exposure::Within(path) => format!("in {}", shown(path)),
        });
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn what_lies_outside_is_not_exposed() {
        for text in
            ["", "-y", "pkg@1.2", "https://example.com/ws", "ROOT/other/x", "ROOT/ws2/x", "/usr/bin/env"]
        {
            check(text, None);
        }
        for text in ["ROOT/ws/kept/x", "ROOT/other/kept/x", "--config=ROOT/ws/kept", "/srvROOT/ws", "../ws2"]
        {
            check(text, None);
        }
    }

    #[test]
    fn the_open_directory_itself_is_distinguished_from_what_is_in_it() {
        for text in
            ["ROOT/ws", "ROOT/ws/", "ROOT/ws/.", "--root=ROOT/ws", "ROOT/ws:/data", "-IROOT/ws", "../ws"]
        {
            check(text, Some("is ROOT/ws"));
        }
        for text in
            ["ROOT/ws/x", "--config=ROOT/ws/x", "-IROOT/ws/x", "a:ROOT/ws/x:b", "cd 'ROOT/ws/x' && ls"]
        {
            check(text, Some("in ROOT/ws/x"));
        }
        check("file://ROOT/ws/x", Some("in ROOT/ws/x"));
        check("ROOT/ws/kept/../x", Some("in ROOT/ws/x"));
        check("ROOT/ws,ROOT/ws/x", Some("in ROOT/ws/x"));
    }

    #[test]
    fn links_count_in_both_directions() {
        check("ROOT/other/in/x", Some("in ROOT/ws/sub/x"));
        check("~/in", Some("in ROOT/ws/sub"));
        check("cd $HOME/in; ls", Some("in ROOT/ws/sub"));
        check("in/x", Some("in ROOT/ws/sub/x"));
        check("ROOT/other/ws", Some("is ROOT/ws"));
        check("ROOT/ws/out/file", Some("in ROOT/ws/out"));
        check("ROOT/ws/sub/../../other", Some("in ROOT/ws/sub"));
    }

    #[test]
    fn code_replaces_what_is_in_an_open_directory_and_not_the_directory() {
        let (_directory, root, exposed) = scene();
        for path in ["ws", "other", "other/ws", "ws/kept/x", "ws2"] {
            assert_eq!(exposed.replaceable(&root.join(path)), None, "{path}");
        }
        for path in ["ws/sub", "ws/new/x", "other/in/x", "other/ws/sub", "ws/out"] {
            assert!(exposed.replaceable(&root.join(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn lists_of_directories_lose_those_that_are_exposed_or_relative() {
        let (_directory, root, exposed) = scene();
        let list = ["/usr/bin", "", "bin", ".", "ROOT/ws/bin", "ROOT/other/in", "ROOT/ws/kept", "/bin"];
        let list = list.join(":").replace("ROOT", root.to_str().unwrap());
        let (kept, left) = exposed.without_exposed(&list);
        assert_eq!(kept, format!("/usr/bin:{}/ws/kept:/bin", root.display()));
        assert_eq!(left.len(), 5);
    }

    /// Places of two sandboxes.
    fn both(first: (&[&str], &[&str]), second: (&[&str], &[&str])) -> ExposedPlaces {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
        let of = |(open, closed): (&[&str], &[&str])| ExposedPlaces {
            open: paths(open),
            closed: paths(closed),
            home: PathBuf::new(),
        };
        let mut exposed = of(first);
        exposed.add(of(second));
        exposed
    }

    #[test]
    fn a_place_is_exposed_if_one_of_two_sandboxes_opens_it() {
        let exposed = both((&["/w"], &["/w/a", "/w/b", "/w/c"]), (&["/w/b", "/w/c/in", "/x"], &["/x/a"]));
        for path in ["/w", "/w/b/file", "/w/c/in/file", "/x/file"] {
            assert!(exposed.is_open(Path::new(path)), "{path}");
        }
        for path in ["/w/a/file", "/x/a", "/y"] {
            assert!(!exposed.is_open(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_same_sandbox_again_changes_nothing() {
        let once = both((&["/w"], &["/w/a"]), (&[], &[]));
        assert_eq!(both((&["/w"], &["/w/a"]), (&["/w"], &["/w/a"])), once);
    }

    #[test]
    fn a_directory_below_an_open_one_is_exposed_though_it_is_closed() {
        let (_directory, root, exposed) = scene();
        assert_eq!(exposed.above(&root.join("ws/kept")), Some(root.join("ws")));
        assert_eq!(exposed.above(&root.join("other/kept")), Some(root.join("ws")));
        assert_eq!(exposed.above(&root.join("other")), None);
        assert_eq!(exposed.above(&root), None);
    }
}
