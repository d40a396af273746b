use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use super::*;

/// A workspace, and a copy of it whose session goes on.
struct Scene {
    root: tempfile::TempDir,
    copy: WorkspaceCopy,
}

/// Closed paths of the workspace: `kept` is read only, `secret` is hidden but for `secret/open`.
const RULES: [(&str, bool); 5] =
    [("", true), ("kept", false), ("secret", false), ("secret/open", true), ("missing", false)];

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().join("ws");
        for directory in ["data/deep", "kept", "secret/open", "empty"] {
            std::fs::create_dir_all(workspace.join(directory)).unwrap();
        }
        std::fs::create_dir(workspace.join("data/__pycache__")).unwrap();
        std::fs::write(workspace.join("data/__pycache__/a.pyc"), "").unwrap();
        for file in
            ["a.py", "b.py", "c.py", "data/x.csv", "data/deep/y", "kept/k", "secret/s", "secret/open/o"]
        {
            std::fs::write(workspace.join(file), format!("first of {file}\nsecond\n")).unwrap();
        }
        symlink("a.py", workspace.join("link")).unwrap();
        nix::unistd::mkfifo(&workspace.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let copy = make(&root.path().join("state"), &workspace).unwrap();
        Self { root, copy }
    }

    fn user(&self, path: &str) -> PathBuf {
        self.root.path().join("ws").join(path)
    }

    fn code(&self, path: &str) -> PathBuf {
        self.copy.files().join(path)
    }

    fn shown(&self) -> Vec<String> {
        let shown = |change: &FileChange| {
            let marks: String = change.marks.iter().map(|mark| format!(" {mark:?}")).collect();
            format!("{:?} {}{marks}", change.kind, change.path.display())
        };
        self.copy.show(&[]).unwrap().changes.iter().map(shown).collect()
    }

    fn apply(&self, paths: &[&str], doubts: ApplyDoubts) -> AppliedChanges {
        self.copy.apply(&paths.iter().map(PathBuf::from).collect::<Vec<_>>(), doubts).unwrap()
    }

    fn refused(&self, paths: &[&str]) -> String {
        let applied = self.apply(paths, ApplyDoubts::Refuse);
        assert!(applied.done.is_empty(), "{applied:?}");
        applied.refused.into_iter().map(|one| one.why).collect()
    }
}

fn make(state: &Path, workspace: &Path) -> Result<WorkspaceCopy, CopyError> {
    std::fs::create_dir_all(state).unwrap();
    let rules = RULES.map(|(path, is_writable)| (workspace.join(path), is_writable));
    // `join` adds a slash.
    let rules = rules.map(|(path, is_writable)| (path.components().collect(), is_writable));
    WorkspaceCopy::make(state, workspace, WritableParts::new(workspace, rules), None)
}

#[test]
fn a_copy_has_what_code_may_write_and_nothing_waits_in_it() {
    let scene = Scene::new();
    assert_eq!(scene.shown(), [""; 0]);
    assert_eq!(
        std::fs::read(scene.code("data/deep/y")).unwrap(),
        std::fs::read(scene.user("data/deep/y")).unwrap()
    );
    assert_eq!(std::fs::read_link(scene.code("link")).unwrap(), Path::new("a.py"));
    assert!(scene.code("secret/open/o").exists() && scene.code("empty").is_dir());
    for left_out in ["kept", "secret/s", "fifo", "data/__pycache__"] {
        assert!(scene.code(left_out).symlink_metadata().is_err(), "{left_out}");
    }
    // Neither bytecode nor places that something is mounted on are changes.
    std::fs::create_dir(scene.code("data/__pycache__")).unwrap();
    std::fs::write(scene.code("data/__pycache__/a.pyc"), "").unwrap();
    std::fs::create_dir(scene.code("kept")).unwrap();
    std::fs::write(scene.code("missing"), "").unwrap();
    assert_eq!(scene.shown(), [""; 0]);
}

