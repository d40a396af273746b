//! Processes, sockets, ports and memory of the host that nothing in the sandbox may reach.

use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command};

use super::host::{NOBODY_ELSE, User};
use crate::support::is_running;

pub(super) struct Canaries {
    pub(super) process: Child,
    stream: UnixListener,
    abstract_stream: UnixListener,
    pub(super) abstract_name: String,
    datagram: UnixDatagram,
    pub(super) tcp: TcpListener,
    pub(super) udp: UdpSocket,
    pub(super) memory: SystemV,
    pub(super) queue: SystemV,
}

impl Canaries {
    pub(super) fn new(root: &Path, user: Option<User>) -> Self {
        let mut process = Command::new("sleep");
        process.arg("infinity");
        if let Some(User::Ordinary) = user {
            use std::os::unix::process::CommandExt as _;
            process.uid(NOBODY_ELSE).gid(NOBODY_ELSE);
        }
        let outside = root.join("outside");
        let stream = UnixListener::bind(outside.join("stream")).unwrap();
        let datagram = UnixDatagram::bind(outside.join("datagram")).unwrap();
        for name in ["stream", "datagram"] {
            std::fs::set_permissions(outside.join(name), std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let abstract_name = format!("attack-{}", root.file_name().unwrap().display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let abstract_stream = UnixListener::bind_addr(&address).unwrap();
        let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
        let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
        stream.set_nonblocking(true).unwrap();
        abstract_stream.set_nonblocking(true).unwrap();
        datagram.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        Self {
            process: process.spawn().unwrap(),
            stream,
            abstract_stream,
            abstract_name,
            datagram,
            tcp,
            udp,
            memory: SystemV::new(&["-M", "4096"], "-m"),
            queue: SystemV::new(&["-Q"], "-q"),
        }
    }

    pub(super) fn hits(&self) -> Vec<String> {
        let mut buffer = [0; 64];
        let mut hits = Vec::new();
        let mut hit = |name: &str, heard: std::io::Result<()>| match heard {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            heard => hits.push(format!("{name} of the host was reached: {heard:?}")),
        };
        hit("a socket", self.stream.accept().map(drop));
        hit("an abstract socket", self.abstract_stream.accept().map(drop));
        hit("a datagram socket", self.datagram.recv(&mut buffer).map(drop));
        hit("a UDP port", self.udp.recv(&mut buffer).map(drop));
        hit("a TCP port", self.tcp.accept().map(|(mut stream, _)| drop(stream.read(&mut buffer))));
        let id = self.process.id().try_into().unwrap();
        if !is_running(id)
            || std::fs::read_to_string(format!("/proc/{id}/status")).unwrap().contains("State:\tT")
        {
            hits.push("a process of the host was signalled".to_owned());
        }
        hits
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Memory or a queue that programs find by number.
pub(super) struct SystemV {
    pub(super) id: u64,
    kind: &'static str,
}

impl SystemV {
    fn new(what: &[&str], kind: &'static str) -> Self {
        let made = Command::new("ipcmk").args(what).args(["-p", "0666"]).output().unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        Self { id: text.trim().rsplit(' ').next().unwrap().parse().unwrap(), kind }
    }
}

impl Drop for SystemV {
    fn drop(&mut self) {
        Command::new("ipcrm").args([self.kind, &self.id.to_string()]).status().unwrap();
    }
}
