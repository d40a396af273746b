//! The top level of a workspace while cells run: files of code's that need a permission are moved to where no program takes
//! them for its configuration.
//!
//! Mounts protect names that are known. No mount keeps unknown names from being created in a directory that code can write, so
//! that the host looks: often while a cell runs, and at its end. It looks at the time of the directory's last change first, which
//! code cannot set.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::policy::{MODULES, PathPattern, SandboxRules, takes_permission};
use crate::ground::files::inside;
use crate::ground::text::{first_few, shortened};

/// The directory that files are moved to. Code cannot write there.
const SET_ASIDE: &str = ".ipybox/set-aside";
/// The ending of their names there, so that they are in no format.
const ENDING: &str = ".set-aside";
/// The interval of the host's looks while a cell runs.
const INTERVAL: Duration = Duration::from_millis(25);
/// The part of the time that looking may take: one part in so many.
const SHARE: u32 = 20;
/// Directories have times in ticks of the system's kernel, of at most ten milliseconds: another change may have the same time.
const TICK: Duration = Duration::from_millis(20);
/// The same for file systems whose times are whole seconds, or every second one.
const LONG_TICK: Duration = Duration::from_secs(3);
/// The number of names in a note.
const NAMES: usize = 5;
/// The number of files that are remembered for notes.
const MOST_NOTED: usize = 1000;
/// The length of a name in a note or a new file name, in characters.
const NAME_CHARS: usize = 50;

/// The top level of a workspace, shared with the task that looks while a cell runs.
#[derive(Clone)]
pub(crate) struct TopLevel(Arc<Mutex<TopLevelState>>);

/// The mark that distinguishes a link from one that code puts in its place. Inodes are used again; the time is not code's to set.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LinkIdentity {
    inode: u64,
    changed_seconds: i64,
    changed_nanoseconds: i64,
}

struct TopLevelState {
    directory: PathBuf,
    /// Names that are mounted over, or that the policy permits.
    settled: Vec<OsString>,
    /// Whether the directory of npm's packages is a link: nothing is mounted on its packages, and code could replace it.
    has_linked_modules: bool,
    /// Names that need permission and were there before. Links are not mounted over, and code could replace them.
    known: BTreeMap<OsString, Option<LinkIdentity>>,
    /// When the directory was last changed before the last listing; `None` if it may have been changed since.
    seen: Option<(i64, i64)>,
    /// The files that were moved since the last notes, with its new path.
    moved: Vec<(OsString, io::Result<String>)>,
    /// Other notes.
    notes: Vec<String>,
    count: u64,
}

impl TopLevel {
    /// The top of `workspace` as it is now, in a sandbox with these rules; `None` if code cannot write there.
    ///
    /// # Errors
    /// It cannot be listed.
    pub(crate) fn new(workspace: &Path, rules: &SandboxRules) -> io::Result<Option<Self>> {
        let mut opened = rules.allow_write.iter().map(PathPattern::root);
        if !opened.any(|open| workspace.starts_with(open)) {
            return Ok(None);
        }
        let at_top = |pattern: &PathPattern| {
            let path = pattern.path().filter(|path| path.parent() == Some(workspace))?;
            path.file_name().map(OsStr::to_owned)
        };
        let mut settled: Vec<OsString> =
            rules.deny_write.iter().chain(&rules.allow_write).filter_map(at_top).collect();
        if rules.is_git_open() {
            settled.push(".git".into());
        }
        let mut state = TopLevelState {
            directory: workspace.to_owned(),
            settled,
            has_linked_modules: workspace.join(MODULES).is_symlink(),
            known: BTreeMap::new(),
            seen: None,
            moved: Vec::new(),
            notes: Vec::new(),
            count: 0,
        };
        for (name, link) in state.unsettled()? {
            state.known.insert(name, link);
        }
        Ok(Some(Self(Arc::new(Mutex::new(state)))))
    }

    /// Takes note of files that have appeared since the last cell. Whoever made them, they stay: a user works here too.
    pub(crate) fn cell_begins(&self) {
        let mut state = self.0.lock();
        let appeared = state.appeared().unwrap_or_else(|error| {
            tracing::warn!(%error, "the workspace cannot be listed");
            Vec::new()
        });
        let names: Vec<String> = appeared.iter().map(|(name, _)| shown(name)).collect();
        state.known.extend(appeared);
        if names.is_empty() {
            return;
        }
        tracing::warn!(?names, "files that configure programs have appeared in the workspace between cells");
        state.notes.push(format!(
            "New at the top of the workspace since the last cell: {}. Code that runs on may have made what configures programs; \
             remove it if nobody else has.",
            first_few(&names, NAMES)
        ));
    }