#[test]
fn a_copy_of_a_copy_differs_from_the_workspace_as_the_first_one_does() {
    let mut scene = Scene::new();
    std::fs::write(scene.code("a.py"), "changed before").unwrap();
    std::fs::remove_file(scene.code("b.py")).unwrap();
    std::fs::write(scene.code("new.py"), "new").unwrap();
    let before = scene.shown();
    assert_eq!(before, ["Changed a.py", "Deleted b.py", "Added new.py"]);
    let second = scene.copy.copy(&scene.root.path().join("state")).unwrap();
    let first = std::mem::replace(&mut scene.copy, second);
    assert_eq!(scene.shown(), before);
    std::fs::write(scene.code("c.py"), "changed later").unwrap();
    std::fs::remove_file(scene.code("new.py")).unwrap();
    assert_eq!(scene.shown(), ["Changed a.py", "Deleted b.py", "Changed c.py"]);
    // They are apart, and both are applied to the workspace.
    assert_eq!(scene.apply(&[], ApplyDoubts::Refuse).refused, []);
    assert_eq!(std::fs::read_to_string(scene.user("a.py")).unwrap(), "changed before");
    assert!(!scene.user("b.py").exists() && !scene.user("new.py").exists());
    assert!(first.files().join("new.py").exists());
}

#[test]
fn every_kind_of_change_is_found_marked_and_applied() {
    let scene = Scene::new();
    std::fs::write(scene.code("a.py"), "first of a.py\nother\n").unwrap();
    std::fs::remove_file(scene.code("b.py")).unwrap();
    std::fs::remove_dir_all(scene.code("data")).unwrap();
    std::fs::write(scene.code("data"), "no directory").unwrap();
    std::fs::remove_file(scene.code("c.py")).unwrap();
    std::fs::create_dir(scene.code("c.py")).unwrap();
    std::fs::write(scene.code("c.py/inner"), "in the place of a file").unwrap();
    std::fs::create_dir_all(scene.code("new/er")).unwrap();
    std::fs::write(scene.code("new/er/run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(scene.code("new/er/run.sh"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::write(scene.code("Makefile"), "all:\n").unwrap();
    std::fs::remove_file(scene.code("link")).unwrap();
    symlink("c.py/inner", scene.code("link")).unwrap();
    std::fs::set_permissions(scene.code("secret/open/o"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let expected = [
        "Added Makefile Configuration",
        "Changed a.py",
        "Deleted b.py",
        "Changed c.py",
        "Added c.py/inner",
        "Changed data",
        "Deleted data/deep",
        "Deleted data/deep/y",
        "Deleted data/x.csv",
        "Changed link Link(\"c.py/inner\")",
        "Added new",
        "Added new/er",
        "Added new/er/run.sh Executable",
        "Mode secret/open/o",
    ];
    assert_eq!(scene.shown(), expected);
    let applied = scene.apply(&[], ApplyDoubts::Refuse);
    assert_eq!((applied.done.len(), applied.refused), (expected.len(), Vec::new()));
    assert_eq!(std::fs::read_to_string(scene.user("a.py")).unwrap(), "first of a.py\nother\n");
    assert_eq!(std::fs::read_to_string(scene.user("data")).unwrap(), "no directory");
    assert_eq!(std::fs::read_to_string(scene.user("link")).unwrap(), "in the place of a file");
    assert!(!scene.user("b.py").exists());
    let mode = |path: &str| scene.user(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("new/er/run.sh"), mode("secret/open/o")), (0o755, 0o600));
    assert_eq!(scene.shown(), [""; 0]);
    let left = scene.root.path().join("ws").read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".ipybox-new-")));
}

#[test]
fn one_file_is_applied_without_the_others_and_the_rest_discarded() {
    let scene = Scene::new();
    std::fs::create_dir(scene.code("out")).unwrap();
    for file in ["out/one", "out/two", "a.py"] {
        std::fs::write(scene.code(file), "new\n").unwrap();
    }
    std::fs::remove_dir_all(scene.code("data")).unwrap();
    scene.shown();
    assert_eq!(scene.apply(&["out/one"], ApplyDoubts::Refuse).done, [PathBuf::from("out/one")]);
    assert!(scene.user("out/one").exists() && !scene.user("out/two").exists());
    let discarded = scene.copy.discard(&[]).unwrap();
    assert_eq!(discarded.refused, Vec::new());
    assert!(!scene.code("out/two").exists() && scene.code("data/deep/y").exists());
    assert_eq!(std::fs::read_to_string(scene.code("a.py")).unwrap(), "first of a.py\nsecond\n");
    assert_eq!(scene.shown(), [""; 0]);
}

