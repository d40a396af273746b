//! A small vocabulary: start ipybox, speak MCP to it, look at what it leaves behind.

#![allow(dead_code, unused_imports, reason = "each test binary uses what it needs")]

mod browser;
#[cfg(target_os = "linux")]
pub(crate) mod changes;
mod client;
#[cfg(target_os = "linux")]
pub(crate) mod cluster;
mod environment;
#[cfg(target_os = "linux")]
pub(crate) mod hub;
pub(crate) mod jupyter;
#[cfg(target_os = "linux")]
pub(crate) mod namespace;
#[cfg(target_os = "linux")]
pub(crate) mod pod;
mod ports;
mod programs;
pub(crate) mod relay;
pub(crate) mod standalone;
pub(crate) mod terminal;
mod tools;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use self::jupyter::{Jupyter, Server};
use self::relay::Relay;

pub(crate) use self::browser::Browser;
pub(crate) use self::client::{Answer, Ipybox, Reply};
pub(crate) use self::environment::{environment, equipped};
pub(crate) use self::ports::{free_port, refusing};
pub(crate) use self::programs::{copy_program, write_program};
pub(crate) use self::tools::{kernel_python, repository, tool};

/// How long anything may take before a test gives up on it. Long, because machines are slow at times; longer than a cell
/// may take, which then says more than the test could.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Flags for kernels that have the time for their exit that they take on a slow machine.
pub(crate) const PATIENT_EXIT: [&str; 2] = ["--kernel-exit-timeout", "1h"];

/// Where kernels run.
#[derive(Clone, Copy)]
pub(crate) enum Setting {
    /// On this machine.
    Plain,
    /// In a sandbox of this backend.
    Sandbox(&'static str),
    /// On a Jupyter server, by this kernel spec.
    Remote(Server, &'static str),
    /// On a user's server at a JupyterHub.
    #[cfg(target_os = "linux")]
    Hub,
    /// In a pod.
    #[cfg(target_os = "linux")]
    Pod,
    /// The same as `Remote` by way of a network that takes 50 ms in each direction.
    Distant(Server),
}

thread_local! {
    static SETTING: Cell<Setting> = const { Cell::new(Setting::Plain) };
}

/// Runs a test as it is, but for the sessions in the places that it makes: their kernels run there.
pub(crate) fn with_kernels(setting: Setting, test: fn()) {
    // Each test has a thread of its own, which runs all of it.
    SETTING.set(setting);
    test();
}

/// A workspace and a state directory of a test's own.
pub(crate) struct Place {
    root: tempfile::TempDir,
    name: &'static str,
    /// Where its sessions' kernels run.
    setting: Setting,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::named("workspace")
    }

    /// With a workspace of this name.
    pub(crate) fn named(name: &'static str) -> Self {
        let root = tempfile::Builder::new().prefix("it-").tempdir().unwrap();
        std::fs::create_dir(root.path().join(name)).unwrap();
        Self { root, name, setting: SETTING.get() }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.path().join(self.name).canonicalize().unwrap()
    }

    pub(crate) fn states(&self) -> PathBuf {
        self.root.path().join("states")
    }

    /// The files of all checkpoints.
    pub(crate) fn checkpoint_files(&self) -> Vec<PathBuf> {
        let below = |directory: PathBuf| {
            let entries = std::fs::read_dir(directory).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let workspaces = below(self.states().join("workspaces"));
        let checkpoints = workspaces.into_iter().flat_map(|workspace| below(workspace.join("checkpoints")));
        checkpoints.flat_map(below).collect()
    }

    /// Whether a checkpoint names this variable.
    pub(crate) fn has_saved(&self, variable: &str) -> bool {
        let entry = format!("\"name\": \"{variable}\"");
        let manifests = self.checkpoint_files().into_iter().filter(|file| file.ends_with("manifest.json"));
        manifests
            .into_iter()
            .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(&entry)))
    }

    /// Where ipybox and its kernels keep temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        let path = self.root.path().join("t");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        let path = self.workspace().join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// All text below the state directory.
    pub(crate) fn everything_in_states(&self) -> String {
        let mut text = String::new();
        collect(&self.states(), &mut text);
        text
    }

    /// ipybox as most tests want it: with the prepared Python, initialized.
    pub(crate) async fn ipybox(&self) -> Ipybox {
        self.ipybox_with(&[]).await
    }

    /// The same with these flags.
    pub(crate) async fn ipybox_with(&self, flags: &[&str]) -> Ipybox {
        let python = kernel_python();
        let mut ipybox = self.start(&[&["--python", python.to_str().unwrap()], flags].concat()).await;
        ipybox.initialize().await;
        ipybox
    }

    /// ipybox with these flags beside those for the places.
    pub(crate) async fn start(&self, flags: &[&str]) -> Ipybox {
        self.start_with(flags, &[]).await
    }

    /// ipybox with flags and additional environment variables.
    pub(crate) async fn start_with(&self, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
        self.start_by(&[], flags, variables).await
    }

