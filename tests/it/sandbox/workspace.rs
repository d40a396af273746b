//! Where a sandbox may be, and what of the workspace is read before it is there.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::session::{self, BACKENDS, document, names, start, uninitialized};
use crate::support::{Place, copy_program, environment, equipped, kernel_python, tool};

/// It does not start, and says why.
#[track_caller]
fn check_refusal(has_started: bool, log: &str, expected: &[&str]) {
    assert!(!has_started, "it has started: {log}");
    for words in expected {
        assert!(log.contains(words), "{log}");
    }
}

async fn refused(place: &Place, flags: &[&str], variables: &[(&str, &str)], expected: &[&str]) {
    for backend in BACKENDS {
        let mut ipybox = uninitialized(place, backend, flags, variables).await;
        let has_started = ipybox.ended().await.success();
        check_refusal(has_started, &ipybox.log(), expected);
    }
}

#[tokio::test]
async fn a_home_directory_is_no_workspace_of_a_sandbox() {
    let place = Place::new();
    for below in ["", "alice", "alice/home"] {
        let home = place.workspace().join(below);
        std::fs::create_dir_all(&home).unwrap();
        let home = ("HOME", home.to_str().unwrap());
        let expected = ["could write your home directory", "--workspace", "--allow-home-workspace"];
        refused(&place, &[], &[home], &expected).await;
    }
    let home = place.workspace().to_str().unwrap().to_owned();
    for backend in BACKENDS {
        let flags = ["--allow-home-workspace"];
        let mut ipybox = uninitialized(&place, backend, &flags, &[("HOME", home.as_str())]).await;
        ipybox.initialize().await;
        // A secret that is not there yet is nothing for code to prepare.
        let code = "import os\ntry: os.makedirs('.aws', exist_ok=True); open('.aws/credentials', 'w')\n\
                    except OSError: pass";
        ipybox.cell(code).await.ok();
        // What srt hides is a directory of the sandbox's own, in which code may write.
        assert!(!place.workspace().join(".aws/credentials").exists(), "{backend}");
        ipybox.stop().await;
    }
    let python = kernel_python();
    let flags = ["--python", python.to_str().unwrap()];
    let mut ipybox = place.start_with(&flags, &[("HOME", home.as_str())]).await;
    ipybox.initialize().await;
    ipybox.logged("holds the home directory").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn what_keeps_code_from_making_a_file_is_no_file_of_an_mcp_client() {
    for backend in BACKENDS {
        let place = Place::new();
        let mut ipybox = uninitialized(&place, backend, &[], &[]).await;
        ipybox.initialize().await;
        ipybox.cell("1").await.ok();
        assert!(place.workspace().join(".mcp.json").exists(), "{backend}");
        let mut import = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
        import.env_clear().envs(environment()).env("HOME", place.temporary());
        import.arg("import").arg("--workspace").arg(place.workspace());
        let import = import.arg("--state-dir").arg(place.states()).output().unwrap();
        assert!(import.status.success(), "{backend}: {import:?}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn what_is_to_be_hidden_stays_so_if_it_comes_later() {
    for backend in BACKENDS {
        let place = Place::new();
        let policy = place.temporary().parent().unwrap().join("policy.json");
        let document = json!({
            "network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": ["later/key", "secret"], "allowWrite": ["."], "denyWrite": ["kept/file"]},
        });
        std::fs::write(&policy, document.to_string()).unwrap();
        let mut ipybox =
            uninitialized(&place, backend, &["--sandbox-config", policy.to_str().unwrap()], &[]).await;
        ipybox.initialize().await;
        let code = "
import os
for path in ['later/key', 'secret', 'kept/file']:
    try:
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        open(path, 'a').write('code')
    except OSError: pass";
        ipybox.cell(code).await.ok();
        for path in ["later/key", "kept/file"] {
            assert!(!place.workspace().join(path).exists(), "{backend}: {path}");
        }
        let secret = std::fs::read(place.workspace().join("secret")).unwrap_or_default();
        assert!(secret.is_empty(), "{backend}");
        place.write("later/key", "s3cret");
        let code = "try: print(open('later/key').read())\nexcept OSError: print('hidden')";
        let read = ipybox.cell(code).await.ok();
        assert!(!read.contains("s3cret"), "{backend}: {read}");
        ipybox.stop().await;
        assert_eq!(place.read("later/key"), "s3cret");
        let left = ["secret", "kept"].map(|name| place.workspace().join(name).exists());
        assert_eq!(left, [false, false], "{backend}");
    }
}

#[tokio::test]
async fn a_name_at_the_top_that_the_policy_permits_is_not_moved_away() {
    for backend in BACKENDS {
        let place = Place::new();
        std::fs::create_dir(place.workspace().join(".there")).unwrap();
        let opened = json!({"allowWrite": [".", ".permitted", "opencode.json", ".vscode"]});
        let policy = session::policy(&place, &document(&json!({}), &opened));
        let mut ipybox = start(&place, backend, &["--sandbox-config", &policy]).await;
        let code = "import os
for name in ['.permitted', '.other', 'opencode.json', 'data.json', 'settings.toml']: open(name, 'w').write('1')
os.mkdir('.vscode')
try: open('.there/x', 'w')
except OSError as error: print(error)";
        let answer = ipybox.cell(code).await.ok();
        for words in ["Read-only file system", "`.other` to `.ipybox/set-aside/", "`settings.toml` to "] {
            assert!(answer.contains(words), "{backend}: {answer}");
        }
        ipybox.stop().await;
        let there = names(&place.workspace());
        for (name, is_there) in [
            (".permitted", true),
            ("opencode.json", true),
            (".vscode", true),
            ("data.json", true),
            (".other", false),
            ("settings.toml", false),
        ] {
            assert_eq!(there.contains(&name.to_owned()), is_there, "{backend}: {name} in {there:?}");
        }
        assert_eq!(names(&place.workspace().join(".ipybox/set-aside")).len(), 2, "{backend}");
    }
}

/// Code that reads and writes what it must not, and says what it could do.
const INTRUDE: &str = "
import os.path
for path in ['.env', '.npmrc', 'sub/.npmrc', '.vscode/tasks.json', os.path.expanduser('~/.netrc')]:
    try: print('read', open(path).read())
    except OSError: pass
    try: print('wrote', open(path, 'a').write('planted'))
    except OSError: pass";

#[tokio::test]
async fn what_a_program_replaces_is_protected_again_before_the_next_cell() {
    for backend in BACKENDS {
        let place = Place::new();
        place.write(".env", "SECRET=1");
        place.write("sub/.npmrc", "color=true");
        let home = place.temporary().parent().unwrap().join("home");
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join(".netrc"), "SECRET=3").unwrap();
        let variables = [("HOME", home.to_str().unwrap())];
        let mut ipybox = uninitialized(&place, backend, &[], &variables).await;
        ipybox.initialize().await;
        ipybox.cell("x = 1").await.ok();
        for (name, content) in [
            (".env", Some("SECRET=2")),
            ("sub/.npmrc", Some("color=false")),
            (".npmrc", None),
            (".vscode", None),
        ] {
            let path = place.workspace().join(name);
            match content {
                // As an editor saves.
                Some(content) => {
                    place.write("fresh", content);
                    std::fs::rename(place.workspace().join("fresh"), &path).unwrap();
                }
                // As `git clean` removes what is not known to git.
                None => std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).unwrap(),
            }
            let text = ipybox.cell(INTRUDE).await.ok();
            let words = format!("`{}`, which its sandbox protects, was removed or replaced", path.display());
            assert!(text.contains(&words) && text.contains("read color"), "{backend}: {text}");
            assert!(!text.contains("SECRET") && !text.contains("wrote"), "{backend}: {text}");
            assert_eq!(ipybox.cell("'x' in dir()").await.ok(), "False", "{backend}");
        }
        // The home is hidden as a whole, so that no file of it is readable after it was replaced.
        std::fs::write(home.join("fresh"), "SECRET=3").unwrap();
        std::fs::rename(home.join("fresh"), home.join(".netrc")).unwrap();
        let text = ipybox.cell(INTRUDE).await.ok();
        assert!(text.contains("read color") && !text.contains("SECRET"), "{backend}: {text}");
        // A reset needs no note.
        std::fs::remove_file(place.workspace().join(".env")).unwrap();
        std::fs::write(home.join("fresh"), "SECRET=4").unwrap();
        std::fs::rename(home.join("fresh"), home.join(".netrc")).unwrap();
        ipybox.reset().await;
        let text = ipybox.cell(INTRUDE).await.ok();
        assert!(text.contains("read color") && !text.contains("protects"), "{backend}: {text}");
        assert!(!text.contains("SECRET") && !text.contains("wrote"), "{backend}: {text}");
        ipybox.stop().await;
        assert_eq!(place.read("sub/.npmrc"), "color=false");
        assert_eq!(names(&place.workspace()), [".ipybox", "mcptools", "sub"], "{backend}");
    }
}

