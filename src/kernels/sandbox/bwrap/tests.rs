use std::os::unix::process::CommandExt;
use std::process::Command;

use proptest::prelude::*;

use super::super::policy::{PolicyPaths, SandboxPolicy};
use super::*;
use crate::ground::process::skip;

/// A workspace with what rules are about, a state directory beside it, and a policy.
struct Scene {
    root: tempfile::TempDir,
    policy: &'static str,
}

const POLICY: &str = r#"{
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {
        "denyRead": [".env", ".env.*", "secret", "deep/er/key", "~/.ssh"],
        "allowRead": ["secret/open"],
        "allowWrite": ["."],
        "denyWrite": [".env", "mcptools", "deep/er/kept", "later/on"]
    }
}"#;

const EVERYTHING: &str = r#"{
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": ["/"], "denyWrite": []}
}"#;

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let base = root.path();
        for directory in
            ["ws/mcptools", "ws/secret/open", "ws/deep/er", "ws/.ipybox", "home/.ssh", "state/env", "p/w"]
        {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in [
            "ws/.env.local",
            "ws/secret/key",
            "ws/secret/open/file",
            "ws/deep/er/key",
            "ws/deep/er/kept",
            "ws/mcptools/tool",
            "ws/plain",
            "home/.ssh/id",
            "home/other",
            "state/log",
            "state/env/python",
            "p/settings",
        ] {
            std::fs::write(base.join(file), "content\n").unwrap();
        }
        Self { root, policy: POLICY }
    }

    fn prepare(&self) -> PreparedSandbox {
        let base = self.root.path().canonicalize().unwrap();
        let paths =
            PolicyPaths { python_prefixes: vec![base.join("state/env")], ..PolicyPaths::below(&base) };
        let rules = SandboxPolicy::parse(self.policy, "test").unwrap().rules(&paths).unwrap();
        prepare(&rules, &paths.workspace, None, ProcView::Own).unwrap()
    }

    /// Whether `script` succeeds in the sandbox, and what it says.
    fn run(&self, script: &str) -> (bool, String) {
        let prepared = self.prepare();
        let mut command = Command::new("bwrap");
        command.args(&prepared.arguments).args(["sh", "-c", script]).process_group(0);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    #[track_caller]
    fn check(&self, script: &str, is_allowed: bool) {
        let (succeeded, output) = self.run(script);
        assert!(!output.contains("bwrap:"), "{output}");
        assert_eq!(succeeded, is_allowed, "{script} → {output}");
    }

    #[track_caller]
    fn allowed(&self, script: &str) {
        self.check(script, true);
    }

    #[track_caller]
    fn refused(&self, script: &str) {
        self.check(script, false);
    }
}

/// Without bubblewrap nothing can be tried.
fn has_bubblewrap() -> bool {
    let is_there = Command::new("bwrap").arg("--version").output().is_ok();
    if !is_there {
        skip("bwrap", "install bubblewrap with your package manager");
    }
    is_there
}

#[test]
fn the_workspace_is_writable_but_for_what_is_protected() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    for script in [
        "echo x > new && mv new newer && rm newer",
        "echo x > plain",
        "mkdir -p made/here && echo x > made/here/file",
        "echo x > deep/er/new",
        "mv deep/er/new deep/er/newer",
        "cat mcptools/tool",
        "cat deep/er/kept",
        "echo x > ../p/w/file",
        "cat ../p/settings ../home/other",
        "test $(pwd) = $(cd ../ws; pwd -P)",
        "echo x > /dev/null && echo x > /dev/shm/x && test -c /dev/urandom",
    ] {
        scene.allowed(script);
    }
    for script in [
        "echo x > .env",
        "rm .env",
        "mv .env other",
        "mv plain .env",
        "ln -sf plain .env",
        "mkdir .env",
        "echo x > mcptools/tool",
        "echo x > mcptools/new",
        "mv mcptools other",
        "rm -r mcptools",
        "echo x > deep/er/kept",
        "mv deep/er/kept deep/er/other",
        "mv deep/er deep/other",
        "mv deep other",
        "mv plain deep/er/kept",
        "mkdir later",
        "echo x > later/on",
        "mv .ipybox other",
        "echo x > .ipybox/file",
        "mkdir .vscode",
        "echo x > .vscode/tasks.json",
        "echo x > .mcp.json",
        "echo x > ../new",
        "echo x > ../home/other",
        "echo x > ../p/settings",
        "echo x > /tmp/ipybox-escape",
        "echo x > /etc/ipybox-escape",
        "ln plain ../p/link",
        "echo x > /proc/self/root/etc/ipybox-escape",
        "mount -t tmpfs tmpfs .",
        "mount -o remount,bind,rw mcptools",
        "umount mcptools",
    ] {
        scene.refused(script);
    }
}

