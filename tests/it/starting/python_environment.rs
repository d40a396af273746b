//! The Python environment: made for the workspace, filled by `install_package`, seen by the kernel.

use serde_json::json;

use crate::support::{Ipybox, Place, eventually, kernel_python, tool};

/// ipybox with an environment of its own, made by the pinned `uv`.
async fn managed(place: &Place) -> Ipybox {
    let uv = tool("bin/uv");
    let mut ipybox = place.start_with(&[], &[("UV", uv.to_str().unwrap())]).await;
    ipybox.initialize().await;
    ipybox
}

#[tokio::test]
async fn a_workspace_gets_an_environment_of_its_own_and_keeps_what_is_installed() {
    let place = Place::new();
    let mut ipybox = managed(&place).await;
    let params = json!({
        "name": "execute_ipython_cell",
        "arguments": {"code": "import sys, os\nprint(sys.prefix, sys.version_info >= (3, 10))"},
        "_meta": {"progressToken": 1},
    });
    let text = ipybox.request("tools/call", params).await.answer().await.ok();
    let states = place.states().canonicalize().unwrap();
    assert!(text.starts_with(states.to_str().unwrap()) && text.ends_with("True"), "{text}");
    eventually("the first cell has said what it waits for", || ipybox.progress().len() > 1).await;
    assert!(ipybox.cell("import iniconfig").await.error().contains("ModuleNotFoundError"));
    let output = ipybox.install("iniconfig>=2").await.ok();
    assert!(output.starts_with("Installed iniconfig 2.") && output.lines().count() == 1, "{output}");
    assert_eq!(ipybox.cell("import iniconfig; iniconfig.__name__").await.ok(), "'iniconfig'");
    let output = ipybox.install("iniconfig==2.0.0").await.ok();
    assert!(output.starts_with("Downgraded iniconfig 2.") && output.contains(" to 2.0.0. "), "{output}");
    assert!(output.contains("until `reset`") && output.lines().count() == 1, "{output}");
    let list = json!({"package_name": ["iniconfig==2.0.0", "toolz"]});
    let output = ipybox.call("install_package", list).await.ok();
    assert!(
        output.starts_with("Installed toolz ") && output.ends_with("; already there: iniconfig 2.0.0"),
        "{output}"
    );
    let error = ipybox.install("iniconfig>=2.0 no-such-package-of-ipybox zipp").await.error();
    let end = "Not possible: `no-such-package-of-ipybox`\nNone of the packages was installed";
    assert!(error.ends_with(end), "{error}");
    assert!(ipybox.cell("import zipp").await.error().contains("ModuleNotFoundError"));
    ipybox.reset().await;
    assert_eq!(ipybox.cell("import iniconfig; iniconfig.__name__").await.ok(), "'iniconfig'");
    // What users type installs into the same place.
    let text = ipybox.cell("!pip --version").await.ok();
    assert!(text.contains(states.to_str().unwrap()), "{text}");
    let text = ipybox.cell("%pip --version").await.ok();
    assert!(text.contains(states.to_str().unwrap()), "{text}");
    ipybox.stop().await;
    let mut ipybox = managed(&place).await;
    assert_eq!(ipybox.cell("import iniconfig; iniconfig.__name__").await.ok(), "'iniconfig'");
    // Its Python is removed while it runs.
    let prefix = ipybox.cell("import sys; print(sys.prefix)").await.ok();
    std::fs::remove_dir_all(&prefix).unwrap();
    ipybox.reset().await;
    assert_eq!(ipybox.cell("import sys; print(sys.prefix)").await.ok(), prefix);
    ipybox.stop().await;
}

#[tokio::test]
async fn two_servers_that_start_at_once_share_one_environment() {
    let place = Place::new();
    let (mut one, mut two) = tokio::join!(managed(&place), managed(&place));
    let code = "import sys; sys.prefix";
    let (first, second) = (one.start_cell(code).await, two.start_cell(code).await);
    assert_eq!(first.answer().await.ok(), second.answer().await.ok());
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn an_interrupted_creation_is_made_good() {
    let place = Place::new();
    let mut ipybox = managed(&place).await;
    eventually("the environment is being made", || !place.everything_in_states().is_empty()).await;
    ipybox.signal(nix::sys::signal::Signal::SIGKILL);
    ipybox.ended().await;
    let mut ipybox = managed(&place).await;
    assert_eq!(ipybox.cell("import pydantic, sys; 'ipykernel' in sys.modules").await.ok(), "False");
    ipybox.stop().await;
}

#[tokio::test]
async fn options_and_nonsense_are_not_installed() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (package, named) in [
        ("", "without a name"),
        ("-r requirements.txt", "`-r`"),
        ("--index-url=http://127.0.0.1:1", "`--index-url=http://127.0.0.1:1`"),
        ("a --index-url http://127.0.0.1:1", "`--index-url`"),
        ("a\n-r b", "`-r`"),
        ("six; touch x", "`six;`"),
        ("pip install six", "`pip install six`: a command is no requirement"),
    ] {
        let text = ipybox.install(package).await.error();
        assert!(text.contains(named), "{package:?}: {text}");
    }
    let text = ipybox.install("no-such-package-of-this-name-0123").await.error();
    assert!(text.contains("no-such-package-of-this-name-0123"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_unusable_python_is_reported_with_what_would_be_right() {
    let place = Place::new();
    let empty = place.workspace().join("empty");
    std::fs::write(&empty, "").unwrap();
    for (python, words) in [("/no/such/python", "/no/such/python"), (empty.to_str().unwrap(), "executable")] {
        let mut ipybox = place.start(&["--python", python]).await;
        ipybox.initialize().await;
        let text = ipybox.cell("1").await.error();
        assert!(text.contains(words) && text.contains("hint: "), "{text}");
        let text = ipybox.install("x").await.error();
        assert!(text.contains(words), "{text}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn the_kernel_sees_only_what_is_meant_for_it() {
    let place = Place::new();
    place.write(".env", "FILE_SECRET=1\nKERNEL_ENV_FILE_KEY=file\nKERNEL_ENV_BOTH_KEY=file\nKERNEL_ENV_MODE=named\nKERNEL_ENV_OTHER=1\n");
    let variables = [
        ("PROCESS_SECRET", "1"),
        ("KERNEL_ENV_FROM_PROCESS", "process"),
        ("KERNEL_ENV_BOTH_KEY", "process"),
        ("IPYBOX_DOTENV", "KERNEL_ENV_MODE"),
    ];
    let mut ipybox = place.start_with(&["--python", kernel_python().to_str().unwrap()], &variables).await;
    ipybox.initialize().await;
    let code = "
import os
print(os.environ['FILE_KEY'], os.environ['FROM_PROCESS'], os.environ['BOTH_KEY'], os.environ['MODE'])
print('OTHER' in os.environ)
print([name for name in os.environ if 'SECRET' in name or name.startswith(('KERNEL_ENV', 'CARGO'))])";
    let first = ipybox.cell(code).await.ok();
    let (note, printed) = first.split_once("]\n").unwrap();
    assert!(
        note.starts_with("[`KERNEL_ENV_OTHER` of ") && note.contains("not passed to the kernel"),
        "{note}"
    );
    assert!(note.contains("`IPYBOX_DOTENV=KERNEL_ENV_OTHER`"), "{note}");
    assert_eq!(printed.trim_start(), "file process process named\nFalse\n[]");
    // It is said once.
    assert_eq!(ipybox.cell("1").await.ok(), "1");
    ipybox.stop().await;
}