#[test]
fn what_the_user_has_changed_meanwhile_is_a_conflict() {
    let scene = Scene::new();
    for path in ["a.py", "b.py", "new"] {
        std::fs::write(scene.code(path), "of code\n").unwrap();
        std::fs::write(scene.user(path), "of the user\n").unwrap();
    }
    std::fs::remove_file(scene.code("c.py")).unwrap();
    std::fs::write(scene.user("c.py"), "of the user\n").unwrap();
    // What both have done is no difference, and what only the user has done none of code's.
    std::fs::write(scene.user("b.py"), "of code\n").unwrap();
    std::fs::write(scene.user("data/x.csv"), "of the user\n").unwrap();
    let expected = ["Changed a.py Conflict", "Deleted c.py Conflict", "Changed new Conflict"];
    assert_eq!(scene.shown(), expected);
    assert!(scene.refused(&[]).contains("the workspace's has changed since the copy was made"));
    assert_eq!(std::fs::read_to_string(scene.user("a.py")).unwrap(), "of the user\n");
    assert_eq!(scene.apply(&["a.py", "c.py"], ApplyDoubts::Override).refused, Vec::new());
    assert_eq!(std::fs::read_to_string(scene.user("a.py")).unwrap(), "of code\n");
    assert!(!scene.user("c.py").exists());
}

#[test]
fn only_what_was_shown_is_applied() {
    let scene = Scene::new();
    std::fs::write(scene.code("a.py"), "harmless\n").unwrap();
    assert!(scene.refused(&[]).contains("has not been shown yet"));
    scene.shown();
    std::fs::write(scene.code("a.py"), "harmful!\n").unwrap();
    assert!(scene.refused(&[]).contains("code has changed it since it was shown"));
    let found = scene.copy.show(&[]).unwrap();
    let copy = ChangedCopies::of(&scene.root.path().join("state")).find(&scene.copy.id()).unwrap();
    let diff = copy.diff(&found.changes[0]);
    assert!(
        diff.contains("-second\n")
            && diff.contains("+harmful!\n")
            && diff.starts_with("--- a/a.py\n+++ b/a.py\n"),
        "{diff}"
    );
    std::fs::write(scene.code("a.py"), "harmless\n").unwrap();
    assert!(copy.diff(&found.changes[0]).contains("code changes it at this moment"));
}