    /// ipybox of another user, to whom the place has been given; only root can.
    pub(crate) fn start_as(&self, user: Option<u32>, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
        Ipybox::spawn(self, &[], user, flags, variables)
    }

    /// ipybox as the program that the arguments of `launcher`, a command, run in its place.
    pub(crate) async fn start_by(
        &self,
        launcher: &[&str],
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Ipybox {
        match self.setting {
            Setting::Plain => Ipybox::spawn(self, launcher, None, flags, variables),
            Setting::Sandbox(backend) => {
                let path = equipped();
                let flags = [flags, &["--sandbox", "--sandbox-backend", backend]].concat();
                Ipybox::spawn(self, launcher, None, &flags, &[&[("PATH", path.as_str())], variables].concat())
            }
            Setting::Remote(server, kernel) => {
                let jupyter = Jupyter::shared(server).await;
                self.start_remote(
                    launcher,
                    jupyter.url(),
                    &[flags, &["--kernel-name", kernel]].concat(),
                    variables,
                )
            }
            #[cfg(target_os = "linux")]
            Setting::Hub => {
                let hub = hub::Hub::shared().await;
                let token = hub.token_of_running_server().await;
                self.start_at_hub(launcher, hub, token, flags, variables)
            }
            #[cfg(target_os = "linux")]
            Setting::Pod => {
                let pod = pod::Pod::start(&[]).await;
                let ipybox = self.start_in_pod(launcher, &pod.url(), flags, variables);
                // The session takes it, and it ends with that.
                std::mem::forget(pod);
                ipybox
            }
            Setting::Distant(server) => {
                let jupyter = Jupyter::shared(server).await;
                let relay = Relay::start(jupyter.address()).await;
                relay.delay(Duration::from_millis(50));
                let ipybox = self.start_remote(launcher, &jupyter.url_by(relay.address()), flags, variables);
                // It relays for as long as the test runs.
                std::mem::forget(relay);
                ipybox
            }
        }
    }
}

impl Place {
    /// ipybox with kernels on the Jupyter server at `url`. Flags that are for kernels on this machine are left out.
    pub(crate) fn start_remote(
        &self,
        launcher: &[&str],
        url: &str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Ipybox {
        let mut flags = remote_flags(flags);
        flags.extend(["--kernel-gateway-url", url, "--kernel-gateway-token-env", "JUPYTER_TOKEN_OF_TESTS"]);
        let token = [("JUPYTER_TOKEN_OF_TESTS", jupyter::TOKEN)];
        Ipybox::spawn(self, launcher, None, &flags, &[&token, variables].concat())
    }
}

/// Flags without those that are for kernels on this machine.
fn remote_flags<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let mut flags = flags.to_vec();
    if let Some(at) = flags.iter().position(|flag| *flag == "--python") {
        flags.drain(at..at + 2);
    }
    flags
}

/// Adds the texts of all files below a directory. Those that vanish meanwhile are left out.
fn collect(directory: &Path, text: &mut String) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, text);
        } else if let Ok(content) = std::fs::read(&path) {
            text.push_str(&String::from_utf8_lossy(&content));
        }
    }
}

/// A small MCP server of ours.
pub(crate) fn test_server(name: &str) -> PathBuf {
    repository().join("tests/servers").join(name)
}

/// The parameters of the test server in `tests/servers/`, on stdio.
pub(crate) fn probe() -> Value {
    json!({"command": tool("mcp1/bin/python"), "args": [test_server("probe.py"), "--transport", "stdio"]})
}

/// Waits until `is_so`, or panics with `what`.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "it never came that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process with this id is running (a zombie is not).
pub(crate) fn is_running(id: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{id}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => false,
    }
}

/// The processes that a process has started, and those that they have started, and so on. Linux only.
pub(crate) fn descendants(id: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten();
    let children =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let children: Vec<i32> = children
        .flat_map(|ids| ids.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<i32>>())
        .collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

/// The most memory, in KiB, that the server has used.
pub(crate) async fn peak_kib(ipybox: &Ipybox) -> u64 {
    memory_kib(ipybox, "VmHWM").await
}

/// The memory, in KiB, that the server uses now.
pub(crate) async fn held_kib(ipybox: &Ipybox) -> u64 {
    memory_kib(ipybox, "VmRSS").await
}

async fn memory_kib(ipybox: &Ipybox, which: &str) -> u64 {
    let status = tokio::fs::read_to_string(format!("/proc/{}/status", ipybox.id())).await.unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs cells that succeed, each with this text.
pub(crate) async fn all_say(ipybox: &mut Ipybox, cells: &[(&str, &str)]) {
    for (code, expected) in cells {
        assert_eq!(ipybox.cell(code).await.ok(), *expected, "{code}");
    }
}

/// Runs cells that fail, each with a text that contains this.
pub(crate) async fn all_fail(ipybox: &mut Ipybox, cells: &[(&str, &str)]) {
    for (code, expected) in cells {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains(expected), "{code}: {text}");
    }
}
