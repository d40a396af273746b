//! The real servers of remote kernels: Jupyter Server, Kernel Gateway and Enterprise Gateway, each on a port of its own
//! and with a home of its own, where nothing is the user's.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{PATIENCE, descendants, environment, eventually, is_running, kernel_python, repository, tool};

/// What each server lets in.
pub(crate) const TOKEN: &str = "a-token-of-the-tests";

/// Runs the server, and ends it and removes its home when the tests' process is gone.
const WATCHED: &str = include_str!("watched.sh");

/// How often another port is tried, if somebody else was quicker.
const ATTEMPTS: usize = 5;

/// Which of Jupyter's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "it is called so")]
pub(crate) enum Server {
    JupyterServer,
    KernelGateway,
    EnterpriseGateway,
}

impl Server {
    pub(crate) const ALL: [Self; 3] = [Self::JupyterServer, Self::KernelGateway, Self::EnterpriseGateway];

    fn program(self) -> PathBuf {
        tool(match self {
            Self::JupyterServer => "jupyter/bin/jupyter-server",
            Self::KernelGateway => "jupyter/bin/jupyter-kernelgateway",
            Self::EnterpriseGateway => "enterprise/bin/jupyter-enterprisegateway",
        })
    }

    /// Whose most of the server's options are.
    fn application(self) -> &'static str {
        match self {
            Self::JupyterServer => "ServerApp",
            Self::KernelGateway => "KernelGatewayApp",
            Self::EnterpriseGateway => "EnterpriseGatewayApp",
        }
    }

    /// What it takes to let this token in, and whoever the tests are run by.
    fn admission(self, token: &str) -> Vec<String> {
        match self {
            Self::JupyterServer => vec![
                format!("--IdentityProvider.token={token}"),
                "--allow-root".to_owned(),
                "--no-browser".to_owned(),
            ],
            Self::KernelGateway => vec![format!("--KernelGatewayApp.auth_token={token}")],
            // It starts no kernel for root otherwise.
            Self::EnterpriseGateway => vec![
                format!("--EnterpriseGatewayApp.auth_token={token}"),
                "--EnterpriseGatewayApp.unauthorized_users=nobody".to_owned(),
            ],
        }
    }
}

/// A server yet to be started.
pub(crate) struct Builder {
    server: Server,
    flags: Vec<String>,
    specs: BTreeMap<String, Vec<String>>,
    launcher: Vec<String>,
    host: IpAddr,
    base: String,
    scheme: &'static str,
}

impl Builder {
    /// Flags as its command line has them.
    pub(crate) fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// An option of the server's application, whose name differs: `list_kernels` of `KernelGatewayApp`.
    pub(crate) fn option(self, name: &str, value: &str) -> Self {
        let flag = format!("--{}.{name}={value}", self.server.application());
        self.flags(&[&flag])
    }

    /// Whether a kernel that dies is started again.
    pub(crate) fn restarting(self, does: bool) -> Self {
        self.flags(&[if does {
            "--KernelManager.autorestart=True"
        } else {
            "--KernelManager.autorestart=False"
        }])
    }

    /// The path below which it answers, which begins and ends with a slash.
    pub(crate) fn base(mut self, path: &str) -> Self {
        path.clone_into(&mut self.base);
        self.option("base_url", path)
    }

    /// Serves HTTPS with the certificate of this authority.
    pub(crate) fn tls(mut self, authority: &Authority) -> Self {
        self.scheme = "https";
        let file = |name| authority.file(name).to_str().unwrap().to_owned();
        self.option("certfile", &file("server.pem")).option("keyfile", &file("server.key"))
    }

    /// One more kernel spec, or another one of this name; `{connection_file}` is a placeholder for that file's path.
    pub(crate) fn spec(mut self, name: &str, argv: &[&str]) -> Self {
        self.specs.insert(name.to_owned(), argv.iter().map(|word| (*word).to_owned()).collect());
        self
    }

