//! A machine at the other end of a cable: a network namespace that a pair of virtual interfaces joins to ours. Its
//! cable can be cut, which loses packets silently, as no relay of connections can. Linux, and root only.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The network that is set aside for tests of networks, 198.18.0.0/15.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// How many networks of four addresses it has.
const NETWORKS: u32 = 1 << 15;

const NEAR_MAC: &str = "02:00:5e:00:53:01";
const FAR_MAC: &str = "02:00:5e:00:53:02";
/// Nobody's.
const LOST_MAC: &str = "02:00:5e:00:53:ff";

/// A network namespace, which is gone when this is dropped, or the tests' process ends.
pub(crate) struct Namespace {
    /// A shell in it: it lives until its stdin ends, and the namespace with it, and the interfaces with that.
    holder: Child,
    /// Our end of the cable; the other end is `far`.
    interface: String,
    near: Ipv4Addr,
    far: Ipv4Addr,
}

impl Namespace {
    /// `None`, with a word about it, if we may not: the tests of the relay are what there is then.
    pub(crate) fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("a network namespace can be joined to ours by root only");
            return None;
        }
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && read -r _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("`unshare`: {error}"));
        let mut ready = [0; 3];
        holder.stdout.as_mut().unwrap().read_exact(&mut ready).expect("the namespace is up");
        // Other tests, and other processes' tests, have such interfaces, too.
        let interface = loop {
            static LAST: AtomicU32 = AtomicU32::new(0);
            let number = (std::process::id() * 16 + LAST.fetch_add(1, Ordering::Relaxed)) % NETWORKS;
            let interface = format!("ipybox{number}");
            let id = holder.id().to_string();
            let near = ["link", "add", &interface, "address", NEAR_MAC, "type", "veth"];
            let far = ["peer", "name", "far", "address", FAR_MAC, "netns", &id];
            let added = output(&[&["ip"], &near[..], &far[..]].concat());
            if added.status.success() {
                break (interface, number);
            }
            let said = String::from_utf8_lossy(&added.stderr).into_owned();
            assert!(said.contains("File exists"), "no pair of interfaces: {said}");
        };
        let (interface, number) = interface;
        let address = |host| Ipv4Addr::from(NETWORK + number * 4 + host);
        let namespace = Self { holder, interface, near: address(1), far: address(2) };
        for (end, own) in [(End::Near, namespace.near), (End::Far, namespace.far)] {
            namespace.at(end, &["ip", "address", "add", &format!("{own}/30"), "dev", namespace.device(end)]);
            namespace.at(end, &["ip", "link", "set", namespace.device(end), "up"]);
        }
        namespace.repair();
        Some(namespace)
    }

    /// The address of what runs in it.
    pub(crate) fn address(&self) -> IpAddr {
        self.far.into()
    }

    /// The command that runs another one in it.
    pub(crate) fn launcher(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.holder.id())]
    }

    /// From now on all packets are lost, in both directions, and nobody is notified.
    pub(crate) fn cut(&self) {
        // To a neighbour that is not there: unlike an interface that is down, this leaves the routes as they are.
        self.neighbours(LOST_MAC, LOST_MAC);
    }

    pub(crate) fn repair(&self) {
        self.neighbours(NEAR_MAC, FAR_MAC);
    }

    /// Delays packets by this much in each direction; false if the kernel cannot (not all have its `netem`), and a
    /// relay has to.
    #[must_use]
    pub(crate) fn delay(&self, delay: Duration) -> bool {
        let delay = format!("{}us", delay.as_micros());
        [End::Near, End::Far].into_iter().all(|end| {
            let words = ["tc", "qdisc", "replace", "dev", self.device(end), "root", "netem", "delay", &delay];
            let changed = output(&self.command(end, &words));
            let said = String::from_utf8_lossy(&changed.stderr);
            assert!(
                changed.status.success() || said.contains("qdisc kind is unknown"),
                "no delay for {}: {said}",
                self.device(end)
            );
            changed.status.success()
        })
    }

    fn neighbours(&self, near: &str, far: &str) {
        for (end, other, mac) in [(End::Near, self.far, far), (End::Far, self.near, near)] {
            let words = ["ip", "neighbour", "replace", &other.to_string(), "lladdr", mac, "nud", "permanent"];
            self.at(end, &[&words[..], &["dev", self.device(end)]].concat());
        }
    }

    fn device(&self, end: End) -> &str {
        match end {
            End::Near => &self.interface,
            End::Far => "far",
        }
    }

    fn command(&self, end: End, words: &[&str]) -> Vec<String> {
        let launcher = match end {
            End::Near => Vec::new(),
            End::Far => self.launcher(),
        };
        launcher.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    fn at(&self, end: End, words: &[&str]) {
        let output = output(&self.command(end, words));
        assert!(
            output.status.success(),
            "`{}`: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The interfaces go with the namespace, and that with its last process; but not at once.
        drop(output(&["ip", "link", "delete", &self.interface]));
        drop(self.holder.stdin.take());
        drop(self.holder.wait());
    }
}

/// Which end of the cable.
#[derive(Clone, Copy)]
enum End {
    Near,
    Far,
}

fn output<Word: AsRef<std::ffi::OsStr> + std::fmt::Debug>(words: &[Word]) -> Output {
    let output = Command::new(&words[0]).args(&words[1..]).output();
    output.unwrap_or_else(|error| panic!("{:?}: {error}\nhint: `tests/tools/install` installs it", words[0]))
}

#[expect(clippy::print_stderr, reason = "what is not tested is seen")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
