//! The host's side: what code in the sandbox aims at, and whether it was hit.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::canaries::Canaries;
use crate::support::{
    Ipybox, Place, environment, equipped, eventually, is_running, kernel_python, probe, repository, tool,
};

/// What another session keeps.
const OTHER_STATE: &str = "states/workspaces/other/servers.json";
/// A user id that belongs to nobody. It need not be in any list of users.
pub(super) const NOBODY_ELSE: u32 = 65_432;
/// What must not be found out inside. Programs get them backwards, so as not to find themselves.
const SECRETS: [&str; 7] = [
    "word-of-dotenv",
    "word-of-home",
    "word-of-state",
    "word-of-environment",
    "word-of-server",
    "word-of-log",
    "word-of-client",
];
/// The files in which clients of MCP servers and other programs have secrets, some of them where variables have moved them.
const OF_CLIENTS: [&str; 11] = [
    "home/.claude.json",
    "home/.claude.json.backup",
    "home/.codex/config.toml",
    "home/.config/Code/User/mcp.json",
    "home/.mcp-auth/server/tokens.json",
    "home/.databrickscfg",
    "home/.cache/huggingface/token",
    "home/notes.txt",
    "moved/codex/config.toml",
    "moved/config/gh/hosts.yml",
    "workspace/.cursor/mcp.json",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    Srt,
    Bubblewrap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    Root,
    Ordinary,
}

/// A workspace with a home, a state directory and canaries around it.
pub(super) struct Host {
    place: Place,
    backend: Backend,
    user: User,
    canaries: Canaries,
    /// Where the kernel's packages are.
    packages: PathBuf,
    python: PathBuf,
    before: Vec<(PathBuf, String)>,
}