#[tokio::test]
async fn a_home_is_hidden_but_for_programs_and_caches_and_code_is_told() {
    for backend in BACKENDS {
        let place = Place::new();
        let home = place.temporary().parent().unwrap().join("home");
        for name in
            [".local/bin/tool", ".cache/huggingface/model", ".cargo/credentials.toml", "Downloads/a.csv"]
        {
            std::fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            std::fs::write(home.join(name), "content").unwrap();
        }
        let variables = [("HOME", home.to_str().unwrap())];
        let mut ipybox = uninitialized(&place, backend, &[], &variables).await;
        ipybox.initialize().await;
        let read = |name: &str| format!("open({:?}).read()", home.join(name));
        for name in [".local/bin/tool", ".cache/huggingface/model"] {
            assert_eq!(ipybox.cell(&read(name)).await.ok(), "'content'", "{backend}: {name}");
        }
        ipybox.cell(&read(".cargo/credentials.toml")).await.error();
        let error = ipybox.cell(&read("Downloads/a.csv")).await.error();
        assert!(error.contains("hides the home directory"), "{backend}: {error}");
        let error = ipybox.cell("open('missing')").await.error();
        assert!(!error.contains("home directory"), "{backend}: {error}");
        ipybox.stop().await;
    }
}

/// A policy by which code can write in `scratch` too.
fn policy(scratch: &Path) -> PathBuf {
    let policy = scratch.parent().unwrap().join("policy.json");
    let document = json!({
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": [".", scratch], "denyWrite": []},
    });
    std::fs::write(&policy, document.to_string()).unwrap();
    policy
}