#[test]
fn what_is_hidden_is_read_by_no_route() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    for script in [
        "cat secret/open/file",
        "cat ../state/env/python",
        "test -z \"$(ls secret | grep -v open)\"",
        "test -z \"$(ls -A ../home/.ssh)\"",
    ] {
        scene.allowed(script);
    }
    for script in [
        "cat .env.local",
        "cat secret/key",
        "cat deep/er/key",
        "cat ../home/.ssh/id",
        "cat ../state/log",
        "cat /proc/self/root$PWD/.env.local",
        "cat /proc/1/root$PWD/secret/key",
        "cat /proc/self/cwd/.env.local",
        "ln .env.local copy && cat copy",
        "cp .env.local copy && cat copy",
        "mv .env.local copy",
        "ln -s .env.local link && cat link",
        "mv secret other",
        "mv deep/er deep/other",
        "umount secret",
        "echo x > secret/new",
    ] {
        scene.refused(script);
    }
}

#[test]
fn the_host_is_out_of_reach() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    let host = std::process::id();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for script in [
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern".to_owned(),
        "cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness".to_owned(),
        "echo h > /proc/sysrq-trigger".to_owned(),
        "echo x > /sys/kernel/uevent_helper".to_owned(),
        format!("kill -0 {host} 2>/dev/null && grep -q . /proc/{host}/environ && test {host} -gt 100000000"),
        format!("bash -c 'echo > /dev/tcp/127.0.0.1/{port}'"),
        "bash -c 'echo > /dev/tcp/1.1.1.1/53'".to_owned(),
        "hostname other".to_owned(),
        "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status".to_owned(),
    ] {
        scene.refused(&script);
    }
    scene.allowed(
        "test $(id -u) = $(stat -c %u plain) && cat /proc/sys/kernel/ostype && echo x > mine && test -O mine",
    );
    scene.allowed("test $(ls -d /proc/[0-9]* | wc -l) -lt 10");
}

#[test]
fn protections_hold_when_everything_is_writable() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene { policy: EVERYTHING, ..Scene::new() };
    for script in ["echo x > ../home/other", "echo x > ../new", "echo x > /dev/null"] {
        scene.allowed(script);
    }
    for script in [
        "echo x > .env",
        "echo x > mcptools/tool",
        "mv ../ws ../other",
        "cat ../home/.ssh/id",
        "cat ../state/log",
        "echo x > ../p/settings",
        "mv ../p ../other",
        "echo x > /sys/kernel/uevent_helper",
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
    ] {
        scene.refused(script);
    }
}

#[test]
fn stubs_are_there_for_as_long_as_the_last_sandbox() {
    let scene = Scene::new();
    let stub = scene.root.path().join("ws/.env");
    let directory = scene.root.path().join("ws/later");
    let first = scene.prepare();
    assert!(stub.is_file() && directory.is_dir());
    let second = scene.prepare();
    drop(first);
    assert!(stub.exists() && directory.exists());
    drop(second);
    assert!(!stub.exists() && !directory.exists());
    let names = |directory: &Path| directory.read_dir().unwrap().count();
    assert_eq!(names(&scene.root.path().join("ws")), 6, "nothing else is left");
}

#[test]
fn what_is_left_by_a_sandbox_that_was_killed_is_removed_by_the_next() {
    let scene = Scene::new();
    std::mem::forget(scene.prepare());
    drop(scene.prepare());
    // The first one's locks are still held, as if it ran.
    assert!(scene.root.path().join("ws/.env").exists());
}

#[test]
fn what_the_user_writes_into_a_stub_stays() {
    let scene = Scene::new();
    let prepared = scene.prepare();
    std::fs::write(scene.root.path().join("ws/.env"), "A=1").unwrap();
    std::fs::write(scene.root.path().join("ws/later/on"), "").unwrap();
    drop(prepared);
    assert!(scene.root.path().join("ws/.env").exists());
    assert!(scene.root.path().join("ws/later/on").exists());
}

#[test]
fn what_is_of_the_sandbox_itself_is_not_for_rules() {
    for path in ["/proc/self", "/dev/shm"] {
        let policy = POLICY.replace("[\".\"]", &format!("[\".\", \"{path}\"]"));
        let paths =
            PolicyPaths { workspace: "/tmp".into(), home: "/nowhere".into(), ..PolicyPaths::default() };
        let rules = SandboxPolicy::parse(&policy, "test").unwrap().rules(&paths);
        let rules = rules.unwrap();
        let error = prepare(&rules, &paths.workspace, None, ProcView::Own).unwrap_err();
        assert!(matches!(error, Error::Own { .. }), "{error}");
    }
}