    /// Looks while a cell runs, and a last time at its end.
    pub(crate) async fn watch_during<T>(&self, cell: impl Future<Output = T>) -> T {
        let ended = tokio::select! {
            ended = cell => ended,
            never = self.watch() => match never {},
        };
        self.look().await;
        ended
    }

    /// Notes about files that have been moved or have appeared.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        let mut state = self.0.lock();
        let mut notes = std::mem::take(&mut state.notes);
        notes.extend(notes_about(&std::mem::take(&mut state.moved)));
        notes
    }

    /// Looks until it is dropped.
    async fn watch(&self) -> Infallible {
        let mut pause = INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            self.look().await;
            pause = INTERVAL.max(begun.elapsed() * SHARE);
        }
    }

    async fn look(&self) {
        if !self.0.lock().has_changed() {
            return;
        }
        let state = Arc::clone(&self.0);
        // A workspace may have many files.
        let looked = tokio::task::spawn_blocking(move || state.lock().set_aside()).await;
        match looked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the workspace cannot be listed"),
            Err(error) => tracing::error!(%error, "the look at the workspace has failed"),
        }
    }
}

impl TopLevelState {
    fn has_changed(&self) -> bool {
        self.seen.is_none() || self.changed() != self.seen
    }

    /// When the directory was last changed.
    fn changed(&self) -> Option<(i64, i64)> {
        self.directory.metadata().ok().map(|found| (found.ctime(), found.ctime_nsec()))
    }

    /// Moves what code has made without permission.
    fn set_aside(&mut self) -> io::Result<()> {
        for (name, _) in self.appeared()? {
            let moved = self.set_one_aside(&name);
            match &moved {
                Ok(to) => tracing::warn!(name = shown(&name), to, "a file of code's was set aside"),
                // Code has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::error!(name = shown(&name), %error, "a file of code's was not set aside");
                }
            }
            if self.moved.len() < MOST_NOTED {
                self.moved.push((name, moved));
            }
        }
        Ok(())
    }

    /// Moves it, and returns where it is now.
    fn set_one_aside(&mut self, name: &OsStr) -> io::Result<String> {
        let place = inside::make_directory(&self.directory, Path::new(SET_ASIDE))?;
        if self.directory.join(".ipybox/.gitignore").symlink_metadata().is_err() {
            inside::put(&self.directory, ".ipybox", ".gitignore", b"*\n")?;
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, &self.directory, flags, Mode::empty())?;
        let plain = plain(name).trim_start_matches('.').replace('/', "_");
        loop {
            self.count += 1;
            let new = format!("{}-{plain}{ENDING}", self.count);
            match move_to(&top, name, &place, &new) {
                Err(Errno::EXIST) => continue,
                Err(Errno::ACCESS | Errno::PERM) => {
                    make_movable(&top, name)?;
                    move_to(&top, name, &place, &new)?;
                }
                moved => moved?,
            }
            return Ok(format!("{SET_ASIDE}/{new}"));
        }
    }

    /// The names that need permission and are not known.
    fn appeared(&mut self) -> io::Result<Vec<(OsString, Option<LinkIdentity>)>> {
        let changed = self.changed();
        let found = self.unsettled()?;
        self.seen = changed.filter(|(seconds, nanoseconds)| is_settled(*seconds, *nanoseconds));
        let is_known = |name: &OsString, link: &Option<LinkIdentity>| match self.known.get(name) {
            Some(Some(before)) => *link == Some(*before),
            Some(None) => true,
            None => false,
        };
        Ok(found.into_iter().filter(|(name, link)| !is_known(name, link)).collect())
    }

    /// The names that need permission, but for those that are protected or permitted; of links with their identity.
    fn unsettled(&self) -> io::Result<Vec<(OsString, Option<LinkIdentity>)>> {
        let mut found = Vec::new();
        for entry in self.directory.read_dir()? {
            let entry = entry?;
            let name = entry.file_name();
            let is_modules = self.has_linked_modules && name == MODULES;
            if (is_modules || takes_permission(&name.to_string_lossy())) && !self.settled.contains(&name) {
                let link =
                    entry.metadata().ok().filter(|found| found.is_symlink()).map(|found| LinkIdentity {
                        inode: found.ino(),
                        changed_seconds: found.ctime(),
                        changed_nanoseconds: found.ctime_nsec(),
                    });
                found.push((name, link));
            }
        }
        Ok(found)
    }
}