    /// Run by a command, and with an address other than the loopback one: that of a network namespace.
    pub(crate) fn at(mut self, launcher: &[String], host: IpAddr) -> Self {
        self.launcher = launcher.to_vec();
        self.host = host;
        self
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn start(self) -> Jupyter {
        for _ in 0..ATTEMPTS {
            let mut jupyter = self.spawn();
            match jupyter.answers().await {
                Ok(()) => return jupyter,
                Err(log) if log.contains("already in use") => {}
                Err(log) => panic!("{:?} does not start:\n{}", self.server, tail(&log)),
            }
        }
        panic!("{:?} finds no port", self.server);
    }

    fn spawn(&self) -> Jupyter {
        let home = tempfile::Builder::new().prefix("jupyter-").tempdir().unwrap().keep();
        for (name, argv) in &self.specs {
            let spec = home.join("data/kernels").join(name);
            std::fs::create_dir_all(&spec).unwrap();
            let text = json!({"argv": argv, "display_name": name, "language": "python"}).to_string();
            std::fs::write(spec.join("kernel.json"), text).unwrap();
        }
        for directory in ["files", "t"] {
            std::fs::create_dir(home.join(directory)).unwrap();
        }
        let log = File::options().read(true).append(true).create(true).open(home.join("log")).unwrap();
        // Nobody else has it now; that somebody takes it before the server does is what the attempts are for.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let address = SocketAddr::new(self.host, port);
        let words: Vec<&str> =
            self.launcher.iter().map(String::as_str).chain(["sh", "-c", WATCHED, "sh"]).collect();
        let spawned = Command::new(words[0])
            .args(&words[1..])
            .arg(&home)
            .arg(self.server.program())
            .args(
                ["ip", "port", "port_retries"]
                    .iter()
                    .zip([self.host.to_string(), port.to_string(), "0".to_owned()])
                    .map(|(name, value)| format!("--{}.{name}={value}", self.server.application())),
            )
            .args(self.server.admission(TOKEN))
            .args(&self.flags)
            .env_clear()
            .env("PATH", &environment()["PATH"])
            .env("LANG", "C.UTF-8")
            .env("HOME", &home)
            .env("TMPDIR", home.join("t"))
            // Neither the system's settings nor extensions, which would only take time.
            .env("JUPYTER_NO_CONFIG", "1")
            .env("JUPYTER_DATA_DIR", home.join("data"))
            .env("JUPYTER_PATH", home.join("data"))
            .env("JUPYTER_RUNTIME_DIR", home.join("runtime"))
            .env("IPYTHONDIR", home.join("ipython"))
            .current_dir(home.join("files"))
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log.try_clone().unwrap())
            // Ctrl-C is for the tests: it comes from them as the end of stdin.
            .process_group(0)
            .spawn();
        let watch = spawned.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        let url = format!("{}://{address}{}", self.scheme, self.base);
        Jupyter { server: self.server, watch, home, log, address, url }
    }
}

/// A running server. It ends, and its kernels with it, when this is dropped, or the tests' process ends.
pub(crate) struct Jupyter {
    server: Server,
    /// The shell that runs it.
    watch: Child,
    home: PathBuf,
    log: File,
    address: SocketAddr,
    url: String,
}

impl Jupyter {
    /// A server of the test's own, with the kernel specs `python3` (ipykernel 7) and `ipykernel6`.
    pub(crate) async fn start(server: Server) -> Self {
        Self::of(server).start().await
    }

    pub(crate) async fn with_flags(server: Server, flags: &[&str]) -> Self {
        Self::of(server).flags(flags).start().await
    }

    /// The server that all tests of this process share that do not stop it, break it or ask for its kernels.
    ///
    /// A start takes two or three seconds of a processor, which each test would pay otherwise. A kernel is used only by
    /// the test that has started it, and its cells show its id and process: only who asks the server for all of its
    /// kernels sees those of others, and needs [`Jupyter::start`].
    pub(crate) async fn shared(server: Server) -> &'static Self {
        static SHARED: [OnceCell<Jupyter>; 3] = [const { OnceCell::const_new() }; 3];
        // As we recommend. What a limit does has tests of its own.
        let flags: &[&str] = match server {
            Server::JupyterServer | Server::KernelGateway => {
                &["--ZMQChannelsWebsocketConnection.limit_rate=False"]
            }
            Server::EnterpriseGateway => &[],
        };
        SHARED[server as usize].get_or_init(|| Self::with_flags(server, flags)).await
    }

    pub(crate) fn of(server: Server) -> Builder {
        let argv = |python: PathBuf| {
            let words = [python.to_str().unwrap(), "-m", "ipykernel_launcher", "-f", "{connection_file}"];
            words.map(str::to_owned).to_vec()
        };
        let specs = [("python3", kernel_python()), ("ipykernel6", tool("enterprise/bin/python"))];
        Builder {
            server,
            flags: Vec::new(),
            specs: specs.map(|(name, python)| (name.to_owned(), argv(python))).into(),
            launcher: Vec::new(),
            host: Ipv4Addr::LOCALHOST.into(),
            base: "/".to_owned(),
            scheme: "http",
        }
    }

    /// Ends with a slash.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The same by way of another address, a relay's.
    pub(crate) fn url_by(&self, address: SocketAddr) -> String {
        self.url.replacen(&self.address.to_string(), &address.to_string(), 1)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token(&self) -> &'static str {
        TOKEN
    }

    /// The directory that its kernels start in.
    pub(crate) fn files(&self) -> PathBuf {
        self.home.join("files")
    }

    /// What it and its kernels have logged so far.
    pub(crate) fn log(&self) -> String {
        // By its descriptor, because the shell removes the file as soon as the server has ended.
        let mut text = vec![0; self.log.metadata().unwrap().len().try_into().unwrap()];
        self.log.read_exact_at(&mut text, 0).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The server's process; panics if there is none.
    pub(crate) fn id(&self) -> i32 {
        *self
            .processes()
            .first()
            .unwrap_or_else(|| panic!("{:?} is gone:\n{}", self.server, tail(&self.log())))
    }

    /// Each kernel's process by the kernel's id, as far as they run. Linux only.
    ///
    /// Not by REST: both gateways list no kernels unless they are configured to, and the tests take them as they are.
    pub(crate) fn kernels(&self) -> BTreeMap<String, i32> {
        let mut kernels = BTreeMap::new();
        for process in self.processes().into_iter().filter(|process| is_running(*process)) {
            if let Some(id) = kernel_of(process) {
                // A program that starts the kernel proper names it as well; it comes first.
                kernels.entry(id).or_insert(process);
            }
        }
        kernels
    }

    /// Kills a kernel's process, as if the system had; panics if there is none. Linux only.
    pub(crate) fn kill_kernel(&self, id: &str) {
        signal(self.kernels()[id], Signal::SIGKILL);
    }

    /// Asks its REST interface, with the token; the status, and what it says (`null` if that is no JSON).
    pub(crate) async fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        self.said(method, path, None).await
    }

    /// Sends its REST interface a document.
    pub(crate) async fn post(&self, path: &str, document: &Value) -> (u16, Value) {
        self.said("POST", path, Some(document)).await
    }

    async fn said(&self, method: &str, path: &str, document: Option<&Value>) -> (u16, Value) {
        let answer = ask(method, &format!("{}{path}", self.url), document).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", tail(&self.log())))
    }

    /// Ends it as an administrator does, and waits until it and its kernels are gone.
    pub(crate) async fn stop(&self) {
        let processes = self.processes();
        signal(self.id(), Signal::SIGTERM);
        eventually("the server and its kernels are gone", || {
            !processes.iter().any(|process| is_running(*process))
        })
        .await;
    }

    /// The server's process, which is first, and those that descend from it.
    fn processes(&self) -> Vec<i32> {
        descendants(self.watch.id().try_into().unwrap())
    }

    /// Waits until it answers; fails with the log if it ends before that.
    async fn answers(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.watch.try_wait().unwrap().is_some() {
                return Err(self.log());
            }
            if ask("GET", &format!("{}api", self.url), None).await.is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?} does not answer:\n{}", self.server, tail(&self.log()));
    }
}