#[test]
fn programs_find_the_proxy_by_one_url() {
    let variables = proxy_environment(3128);
    for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        assert!(variables.contains(&(name.to_owned(), "http://127.0.0.1:3128".to_owned())), "{name}");
    }
    assert_eq!(variables.len(), 8);
}

/// Paths as policies spell them.
#[rustfmt::skip]
const SPELLED: [&str; 23] = [
    ".", "./", "part", "part/../.env.local", ".env", ".env.local", ".env.d", ".env.d/key", "link", "mcptools", "later",
    "..", "~", "~/.ssh", "~/data", "~/.cache/huggingface", "~/.cache/huggingface/token", "~/.local/bin", "/", "/etc", "*", ".git", "sub",
];

/// Texts for a policy of a workspace; some of them open something.
fn document() -> impl Strategy<Value = serde_json::Value> {
    let paths = || proptest::collection::vec(proptest::sample::select(&SPELLED[..]), 0..3);
    let hosts = proptest::collection::vec(proptest::sample::select(&["pypi.org", "*.example.com"][..]), 0..2);
    let flag = || proptest::option::of(proptest::bool::ANY);
    let lists = (paths(), proptest::option::of(paths()), paths(), paths());
    let others = (hosts, flag(), flag(), proptest::option::of(1..6_u64));
    (lists, others).prop_map(
        |((deny_read, allow_read, allow_write, deny_write), (hosts, git, sockets, depth))| {
            let mut document = serde_json::json!({
                "network": {"allowedDomains": hosts, "deniedDomains": []},
                "filesystem": {"denyRead": deny_read, "allowWrite": allow_write, "denyWrite": deny_write},
            });
            let mut set = |section: &str, key: &str, value: Option<serde_json::Value>| {
                if let Some(value) = value {
                    document[section][key] = value;
                }
            };
            set("filesystem", "allowRead", allow_read.map(Into::into));
            set("filesystem", "allowGitConfig", git.map(Into::into));
            set("network", "allowAllUnixSockets", sockets.map(Into::into));
            if let Some(depth) = depth {
                document["mandatoryDenySearchDepth"] = depth.into();
            }
            document
        },
    )
}

/// The rights of code to places inside and outside of the workspace, as numbers.
fn rights(rules: &SandboxRules, base: &Path) -> Vec<(PathBuf, u8)> {
    let places = [
        "ws",
        "ws/x",
        "ws/part/x",
        "ws/.env",
        "ws/.env.local",
        "ws/.env.d",
        "ws/.env.d/key",
        "ws/mcptools/x",
        "ws/.git",
        "ws/later",
        "ws/.git/config",
        "ws/sub/.git/config",
        "ws/.mcp.json",
        "ws/sandbox-config.json",
        "home",
        "home/.ssh/id",
        "home/data/x",
        "home/.cache/huggingface/token",
        "home/.cache/huggingface/model",
        "home/.local/bin/x",
        "state/env/python",
        "state/x",
        "x",
    ];
    let (mounts, _) = mounts_of(rules).unwrap();
    let places = places.iter().map(|place| base.join(place)).chain([PathBuf::from("/etc/passwd")]);
    places
        .map(|place| {
            let right = match mounts.state(&place) {
                PathAccess::Hidden => 0,
                PathAccess::ReadOnly => 1,
                PathAccess::Writable => 2,
            };
            (place, right)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_policy_of_a_workspace_that_opens_nothing_gives_code_no_right_beyond_the_default(document in document()) {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        for directory in ["ws/part", "ws/.env.d", "ws/.git", "ws/sub/.git", "ws/mcptools", "ws/.ipybox", "home/.ssh", "home/data",
            "home/.cache/huggingface", "home/.local/bin", "state/env", "p/w"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["ws/.env.local", "ws/.env.d/key", "ws/.git/HEAD", "home/.cache/huggingface/token"] {
            std::fs::write(base.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("../home/data", base.join("ws/link")).unwrap();
        let paths = PolicyPaths {
            python_prefixes: vec![base.join("state/env")],
            hidden: vec![base.join("ws/.mcp.json")],
            ..PolicyPaths::below(&base)
        };
        let default = SandboxPolicy::embedded().unwrap().rules(&paths).unwrap();
        std::fs::write(base.join("ws/sandbox-config.json"), document.to_string()).unwrap();
        let Ok(policy) = SandboxPolicy::of_workspace(&paths.workspace) else { return Ok(()) };
        // What cannot be held is refused anyway.
        let Ok(rules) = policy.rules(&paths) else { return Ok(()) };
        if policy.openings(&paths).is_empty() {
            prop_assert!(rules.allowed_domains.is_empty() && !rules.allow_all_unix_sockets);
            for ((place, more), (_, less)) in rights(&rules, &base).into_iter().zip(rights(&default, &base)) {
                prop_assert!(more <= less, "{}: {more} instead of {less}", place.display());
            }
        }
    }
}