impl Host {
    /// `None` if this user cannot become that user; in CI that is a failure.
    #[expect(clippy::print_stderr, reason = "what a test leaves out must be seen")]
    pub(super) fn new(backend: Backend, user: User) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        if user == User::Root && !is_root {
            assert!(std::env::var_os("CI").is_none(), "in CI the attacks run as root, too");
            eprintln!("left out: only root can attack as root");
            return None;
        }
        for program in ["bwrap", "socat", "rg"] {
            assert!(on_path(program), "`{program}` is missing: the attacks need it");
        }
        let place = Place::new();
        let root = place.workspace().parent().unwrap().to_owned();
        for directory in [
            "home/.ssh",
            "states/workspaces/other",
            "log",
            "outside",
            "t",
            "workspace/attacks",
            "workspace/repository/.git",
            "workspace/bare/objects",
        ] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for (path, text) in [
            ("home/.ssh/id_attack", "word-of-home"),
            ("states/workspaces/other/servers.json", "word-of-state"),
            ("outside/file", "untouched"),
            ("outside/expendable", "untouched"),
            ("workspace/bare/HEAD", "ref: refs/heads/main"),
            ("log/audit.jsonl", ""),
            ("log/audit.jsonl.1", "word-of-log"),
            ("policy.toml", POLICY),
        ] {
            std::fs::write(root.join(path), text).unwrap();
        }
        for name in OF_CLIENTS {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), "word-of-client").unwrap();
        }
        if user == User::Root {
            // The other user starts without one, which must not come into being.
            place.write(".env", "ATTACKED=word-of-dotenv\n");
            // The same of the packages.
            std::fs::create_dir_all(root.join("workspace/node_modules/.bin")).unwrap();
        }
        for entry in std::fs::read_dir(repository().join("tests/it/attacks")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "py") {
                std::fs::copy(&path, root.join("workspace/attacks").join(path.file_name().unwrap())).unwrap();
            }
        }
        let packages = site_packages(&kernel_python(), "IPython");
        let python = python_for(user, &root.join("python"));
        let canaries = Canaries::new(&root, if is_root { Some(user) } else { None });
        if is_root {
            give(&root, owner(user));
        }
        let mut host = Self { place, backend, user, canaries, packages, python, before: Vec::new() };
        host.before = host.snapshot();
        Some(host)
    }

    /// Makes the user the owner of all that a test has put there.
    pub(super) fn give_to_user(&self) {
        if rustix::process::geteuid().is_root() {
            give(&self.root(), owner(self.user));
        }
    }

    pub(super) fn user(&self) -> User {
        self.user
    }

    pub(super) fn backend(&self) -> Backend {
        self.backend
    }

    fn root(&self) -> PathBuf {
        self.place.workspace().parent().unwrap().to_owned()
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.root().join("outside")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.place.workspace()
    }

    /// ipybox in the sandbox, as the user.
    pub(super) fn start(&self) -> Ipybox {
        self.start_on(&equipped())
    }

    /// The same with this `PATH`.
    pub(super) fn start_on(&self, path: &str) -> Ipybox {
        let (policy, audit) = (self.root().join("policy.toml"), self.root().join("log/audit.jsonl"));
        let backend = match self.backend {
            Backend::Srt => "srt",
            Backend::Bubblewrap => "bwrap",
        };
        let flags = [
            "--sandbox",
            // States are forks of the kernel in its sandbox: code may end them, as it may end its kernel.
            "--undo-memory",
            "0",
            "--sandbox-backend",
            backend,
            "--approval-policy",
            policy.to_str().unwrap(),
            "--audit-log",
            audit.to_str().unwrap(),
            "--kernel-memory-limit",
            "1G",
            "--kernel-max-processes",
            "400",
            "--log-level",
            "INFO",
        ];
        self.start_with(path, &flags)
    }

    /// ipybox without a sandbox, as the user, with this `PATH`.
    pub(super) fn start_without_sandbox(&self, path: &str) -> Ipybox {
        self.start_with(path, &[])
    }

    /// A command of ipybox in the workspace, as the user, with this `PATH`.
    pub(super) fn run(&self, path: &str, words: &[String]) -> Output {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
        command.args(words).env_clear().envs(environment()).current_dir(self.workspace());
        command.env("PATH", path).env("HOME", self.root().join("home"));
        command.env("IPYBOX_STATE_DIR", self.root().join("states")).env("TMPDIR", self.place.temporary());
        if let Some(user) = self.other_user() {
            command.uid(user).gid(user);
        }
        command.output().unwrap()
    }

    /// Makes a directory beside the workspace, or in it, that the user can write to.
    pub(super) fn make(&self, name: &str) {
        let path = self.root().join(name);
        std::fs::create_dir_all(&path).unwrap();
        if let Some(user) = self.other_user() {
            path.ancestors().take_while(|path| *path != self.root()).for_each(|path| {
                chown(path, Some(user), Some(user)).unwrap();
            });
        }
    }

    fn other_user(&self) -> Option<u32> {
        (self.user == User::Ordinary && rustix::process::geteuid().is_root()).then_some(NOBODY_ELSE)
    }

    fn start_with(&self, path: &str, flags: &[&str]) -> Ipybox {
        let flags = [&["--python", self.python.to_str().unwrap()], flags].concat();
        let [home, codex, config] =
            ["home", "moved/codex", "moved/config"].map(|name| self.root().join(name).display().to_string());
        let variables = [
            ("PATH", path),
            ("HOME", home.as_str()),
            ("CODEX_HOME", codex.as_str()),
            ("XDG_CONFIG_HOME", config.as_str()),
            ("ATTACKED", "word-of-environment"),
            ("AWS_SECRET_ACCESS_KEY", "word-of-environment"),
        ];
        self.place.start_as(self.other_user(), &flags, &variables)
    }

    /// The test server with something in its environment that only the host knows.
    pub(super) fn probe_with_secret(&self) -> Value {
        let mut server = self.probe();
        server["env"]["PROBE_TOKEN"] = json!("word-of-server");
        server
    }

    /// The test server, run by a Python that the user can run.
    pub(super) fn probe(&self) -> Value {
        let mut server = probe();
        if self.python != kernel_python() {
            server["command"] = json!(self.python);
            server["env"] = json!({"PYTHONPATH": site_packages(&tool("mcp1/bin/python"), "mcp")});
        }
        server
    }

    /// Where the attacks aim.
    pub(super) fn targets(&self) -> Value {
        let root = self.root();
        let private: Vec<PathBuf> = self.private_directories();
        let purelib = self.packages.clone();
        let mut places = vec![
            root.clone(),
            root.join("home"),
            root.join("states"),
            root.join(OTHER_STATE),
            root.join("log/audit.jsonl"),
            root.join("policy.toml"),
            root.join("t"),
            root.join("outside/file"),
            repository().join("tests/it/main.rs"),
            PathBuf::from(env!("CARGO_BIN_EXE_ipybox")),
            tool("bin/srt").canonicalize().unwrap(),
            purelib.join("IPython/__init__.py"),
            purelib,
        ];
        places.extend(
            ["/", "/etc", "/etc/passwd", "/usr/bin", "/usr/bin/env", "/tmp", "/var/tmp"].map(PathBuf::from),
        );
        for directory in &private {
            places.extend([directory.clone(), directory.join("sandbox.json")]);
            places.extend(["p", "p/runtime"].map(|name| directory.join(name)));
        }
        places.retain(|place| place.exists());
        if self.backend == Backend::Srt {
            // srt has an empty file system of the sandbox's own there; what the host has is compared afterwards.
            places.retain(|place| *place != root.join("home"));
        }
        let searched = [vec![root.clone()], private].concat();
        json!({
            "outside": self.outside(),
            "unix_stream": root.join("outside/stream"),
            "unix_datagram": root.join("outside/datagram"),
            "abstract": format!("@{}", self.canaries.abstract_name),
            "sysv_memory": self.canaries.memory.id,
            "sysv_queue": self.canaries.queue.id,
            "places": places,
            "secrets": [
                root.join("workspace/.env"), root.join("home/.ssh/id_attack"), root.join(OTHER_STATE),
                root.join("log/audit.jsonl.1"), root.join("home/.claude.json"), root.join("moved/codex/config.toml"),
                root.join("home/.cache/huggingface/token"), root.join("workspace/.cursor/mcp.json"),
            ],
            "words_backwards": SECRETS.map(|word| word.chars().rev().collect::<String>()),
            "searched": searched,
            "host_processes": [self.canaries.process.id(), std::process::id()],
            "redirected": root.join("outside/redirected"),
            "tcp": self.canaries.tcp.local_addr().unwrap().port(),
            "udp": self.canaries.udp.local_addr().unwrap().port(),
            "addresses": addresses(),
            "babble": false,
        })
    }

    fn private_directories(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.place.temporary()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    /// What on the host is not as it was.
    pub(super) fn changes(&self) -> Vec<String> {
        let after = self.snapshot();
        let gone =
            self.before.iter().filter(|entry| !after.contains(entry)).map(|entry| format!("lost {entry:?}"));
        let new =
            after.iter().filter(|entry| !self.before.contains(entry)).map(|entry| format!("new {entry:?}"));
        gone.chain(new).chain(self.canaries.hits()).collect()
    }

    /// Names, kinds, modes, owners and contents of what nobody but the host may touch.
    fn snapshot(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        for name in ["outside", "home", "policy.toml", OTHER_STATE] {
            look(&self.root().join(name), &mut found);
        }
        for name in [".env", ".mcp.json", ".bashrc", ".gitmodules", ".ripgreprc", ".gitconfig"] {
            let path = self.workspace().join(name);
            // Empty files are what the sandbox is mounted on, until it ends.
            if path.symlink_metadata().is_ok_and(|file| file.len() > 0) {
                look(&path, &mut found);
            }
        }
        // Links there would be followed by others.
        for name in ["mcptools", ".ipybox"] {
            if self.workspace().join(name).is_symlink() {
                found.push((self.workspace().join(name), "a link".to_owned()));
            }
        }
        found
    }

    /// The gateway among what the server has started, as the host numbers processes.
    pub(super) fn gateway(&self, server: i32) -> Option<i32> {
        let below = descendants(server);
        below.into_iter().find(|id| {
            let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.first().is_some_and(|word| word.ends_with(b"ipybox"))
                && words.get(1) == Some(&&b"sandbox-gateway"[..])
        })
    }

    /// The changes of the host when the server has ended. Waits until nothing of the server is left.
    pub(super) async fn end(self) -> Vec<String> {
        let changes = self.changes();
        eventually("no private directory is left", || self.private_directories().is_empty()).await;
        eventually("no process of the session is left", || self.processes().is_empty()).await;
        changes
    }

    /// The processes that know this place.
    fn processes(&self) -> Vec<i32> {
        let name = self.root().file_name().unwrap().to_owned();
        let is_ours = |id: &i32| {
            let words = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            words.windows(name.len()).any(|part| part == name.as_encoded_bytes()) && is_running(*id)
        };
        processes().filter(is_ours).collect()
    }
}