impl Drop for Jupyter {
    fn drop(&mut self) {
        let processes = self.processes();
        if processes.is_empty() {
            // It has ended, or this is a system that does not list processes: what is left to do, the shell does.
            drop(self.watch.stdin.take());
        } else {
            // The shell first, because it would remove the home while kernels write to it; then the server, because
            // what it found dead it would start again.
            let shell = self.watch.id().try_into().unwrap();
            for process in std::iter::once(&shell).chain(&processes) {
                signal(*process, Signal::SIGKILL);
            }
            while processes.iter().any(|process| is_running(*process)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ended = self.watch.wait();
        let removed = std::fs::remove_dir_all(&self.home);
        if !std::thread::panicking() {
            ended.expect("the shell has ended");
            let is_removed = removed.or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            });
            is_removed.expect("the home can be removed");
        }
    }
}

/// A certificate authority of a test's own, trusted only by those who are configured to.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
}

impl Authority {
    /// One that has certified a server at an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        let directory = tempfile::Builder::new().prefix("authority-").tempdir().unwrap();
        let script = repository().join("tests/it/support/authority.py");
        let made = Command::new(tool("enterprise/bin/python"))
            .arg(script)
            .arg(directory.path())
            .arg(address.to_string())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { directory }
    }

    /// The file with its own certificate, which is what is trusted.
    pub(crate) fn roots(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// `server.pem` and `server.key`, which it has certified.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A process that is gone already is as good.
fn signal(process: i32, signal: Signal) {
    match kill(Pid::from_raw(process), signal) {
        Ok(()) | Err(nix::Error::ESRCH) => {}
        Err(error) => panic!("{signal} for {process}: {error}"),
    }
}

/// The id of the kernel that a process is, by the connection file that its command line names.
fn kernel_of(process: i32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    words.split(|byte| *byte == 0).find_map(|word| {
        let name = Path::new(std::str::from_utf8(word).ok()?).file_name()?.to_str()?;
        Some(name.strip_prefix("kernel-")?.strip_suffix(".json")?.to_owned())
    })
}

async fn ask(method: &str, url: &str, document: Option<&Value>) -> Result<(u16, Value), reqwest::Error> {
    // Another test has done it already, perhaps.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build()?;
    let request =
        client.request(method.parse().unwrap(), url).header("Authorization", format!("token {TOKEN}"));
    let request = match document {
        Some(document) => request.header("Content-Type", "application/json").body(document.to_string()),
        None => request,
    };
    let answer = request.timeout(PATIENCE).send().await?;
    let status = answer.status().as_u16();
    Ok((status, serde_json::from_str(&answer.text().await?).unwrap_or_default()))
}

/// The end of a log.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
