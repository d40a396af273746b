use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::ground::process::skip;
use crate::kernels::sandbox::SandboxPolicy;

/// The time that all runs of git may take on a slow machine.
const SLOW: Duration = Duration::from_secs(300);

/// A home with a repository `ws`, which is the workspace.
struct Scene {
    root: tempfile::TempDir,
    workspace: PathBuf,
}

impl Scene {
    /// `None` without git.
    fn new() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        for directory in ["ws/tools", "ws/data", "home", "state", "p/w"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        let scene = Self { workspace: base.join("ws"), root };
        let is_there = Command::new("git").arg("--version").output().is_ok();
        if !is_there {
            skip("git", "install it to test what its configuration names");
            return None;
        }
        scene.git("ws", &["init", "-q"]);
        Some(scene)
    }

    fn base(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap()
    }

    fn git(&self, directory: &str, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null"]);
        command
            .args(arguments)
            .current_dir(self.base().join(directory))
            .env("HOME", self.base().join("home"));
        assert!(command.status().unwrap().success(), "{arguments:?}");
    }

    fn set(&self, key: &str, value: &str) {
        self.git("ws", &["config", key, value]);
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.base().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    async fn read(&self) -> NamedByGit {
        let base = self.base();
        let paths = PolicyPaths { workspace: self.workspace.clone(), ..PolicyPaths::below(&base) };
        let rules = SandboxPolicy::embedded().unwrap().rules(&paths).unwrap();
        let home = base.join("home").display().to_string();
        let variables = [("PATH", std::env::var("PATH").unwrap()), ("HOME", home)];
        named_within(SLOW, &rules, &paths, &Variables::from_pairs(variables)).await
    }

    /// Checks which paths below the workspace are named, and which words the notes have.
    #[track_caller]
    fn check(&self, found: &NamedByGit, paths: &[&str], notes: &[&str]) {
        let named =
            found.paths.iter().map(|path| path.strip_prefix(&self.workspace).unwrap().to_str().unwrap());
        assert_eq!(named.collect::<Vec<_>>(), paths);
        assert_eq!(found.notes.len(), notes.len(), "{:?}", found.notes);
        for (note, words) in found.notes.iter().zip(notes) {
            assert!(note.contains(words), "{note}");
        }
    }
}

#[tokio::test]
async fn files_that_git_runs_or_reads_are_found_though_they_are_missing() {
    let Some(scene) = Scene::new() else { return };
    scene.write("ws/tools/clean.py", "");
    scene.set("core.hooksPath", "hooks");
    scene.set("core.attributesFile", "attributes");
    scene.set("core.fsmonitor", "./watch");
    scene.set("filter.notebooks.clean", "python3 tools/clean.py %f");
    scene.set("diff.sheet.textconv", "scripts/show");
    scene.set("user.name", "data");
    scene.set("alias.all", "!tools/all.sh data");
    scene.set("remote.origin.url", "data");
    let found = scene.read().await;
    let paths = [
        "attributes",
        "hooks",
        "scripts",
        "scripts/show",
        "tools",
        "tools/all.sh",
        "tools/clean.py",
        "watch",
    ];
    scene.check(&found, &paths, &["code can put modules beside it"]);
}

#[tokio::test]
async fn included_files_are_followed_though_their_condition_does_not_hold() {
    let Some(scene) = Scene::new() else { return };
    scene.set("include.path", "../team/gitconfig");
    scene.set("includeIf.onbranch:other.path", "../team/other");
    scene.write("ws/team/gitconfig", "[core]\n\tsshCommand = team/ssh\n");
    scene.write("ws/team/other", "[include]\n\tpath = missing\n[diff]\n\texternal = team/sub/diff\n");
    scene.write("home/.gitconfig", "[include]\n\tpath = ~/../ws/of-home\n");
    let found = scene.read().await;
    let paths = [
        "of-home",
        "team",
        "team/gitconfig",
        "team/missing",
        "team/other",
        "team/ssh",
        "team/sub",
        "team/sub/diff",
    ];
    scene.check(&found, &paths, &[]);
}

#[tokio::test]
async fn links_are_closed_with_their_directories_and_what_cannot_be_closed_is_told() {
    let Some(scene) = Scene::new() else { return };
    symlink("../tools", scene.workspace.join("data/hooks")).unwrap();
    scene.set("core.hooksPath", "data/hooks");
    scene.check(&scene.read().await, &["data", "tools"], &[]);
    symlink("tools", scene.workspace.join("hooks")).unwrap();
    scene.set("core.hooksPath", "hooks");
    scene.check(&scene.read().await, &[], &["leads through the link"]);
    scene.set("core.hooksPath", ".");
    scene.check(&scene.read().await, &[], &["can write as a whole"]);
    scene.set("core.hooksPath", "/usr/share/hooks");
    scene.set("filter.notebooks.clean", "python -m nbstripout");
    scene.check(&scene.read().await, &[], &["Python then imports modules from the workspace"]);
}

#[tokio::test]
async fn repositories_above_below_and_elsewhere_are_read_too() {
    let Some(scene) = Scene::new() else { return };
    scene.git(".", &["init", "-q", "--separate-git-dir", "ws/meta", "ws/data/apart"]);
    scene.git("ws/data/apart", &["config", "core.hooksPath", "hooks"]);
    scene.check(&scene.read().await, &["data/apart/hooks", "meta"], &[]);
    std::fs::remove_dir_all(scene.workspace.join(".git")).unwrap();
    scene.git(".", &["init", "-q"]);
    scene.git(".", &["config", "core.hooksPath", "ws/hooks"]);
    scene.check(&scene.read().await, &["data/apart/hooks", "hooks", "meta"], &[]);
}

#[tokio::test]
async fn the_repositories_of_submodules_are_protected_though_they_are_missing_or_deep() {
    let Some(scene) = Scene::new() else { return };
    scene.git(".", &["init", "-q", "lib"]);
    scene.git("lib", &["commit", "-q", "--allow-empty", "-m", "x"]);
    for path in ["sub", "a/b/c/d/e/deep"] {
        let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../lib", path];
        scene.git("ws", &add);
    }
    scene.git("ws", &["commit", "-q", "-m", "x"]);
    scene.git("ws", &["submodule", "--quiet", "deinit", "-f", "sub"]);
    std::fs::remove_file(scene.workspace.join("sub/.git")).ok();
    scene.git("ws/a/b/c/d/e/deep", &["config", "core.hooksPath", "own-hooks"]);
    let paths = ["a/b/c/d/e/deep/.git", "a/b/c/d/e/deep/own-hooks", "sub/.git"];
    scene.check(&scene.read().await, &paths, &[]);
}

#[tokio::test]
async fn nothing_that_is_configured_runs_when_it_is_read() {
    let Some(scene) = Scene::new() else { return };
    let marker = scene.base().join("ran");
    let command = format!("touch {}", marker.display());
    for key in [
        "core.fsmonitor",
        "core.pager",
        "pager.config",
        "core.editor",
        "core.sshCommand",
        "core.askPass",
        "core.alternateRefsCommand",
        "credential.helper",
        "filter.a.process",
        "diff.external",
        "gpg.program",
    ] {
        scene.set(key, &command);
    }
    scene.set("alias.config", &format!("!{command}"));
    scene.set("alias.rev-parse", &format!("!{command}"));
    scene.write("ws/.gitattributes", "* filter=a diff=a\n");
    scene.read().await;
    assert!(!marker.exists());
}
