//! Starts ipykernel as a child process and waits until it can be spoken to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jupyter_protocol::ConnectionInfo;
use jupyter_protocol::connection_info::Transport;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::process::{ChildStdin, Command};
use tokio::task::JoinHandle;

use super::death::Manner;
use super::journal::Journal;
use super::{Death, Error, Limits};
use crate::process::{GroupLeader, Tail};

/// The files that the kernel starts from; the first is the script.
const SCRIPTS: [(&str, &str); 12] = [
    ("boot.py", include_str!("boot.py")),
    ("ipybox_commands.py", include_str!("ipybox_commands.py")),
    ("ipybox_frames.py", include_str!("ipybox_frames.py")),
    ("ipybox_hints.py", include_str!("ipybox_hints.py")),
    ("ipybox_input.py", include_str!("ipybox_input.py")),
    ("ipybox_journal.py", include_str!("ipybox_journal.py")),
    ("ipybox_limits.py", include_str!("ipybox_limits.py")),
    ("ipybox_messages.py", include_str!("ipybox_messages.py")),
    ("ipybox_processes.py", include_str!("ipybox_processes.py")),
    ("ipybox_shell.py", include_str!("ipybox_shell.py")),
    ("ipybox_streams.py", include_str!("ipybox_streams.py")),
    ("ipybox_tracebacks.py", include_str!("ipybox_tracebacks.py")),
];

/// How often to look whether the kernel's sockets are bound. A kernel is ready after 190 ms at best.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How long after its sockets closed a process is given to end. A core dump takes a while.
const DEATH_AFTER_DISCONNECT: Duration = Duration::from_secs(1);

/// What a kernel is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// The interpreter, which can import ipykernel.
    pub(crate) python: PathBuf,
    /// The kernel's working directory.
    pub(crate) working_directory: PathBuf,
    /// The kernel's whole environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// A directory that only this user can enter, with a path short enough for sockets in it.
    pub(crate) private_directory: PathBuf,
    /// What the kernel and each process that it starts may use.
    pub(crate) limits: Limits,
    /// What holds where `limits` says nothing; not told as a cause of deaths, since nobody has asked for it.
    pub(crate) default_limits: Limits,
    /// How long it may take to be ready.
    pub(crate) timeout: Duration,
    /// What its code may start.
    pub(crate) shell_commands: ShellCommands,
    /// How its sockets are reached.
    pub(crate) sockets: Sockets,
    /// What the interpreter's command line begins with: a program that becomes the interpreter.
    #[serde(skip)]
    pub(crate) wrapper: Vec<OsString>,
}

/// How the sockets of a kernel are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sockets {
    /// By names in the private directory, so that no port of this machine is taken.
    Files,
    /// By ports: inside a sandbox there are no other sockets, and its ports are its own.
    Ports,
}

/// How code in a kernel starts programs. It is a rule for code that keeps it: only a sandbox is a boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShellCommands {
    /// As it likes.
    #[default]
    Free,
    /// IPython's shell commands ask the tool server first; Python's own functions do not.
    Approved,
    /// IPython's shell commands ask first, and nothing else starts programs.
    OnlyEscape,
}

/// An ipykernel process. Dropping it kills the process and all that it started.
#[derive(Debug)]
pub(super) struct KernelProcess {
    leader: GroupLeader,
    limits: Limits,
    /// The kernel's group is killed when this closes, even if we are killed ourselves.
    _lifeline: Option<ChildStdin>,
    stderr: Tail,
    stderr_reader: Option<JoinHandle<()>>,
    /// Holds the connection file and the sockets.
    _directory: tempfile::TempDir,
}

impl KernelProcess {
    /// Starts the process and waits until its sockets are bound.
    pub(super) async fn start(launch: &Launch) -> Result<(Self, ConnectionInfo, Journal), Error> {
        let directory = tempfile::Builder::new()
            .prefix("k")
            .rand_bytes(4)
            .tempdir_in(&launch.private_directory)
            .map_err(Error::Files)?;
        let info = connection_info(launch.sockets, directory.path()).map_err(Error::Files)?;
        let connection_file = directory.path().join("connection.json");
        write_private(&connection_file, &serde_json::to_vec(&info).map_err(Error::Message)?)?;
        for (name, content) in SCRIPTS {
            write_private(&directory.path().join(name), content.as_bytes())?;
        }
        let journal_file = directory.path().join("journal");
        let journal = Journal::create(&journal_file).map_err(Error::Files)?;
        let settings = json!({
            "private_directory": launch.private_directory,
            "connection_file": connection_file,
            "journal_file": journal_file,
            "limits": launch.limits.or(launch.default_limits),
            "shell_commands": launch.shell_commands,
            "has_unix_sockets": launch.sockets == Sockets::Files,
        });

        let mut words = launch.wrapper.iter().map(OsString::as_os_str).chain([launch.python.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg(directory.path().join(SCRIPTS[0].0))
            .arg(settings.to_string())
            .current_dir(&launch.working_directory)
            .env_clear()
            .envs(private_environment(&launch.private_directory))
            .envs(&launch.environment)
            .stdin(Stdio::piped())
            // Never inherited: our stdout is the MCP channel.
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut leader = GroupLeader::spawn(&mut command)
            .map_err(|source| Error::Spawn { python: launch.python.clone(), source })?;
        let lifeline = leader.take_stdin();
        let (stderr, stderr_reader) = match leader.take_stderr() {
            Some(pipe) => {
                let (tail, reader) = Tail::follow(pipe, "kernel".to_owned());
                (tail, Some(reader))
            }
            None => (Tail::default(), None),
        };
        let mut process = Self {
            leader,
            limits: launch.limits,
            _lifeline: lifeline,
            stderr,
            stderr_reader,
            _directory: directory,
        };
        process.wait_for_socket(&info).await?;
        Ok((process, info, journal))
    }

    /// How the process ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.leader.try_wait().map_err(Error::Files)
    }

    /// Waits for the process to end. Cancellation safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.leader.wait().await
    }