/// Whether a change after now has another time than one that was made at this time after 1970.
fn is_settled(seconds: i64, nanoseconds: i64) -> bool {
    let [Ok(whole), Ok(part)] = [u64::try_from(seconds), u64::try_from(nanoseconds)] else { return false };
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(whole) + Duration::from_nanos(part);
    let tick = if part == 0 { LONG_TICK } else { TICK };
    SystemTime::now().duration_since(at).is_ok_and(|age| age > tick)
}

fn move_to(top: &OwnedFd, name: &OsStr, place: &OwnedFd, new: &str) -> rustix::io::Result<()> {
    match renameat_with(top, name, place, new, RenameFlags::NOREPLACE) {
        // A file system that cannot do it, such as NFS. Only sessions of this workspace write there.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => rustix::fs::renameat(top, name, place, new),
        moved => moved,
    }
}

/// Makes a directory writable, which it must be to get another parent.
#[cfg(target_os = "linux")]
fn make_movable(top: &OwnedFd, name: &OsStr) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt as _;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // By its descriptor: code could put a link in its place.
    let directory = rustix::fs::openat(top, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(not(target_os = "linux"))]
fn make_movable(_top: &OwnedFd, _name: &OsStr) -> io::Result<()> {
    Ok(())
}

fn notes_about(moved: &[(OsString, io::Result<String>)]) -> Vec<String> {
    let mut notes = Vec::new();
    let done: Vec<String> = moved
        .iter()
        .filter_map(|(name, to)| Some(format!("{} to `{}`", shown(name), to.as_ref().ok()?)))
        .collect();
    if !done.is_empty() {
        notes.push(format!(
            "Moved away: {}. In this sandbox code makes no files at the top of the workspace that may configure programs: names that \
             begin with a dot, formats such as TOML. Use a subdirectory; or the user permits the name: an entry of \
             `filesystem.allowWrite` in the policy of the sandbox (`--sandbox-config`).",
            first_few(&done, NAMES)
        ));
    }
    let left: Vec<String> = moved
        .iter()
        .filter_map(|(name, to)| Some(format!("{} ({})", shown(name), to.as_ref().err()?)))
        .collect();
    if !left.is_empty() {
        notes.push(format!(
            "At the top of the workspace are files that may configure programs and could not be moved away: {}. Remove them.",
            first_few(&left, NAMES)
        ));
    }
    notes
}

fn shown(name: &OsStr) -> String {
    format!("`{}`", plain(name))
}