#[test]
fn nothing_is_read_or_written_through_links_of_code() {
    let scene = Scene::new();
    std::fs::write(scene.root.path().join("outside"), "outside\n").unwrap();
    let outside = scene.root.path().join("elsewhere");
    std::fs::create_dir(&outside).unwrap();
    std::fs::remove_file(scene.code("a.py")).unwrap();
    symlink(scene.root.path().join("outside"), scene.code("a.py")).unwrap();
    std::fs::remove_dir_all(scene.code("data")).unwrap();
    symlink(&outside, scene.code("data")).unwrap();
    symlink("../..", scene.code("empty/up")).unwrap();
    symlink("../kept", scene.code("empty/in")).unwrap();
    symlink("in/../..", scene.code("empty/by")).unwrap();
    nix::unistd::mkfifo(&scene.code("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(scene.code("socket")).unwrap();
    let shown = scene.shown();
    for (path, mark) in [
        ("Changed a.py", "LeadsOut"),
        ("Changed data", "LeadsOut"),
        ("Added empty/up", "LeadsOut"),
        ("Added empty/by", "LeadsOut"),
        ("Added pipe", "Special"),
        ("Added socket", "Special"),
    ] {
        assert!(shown.iter().any(|line| line.starts_with(path) && line.ends_with(mark)), "{path}: {shown:?}");
    }
    let applied = scene.apply(&[], ApplyDoubts::Refuse);
    assert!(applied.done.contains(&"empty/in".into()), "{applied:?}");
    for path in ["a.py", "data", "empty/up", "empty/by", "pipe", "socket"] {
        assert!(applied.refused.iter().any(|one| one.path == Path::new(path)), "{path}: {applied:?}");
        assert!(!scene.user(path).is_symlink(), "{path}");
    }
    let forced = scene.apply(&["pipe"], ApplyDoubts::Override);
    assert!(forced.refused[0].why.contains("device"));

    // A link of an earlier session's in the workspace.
    std::fs::create_dir(scene.code("kept2")).unwrap();
    std::fs::write(scene.code("kept2/file"), "of code").unwrap();
    symlink(&outside, scene.user("kept2")).unwrap();
    scene.shown();
    let applied = scene.apply(&["kept2/file"], ApplyDoubts::Override);
    assert!(applied.refused[0].why.contains("no directory, or a symbolic link"), "{applied:?}");
    assert_eq!(outside.read_dir().unwrap().count(), 0);
}

#[test]
fn a_copy_is_removed_with_its_session_only_if_nothing_waits_in_it() {
    let Scene { root, copy } = Scene::new();
    let copies = ChangedCopies::of(&root.path().join("state"));
    assert!(copies.list().unwrap()[0].is_live);
    assert_eq!(copy.close().unwrap(), 0);
    assert!(copies.list().unwrap().is_empty());

    let copy = make(&root.path().join("state"), &root.path().join("ws")).unwrap();
    let id = copy.id();
    std::fs::write(copy.files().join("a.py"), "new\n").unwrap();
    assert_eq!(copy.close().unwrap(), 1);
    let listed = copies.list().unwrap();
    assert_eq!((listed.len(), listed[0].is_live, listed[0].changes), (1, false, 1));
    let copy = copies.find(&id[..3]).unwrap();
    copy.show(&[]).unwrap();
    copy.apply(&[], ApplyDoubts::Refuse).unwrap();
    assert!(copies.list().unwrap().is_empty());
    assert!(matches!(copies.find(&id), Err(NoChangedCopy::Unknown { .. })));
    assert_eq!(std::fs::read_to_string(root.path().join("ws/a.py")).unwrap(), "new\n");
}

#[test]
fn the_oldest_of_too_many_copies_are_removed_and_none_of_living_sessions() {
    let root = tempfile::tempdir().unwrap();
    let (state, workspace) = (root.path().join("state"), root.path().join("ws"));
    std::fs::create_dir(&workspace).unwrap();
    let living = make(&state, &workspace).unwrap();
    let mut ids = Vec::new();
    for _ in 0..18 {
        let copy = make(&state, &workspace).unwrap();
        std::fs::write(copy.files().join("a.py"), "new\n").unwrap();
        ids.push(copy.id());
        assert_eq!(copy.close().unwrap(), 1);
    }
    let listed = ChangedCopies::of(&state).list().unwrap();
    assert_eq!(listed.iter().filter(|copy| !copy.is_live).count(), 17, "16 and the newest");
    assert!(listed.iter().any(|copy| copy.id == living.id()));
}

#[test]
fn a_workspace_that_is_too_deep_is_refused_in_words_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let workspace = root.path().join("ws");
    std::fs::create_dir_all(workspace.join("d/".repeat(70))).unwrap();
    let error = make(&root.path().join("state"), &workspace).unwrap_err();
    assert!(error.to_string().contains("more than 60 levels of directories"), "{error}");
    assert_eq!(root.path().join("state").join(COPIES).read_dir().unwrap().count(), 0);
}

#[test]
fn a_tree_that_is_too_deep_is_said_to_be_cut() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.code(&"d/".repeat(100))).unwrap();
    std::fs::remove_file(scene.code("b.py")).unwrap();
    let found = scene.copy.changes().unwrap();
    assert!(found.is_cut && found.changes.len() > 60);
    assert!(found.changes.iter().all(|change| change.kind != FileChangeKind::Deleted));
}
