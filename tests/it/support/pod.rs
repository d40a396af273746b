//! A pod: `ipybox pod` as the first process of a PID namespace, as in a container. Linux only.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Ipybox, Place, environment, kernel_python, remote_flags};

/// The token of all pods here.
pub(crate) const TOKEN: &str = "token-of-pods-in-tests";

/// A running pod. It ends with its session, or when this is dropped.
pub(crate) struct Pod {
    pub(crate) child: Child,
    address: SocketAddr,
    pub(crate) home: tempfile::TempDir,
}

impl Pod {
    /// Starts one with these flags beside those for its places.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", flags).await
    }

    /// The same at an address.
    pub(crate) async fn start_at(address: &str, flags: &[&str]) -> Self {
        let home = tempfile::Builder::new().prefix("pod-").tempdir().unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--mount-proc", "--fork", "--kill-child"])
            .arg(env!("CARGO_BIN_EXE_ipybox"))
            .args(["pod", "--listen", address, "--token-env", "POD_TOKEN", "--python"])
            .arg(kernel_python())
            .arg("--workspace")
            .arg(home.path().join("work"))
            .args(flags)
            .env_clear()
            .env("PATH", &environment()["PATH"])
            .env("LANG", "C.UTF-8")
            .env("HOME", home.path())
            .env("POD_TOKEN", TOKEN)
            .env("TMPDIR", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it says its address");
        let said: Value = serde_json::from_str(&line).unwrap();
        let address = said["address"].as_str().unwrap().parse().unwrap();
        Self { child, address, home }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        url_by(self.address)
    }
}

/// The URL of a pod at this address.
pub(crate) fn url_by(address: SocketAddr) -> String {
    format!("http://{address}")
}

impl Place {
    /// ipybox with kernels in the pod at `url`. Flags that are for kernels on this machine are left out.
    pub(crate) fn start_in_pod(
        &self,
        launcher: &[&str],
        url: &str,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Ipybox {
        let mut flags = remote_flags(flags);
        flags.extend(["--kernel-pod-url", url, "--kernel-pod-token-env", "POD_TOKEN"]);
        Ipybox::spawn(self, launcher, None, &flags, &[&[("POD_TOKEN", TOKEN)], variables].concat())
    }
}