/// A name without what could deceive a reader, its beginning if it is long.
fn plain(name: &OsStr) -> String {
    let is_plain = |character: &char| {
        let is_invisible =
            matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
        !character.is_control() && !is_invisible && *character != '`'
    };
    shortened(&name.to_string_lossy().chars().filter(is_plain).collect::<String>(), NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::kernels::sandbox::{PolicyPaths, SandboxPolicy};

    struct Scene {
        root: tempfile::TempDir,
        top: TopLevel,
    }

    fn rules(base: &Path) -> SandboxRules {
        let policy = r#"{"network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": [".", ".permitted"], "denyWrite": []}}"#;
        SandboxPolicy::parse(policy, "test").unwrap().rules(&PolicyPaths::below(base)).unwrap()
    }

    impl Scene {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let base = root.path().canonicalize().unwrap();
            for directory in ["ws/.ipybox", "home", "state", "p/w"] {
                std::fs::create_dir_all(base.join(directory)).unwrap();
            }
            std::fs::write(base.join("ws/pyproject.toml"), "").unwrap();
            symlink("data", base.join("ws/.link")).unwrap();
            let top = TopLevel::new(&base.join("ws"), &rules(&base)).unwrap().unwrap();
            Self { root, top }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join("ws").join(name)
        }

        fn write(&self, name: &str) {
            std::fs::write(self.path(name), name).unwrap();
        }
    }

    #[tokio::test]
    async fn what_needs_permission_is_moved_with_its_content_and_told() {
        let scene = Scene::new();
        for name in [".foorc", "hk.pkl", "a.csv", ".permitted", "pyproject.toml", ".gitignore"] {
            scene.write(name);
        }
        std::fs::create_dir_all(scene.path(".tool/deep")).unwrap();
        std::fs::set_permissions(scene.path(".tool"), std::fs::Permissions::from_mode(0o500)).unwrap();
        scene.top.look().await;
        let notes = scene.top.take_notes();
        assert_eq!(notes.len(), 1);
        for words in ["`.foorc`", "`hk.pkl`", "`.tool`", "filesystem.allowWrite"] {
            assert!(notes[0].contains(words), "{notes:?}");
        }
        let kept = ["a.csv", ".permitted", "pyproject.toml", ".gitignore", ".link"];
        assert!(kept.iter().all(|name| scene.path(name).symlink_metadata().is_ok()));
        assert!([".foorc", "hk.pkl", ".tool"].iter().all(|name| !scene.path(name).exists()));
        let moved: Vec<_> =
            scene.path(SET_ASIDE).read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(moved.len(), 3, "{moved:?}");
        let texts: Vec<_> = moved.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        assert!(texts.contains(&".foorc".to_owned()) && texts.contains(&"hk.pkl".to_owned()));
        scene.top.look().await;
        assert!(scene.top.take_notes().is_empty());
    }

    #[tokio::test]
    async fn a_link_to_the_packages_of_npm_is_not_replaced() {
        let scene = Scene::new();
        let modules = scene.path("node_modules");
        std::fs::create_dir(&modules).unwrap();
        scene.top.look().await;
        assert!(modules.is_dir() && scene.top.take_notes().is_empty());
        std::fs::remove_dir(&modules).unwrap();
        symlink("store", &modules).unwrap();
        let rules = rules(&scene.root.path().canonicalize().unwrap());
        let top = TopLevel::new(&scene.path("").canonicalize().unwrap(), &rules).unwrap().unwrap();
        top.look().await;
        assert!(modules.is_symlink());
        std::fs::remove_file(&modules).unwrap();
        std::fs::create_dir_all(modules.join("ipybox")).unwrap();
        top.look().await;
        assert!(!modules.exists(), "{:?}", top.take_notes());
    }

    #[tokio::test]
    async fn every_way_of_making_a_file_is_seen_also_one_after_the_other() {
        let scene = Scene::new();
        scene.write("plain");
        for round in 0..20 {
            match round % 5 {
                0 => std::fs::rename(scene.path("plain"), scene.path(".renamed")).unwrap(),
                1 => std::fs::hard_link(scene.path("a.csv"), scene.path(".linked")).unwrap(),
                2 => symlink("a.csv", scene.path(".symbolic")).unwrap(),
                3 => std::fs::create_dir(scene.path(".made")).unwrap(),
                _ => {
                    std::fs::remove_file(scene.path(".link")).ok();
                    symlink("/", scene.path(".link")).unwrap();
                }
            }
            scene.write("plain");
            scene.write("a.csv");
            scene.top.look().await;
            let names = scene.path("").read_dir().unwrap().map(|entry| entry.unwrap().file_name());
            let mut left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with('.')).collect();
            left.sort();
            let expected: &[&str] = if round < 4 { &[".ipybox", ".link"] } else { &[".ipybox"] };
            assert_eq!(left, expected, "round {round}");
        }
    }

    #[tokio::test]
    async fn what_appears_between_cells_stays_and_is_told_once() {
        let scene = Scene::new();
        scene.write(".of-a-user");
        scene.top.cell_begins();
        let notes = scene.top.take_notes();
        assert!(notes.len() == 1 && notes[0].contains("`.of-a-user`"), "{notes:?}");
        scene.top.cell_begins();
        scene.top.look().await;
        assert!(scene.top.take_notes().is_empty());
        assert!(scene.path(".of-a-user").exists());
    }

    #[tokio::test]
    async fn a_file_is_moved_while_the_cell_still_runs() {
        let scene = Scene::new();
        scene.write(".foorc");
        let gone = async {
            while scene.path(".foorc").exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = scene.top.watch() => match never {},
            () = gone => {}
        }
    }
}