/// Tools of the test server run but for one.
const POLICY: &str = r#"default = "allow"

[[rule]]
server = "probe"
tool = "pid"
effect = "deny"
"#;

/// All processes that `root` has started, and those that they have.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = processes()
        .filter_map(|id| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((id, parent))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    found.remove(0);
    found
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn look(path: &Path, found: &mut Vec<(PathBuf, String)>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    let mut what = format!("{:o} {}:{}", metadata.mode(), metadata.uid(), metadata.gid());
    if metadata.is_file() {
        what += &format!(" {} {:?}", metadata.mtime_nsec(), std::fs::read(path));
    }
    found.push((path.to_owned(), what));
    if metadata.is_dir() {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| look(entry, found));
    }
}

fn owner(user: User) -> u32 {
    match user {
        User::Root => 0,
        User::Ordinary => NOBODY_ELSE,
    }
}

/// Gives a tree of ours to a user.
fn give(path: &Path, user: u32) {
    if path.is_symlink() {
        return;
    }
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

fn on_path(program: &str) -> bool {
    std::env::split_paths(&environment()["PATH"]).any(|directory| directory.join(program).exists())
}

/// The host's own addresses, but for loopback.
fn addresses() -> Vec<String> {
    let said = Command::new("hostname").arg("-I").output().unwrap();
    String::from_utf8(said.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// Where a Python has a package from.
fn site_packages(python: &Path, package: &str) -> PathBuf {
    let code = format!("import {package}, os; print(os.path.dirname(os.path.dirname({package}.__file__)))");
    let said = Command::new(python).args(["-c", &code]).output().unwrap();
    PathBuf::from(String::from_utf8(said.stdout).unwrap().trim())
}

fn python_for(user: User, directory: &Path) -> PathBuf {
    if user == User::Root { kernel_python() } else { python_for_others(directory) }
}

/// The prepared Python. Where that is for root alone, other users get its packages with the system's own.
pub(crate) fn python_for_others(directory: &Path) -> PathBuf {
    if !rustix::process::geteuid().is_root() || runs_for_others(&kernel_python()) {
        return kernel_python();
    }
    layer(directory)
}

fn runs_for_others(python: &Path) -> bool {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(python);
    command.args(["-c", "import ssl"]).uid(NOBODY_ELSE).gid(NOBODY_ELSE);
    command.output().is_ok_and(|output| output.status.success())
}

fn layer(directory: &Path) -> PathBuf {
    let code = "import sys; print('python%d.%d' % sys.version_info[:2])";
    let said = Command::new(kernel_python()).args(["-c", code]).output().unwrap();
    let name = String::from_utf8(said.stdout).unwrap().trim().to_owned();
    let python = Path::new("/usr/bin").join(&name);
    assert!(
        runs_for_others(&python),
        "neither `{}` nor `{}` runs for an ordinary user\nhint: install the test tools with a Python that all may run",
        kernel_python().display(),
        python.display()
    );
    let layer =
        Command::new(repository().join("tests/tools/layer")).arg(&python).arg(directory).status().unwrap();
    assert!(layer.success());
    let below = directory.join(format!("lib/{name}/site-packages/below.pth"));
    std::fs::write(below, format!("{}\n", site_packages(&kernel_python(), "IPython").display())).unwrap();
    directory.join("bin/python")
}