#[tokio::test]
async fn an_audit_log_stays_hidden_when_it_is_rotated() {
    for backend in BACKENDS {
        let place = Place::new();
        let root = place.temporary().parent().unwrap().to_owned();
        let scratch = root.join("scratch");
        let log = scratch.join("log/audit.jsonl");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let policy = policy(&scratch);
        let flags = ["--sandbox-config", policy.to_str().unwrap(), "--audit-max-bytes", "2K", "--audit-log"];
        for directory in [&root, &place.workspace(), &scratch] {
            let log = directory.join("audit.jsonl");
            let flags = [&flags[..], &[log.to_str().unwrap()]].concat();
            let mut ipybox = uninitialized(&place, backend, &flags, &[]).await;
            assert!(!ipybox.ended().await.success(), "{backend}: {}", log.display());
        }
        let flags = [&flags[..], &[log.to_str().unwrap()]].concat();
        let mut ipybox = uninitialized(&place, backend, &flags, &[]).await;
        ipybox.initialize().await;
        for _ in 0..12 {
            ipybox.cell("1").await.ok();
        }
        assert!(log.with_file_name("audit.jsonl.1").exists(), "{backend}");
        let code = format!(
            "import glob\nfor path in glob.glob({:?} + '/*'):\n    try: print(open(path, 'a+').name)\n    except OSError: pass",
            log.parent().unwrap()
        );
        assert_eq!(ipybox.cell(&code).await.ok(), "[no output]", "{backend}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn links_of_code_do_not_lead_a_notebook_out_of_a_sandbox() {
    for backend in BACKENDS {
        let place = Place::new();
        let scratch = place.temporary().parent().unwrap().join("scratch");
        std::fs::create_dir_all(scratch.join("sub")).unwrap();
        let policy = policy(&scratch);
        let flags = ["--sandbox-config", policy.to_str().unwrap(), "--notebook"];
        let outside = scratch.join("sub/run.ipynb");
        let outside = [&flags[..], &[outside.to_str().unwrap()]].concat();
        let mut ipybox = uninitialized(&place, backend, &outside, &[]).await;
        let has_started = ipybox.ended().await.success();
        check_refusal(has_started, &ipybox.log(), &["scratch/sub", "by a link"]);
        place.write(".vscode/settings.json", "{}");
        let mut ipybox =
            uninitialized(&place, backend, &[&flags[..], &["sub/run.ipynb"]].concat(), &[]).await;
        ipybox.initialize().await;
        ipybox.cell("import os\nos.rename('sub', 'other')\nos.symlink('.vscode', 'sub')").await.ok();
        ipybox.cell("1").await.ok();
        ipybox.stop().await;
        assert!(!place.workspace().join(".vscode/run.ipynb").exists(), "{backend}");
    }
}

#[tokio::test]
async fn files_of_a_workspace_are_read_only_if_they_are_small_regular_files() {
    let place = Place::new();
    let file = place.workspace().join("sandbox-config.json");
    let name = file.to_str().unwrap().to_owned();
    let flags = ["--sandbox-workspace-config"];
    symlink("/dev/zero", &file).unwrap();
    refused(&place, &flags, &[], &["sandbox-config.json", "out of the workspace"]).await;
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused(&place, &flags, &[], &["sandbox-config.json", "not a regular file"]).await;
    refused(&place, &["--sandbox-config", "sandbox-config.json"], &[], &["not a regular file"]).await;
    refused(&place, &["--approval-policy", &name], &[], &["approval policy", "not a regular file"]).await;
    refused(&place, &["--approval-policy", "/dev/zero"], &[], &["approval policy", "not a regular file"])
        .await;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, " ".repeat(2 * 1024 * 1024)).unwrap();
    refused(&place, &flags, &[], &["sandbox-config.json", "larger than 1048576 bytes"]).await;
    std::fs::remove_file(&file).unwrap();
    symlink("/dev/zero", place.workspace().join(".env")).unwrap();
    let mut ipybox = place.ipybox().await;
    let first = ipybox.cell("1 + 1").await.ok();
    assert!(
        first.contains(".env` was ignored: it is a symbolic link out of") && first.ends_with("\n2"),
        "{first}"
    );
    ipybox.logged(".env` was ignored: it is a symbolic link out of").await;
    ipybox.stop().await;
}

#[test]
fn no_sandbox_starts_whose_code_could_replace_ipybox_itself() {
    let place = Place::new();
    place.write("node_modules/@ipybox-rs/linux-x64/bin/README", "");
    let program = place.workspace().join("node_modules/@ipybox-rs/linux-x64/bin/ipybox");
    copy_program(env!("CARGO_BIN_EXE_ipybox"), &program);
    let run = |flags: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(flags).arg("--state-dir").arg(place.states()).env_clear().envs(environment());
        command.env("PATH", equipped()).env("TMPDIR", place.temporary()).current_dir(place.workspace());
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for backend in BACKENDS {
        let said = run(&["--sandbox", "--sandbox-backend", backend]);
        assert!(said.contains("ipybox itself would be replaced") && said.contains("cd / &&"), "{said}");
    }
    let said = run(&["doctor", "--json"]);
    assert!(said.contains("own-program") && said.contains("node_modules/@ipybox-rs"), "{said}");
}

#[tokio::test]
async fn servers_get_the_workspace_by_argument() {
    for backend in BACKENDS {
        let place = Place::new();
        place.write("file", "text");
        let git = |arguments: &[&str]| {
            let mut command = std::process::Command::new("git");
            assert!(
                command.arg("-C").arg(place.workspace()).args(arguments).output().unwrap().status.success()
            );
        };
        git(&["init"]);
        let mut ipybox = uninitialized(&place, backend, &[], &[]).await;
        ipybox.initialize().await;
        let program = tool("servers/bin/mcp-server-git");
        let server = json!({"command": program, "args": ["--repository", "${workspace}"], "timeout": 280});
        ipybox.register("git", server).await.ok();
        let code =
            "from mcptools.git import git_status\nimport os\nprint(git_status.run(repo_path=os.getcwd()))";
        let text = ipybox.cell(code).await.ok();
        assert!(text.contains("file"), "{backend}: {text}");
        ipybox.stop().await;
    }
}
