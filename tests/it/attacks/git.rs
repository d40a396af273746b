//! git on the host after code has been in the workspace: it runs nothing that code could plant by what git is configured for.

use std::path::Path;
use std::process::Command;

use super::host::{Backend, Host, User};
use super::nothing_gets_through_by;

/// Settings of the workspace's repository that name files, some of which is missing.
const SETTINGS: [(&str, &str); 8] = [
    ("core.hooksPath", "hooks"),
    ("core.attributesFile", "team/attributes"),
    ("core.fsmonitor", "./watch"),
    ("core.pager", "scripts/page.py"),
    ("include.path", "../team/gitconfig"),
    ("filter.planted.clean", "tools/clean.sh %f"),
    ("diff.planted.textconv", "sh tools/missing.sh"),
    ("merge.planted.driver", "drivers/merge %O %A %B"),
];

/// The directories of submodules.
const SUBMODULES: [&str; 2] = ["module", "a/b/c/d/module"];

/// Code that plants programs under each of these names, also in directories that it puts in the place of others.
const PLANT: &str = r##"
import ctypes, os, shutil
libc = ctypes.CDLL(None)
def plant(path):
    name = path.replace("/", "-")
    text = f"[core]\n\tfsmonitor = : > {outside}/ran-{name}; false\n" if "gitconfig" in path else f"#!/bin/sh\n: > {outside}/ran-{name}\nexec cat\n"
    def write():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w") as file: file.write(text)
        os.chmod(path, 0o755)
    def replace():
        with open("mine", "w") as file: file.write(text)
        os.chmod("mine", 0o755)
        os.rename("mine", path)
    def link():
        with open("linked", "w") as file: file.write(text)
        os.chmod("linked", 0o755)
        os.link("linked", path)
    def unnamed():
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o755)
        os.write(descriptor, text.encode())
        os.link(f"/proc/self/fd/{descriptor}", path, follow_symlinks=True)
    def move_away():
        top = path.split("/")[0]
        os.rename(top, "away-" + top)
        write()
    def swap():
        top = path.split("/")[0]
        shutil.rmtree("new", ignore_errors=True)
        if "/" in path:
            os.makedirs("new/" + os.path.dirname(path[len(top) + 1:]), exist_ok=True)
            target = "new/" + path[len(top) + 1:]
        else:
            target = "new"
        with open(target, "w") as file: file.write(text)
        os.chmod(target, 0o755)
        if libc.renameat2(-100, b"new", -100, top.encode(), 2): raise OSError("swap")
    for way in (write, replace, link, unnamed, move_away, swap):
        try: way()
        except OSError: continue
        print("PLANTED", way.__name__, path)
for path in ["hooks/pre-commit", "hooks/post-index-change", "watch", "scripts/page.py", "team/gitconfig", "tools/clean.sh",
             "tools/missing.sh", "drivers/merge", "team/attributes"]:
    plant(path)
import subprocess
for module in ("module", "a/b/c/d/module"):
    try:
        subprocess.run(["git", "init", "-q", "--template=", module], check=True, capture_output=True)
        with open(f"{module}/.git/config", "a") as file:
            file.write(f"[core]\n\tfsmonitor = : > {outside}/ran-module; false\n")
        with open(f"{module}/file", "w") as file: file.write("x")
        subprocess.run(["git", "-C", module, "add", "file"], capture_output=True)
    except (OSError, subprocess.CalledProcessError): continue
    print("PLANTED", module)
with open("data.txt", "a") as file: file.write("changed\n")
"##;

/// The output of git.
fn git(workspace: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b"]);
    // Whether it succeeds does not count here: what it runs does.
    String::from_utf8(command.args(arguments).current_dir(workspace).output().unwrap().stdout).unwrap()
}

async fn everything(backend: Backend, user: User) -> String {
    let Some(host) = Host::new(backend, user) else { return String::new() };
    let workspace = host.workspace();
    std::fs::create_dir_all(workspace.join("tools")).unwrap();
    std::fs::write(workspace.join("tools/clean.sh"), "#!/bin/sh\nexec cat\n").unwrap();
    std::fs::write(workspace.join(".gitattributes"), "*.txt filter=planted diff=planted merge=planted\n")
        .unwrap();
    std::fs::write(workspace.join("data.txt"), "data\n").unwrap();
    git(&workspace, &["init", "-q"]);
    git(&workspace, &["add", "data.txt", ".gitattributes"]);
    git(&workspace, &["commit", "-q", "-m", "data"]);
    for (key, value) in SETTINGS {
        git(&workspace, &["config", key, value]);
    }
    // A submodule that is not checked out, and one that lies deep.
    let commit = git(&workspace, &["rev-parse", "HEAD"]);
    for submodule in SUBMODULES {
        std::fs::create_dir_all(workspace.join(submodule)).unwrap();
        let entry = format!("160000,{},{submodule}", commit.trim());
        git(&workspace, &["update-index", "--add", "--cacheinfo", &entry]);
        assert!(git(&workspace, &["ls-files"]).contains(submodule));
    }
    host.give_to_user();

    let mut ipybox = host.start();
    ipybox.initialize().await;
    let planted = ipybox.cell(&format!("outside = {:?}\n{PLANT}", host.outside())).await.ok();
    ipybox.stop().await;
    for arguments in
        [&["status"][..], &["diff"], &["add", "data.txt"], &["commit", "-m", "more"], &["log", "-p"]]
    {
        git(&workspace, arguments);
    }
    let entries = std::fs::read_dir(host.outside()).unwrap().map(|entry| entry.unwrap().file_name());
    let ran: Vec<_> = entries.filter(|name| name.to_string_lossy().starts_with("ran-")).collect();
    // Nothing that the configuration names can even be written.
    let is_clean = ran.is_empty() && !planted.contains("PLANTED");
    if is_clean {
        String::new()
    } else {
        format!("{backend:?} {user:?}: git has run {ran:?}; planted:\n{planted}")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_runs_nothing_that_code_could_plant_by_its_configuration() {
    nothing_gets_through_by(everything).await;
}