    /// Waits for the end of a process whose connection failed with `error`; it usually is its death.
    pub(super) async fn wait_after(&mut self, error: Error) -> Result<ExitStatus, Error> {
        match tokio::time::timeout(DEATH_AFTER_DISCONNECT, self.wait()).await {
            Ok(status) => status.map_err(Error::Files),
            Err(_) => Err(error),
        }
    }

    /// Sends a signal to the kernel and all that it started.
    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        self.leader.signal(signal);
    }

    /// Kills the kernel and all that it started.
    pub(super) async fn kill(self) {
        self.leader.kill().await;
        if let Some(reader) = self.stderr_reader {
            reader.abort();
        }
    }

    /// What can be said of the process's end.
    pub(super) async fn death(&mut self, status: ExitStatus) -> Death {
        Death { manner: Manner::Process(status), stderr: self.last_words().await, limits: self.limits }
    }

    /// Drops what the process has written to its real stderr so far: it is not what it dies of later.
    pub(super) fn forget_words(&self) {
        self.stderr.forget();
    }

    /// The end of what the process wrote to its real stderr, once it is dead.
    async fn last_words(&mut self) -> String {
        // Processes that the kernel started may hold the pipe open for longer than we care.
        if let Some(reader) = &mut self.stderr_reader {
            drop(tokio::time::timeout(Duration::from_millis(100), reader).await);
            self.stderr_reader = None;
        }
        self.stderr.text()
    }

    async fn wait_for_socket(&mut self, info: &ConnectionInfo) -> Result<(), Error> {
        while !is_bound(info).await {
            if let Some(status) = self.ended()? {
                return Err(Error::DiedStarting(self.death(status).await));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// Keeps what IPython and Jupyter write about themselves out of the user's home and workspace.
fn private_environment(private_directory: &Path) -> [(&'static str, PathBuf); 4] {
    [
        ("IPYTHONDIR", private_directory.join("ipython")),
        ("JUPYTER_CONFIG_DIR", private_directory.join("jupyter")),
        ("JUPYTER_DATA_DIR", private_directory.join("jupyter")),
        ("JUPYTER_RUNTIME_DIR", private_directory.join("jupyter")),
    ]
}

/// Whether somebody listens on the last socket that a kernel binds.
async fn is_bound(info: &ConnectionInfo) -> bool {
    match info.transport {
        Transport::IPC => {
            let path = format!("{}-{}", info.ip, info.iopub_port);
            tokio::net::UnixStream::connect(path).await.is_ok()
        }
        Transport::TCP => tokio::net::TcpStream::connect((info.ip.as_str(), info.iopub_port)).await.is_ok(),
    }
}

fn connection_info(sockets: Sockets, directory: &Path) -> io::Result<ConnectionInfo> {
    let (transport, ip, ports) = match sockets {
        Sockets::Files => (Transport::IPC, directory.join("s").display().to_string(), [1, 2, 3, 4, 5]),
        Sockets::Ports => (Transport::TCP, Ipv4Addr::LOCALHOST.to_string(), free_ports()?),
    };
    let [shell_port, iopub_port, stdin_port, control_port, hb_port] = ports;
    Ok(ConnectionInfo {
        ip,
        transport,
        shell_port,
        iopub_port,
        stdin_port,
        control_port,
        hb_port,
        key: uuid::Uuid::new_v4().to_string(),
        signature_scheme: "hmac-sha256".to_owned(),
        kernel_name: None,
    })
}

/// Ports that nobody listens on. All are held until the last is found, or the same would be found again.
fn free_ports() -> io::Result<[u16; 5]> {
    let mut ports = [0; 5];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn write_private(path: &Path, content: &[u8]) -> Result<(), Error> {
    std::fs::write(path, content).map_err(Error::Files)
}
