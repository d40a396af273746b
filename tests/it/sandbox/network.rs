//! What code in a sandbox reaches of the network: what the policy names, by every library's own way, and nothing else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::session::uninitialized;
use crate::support::{Ipybox, Place, equipped, kernel_python};

/// A web server of the test's, reached from inside by the policy's leave only.
struct Web {
    address: SocketAddr,
    /// The first lines of what it was asked for.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Web {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::default());
        let seen = Arc::clone(&requests);
        // It ends with the test's process: nothing stops it before.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(stream.unwrap(), &seen));
            }
        });
        Self { address, requests }
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

/// Answers each request with `reached` and the length of what was sent along.
fn serve(stream: std::net::TcpStream, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let (mut length, mut lines) = (0, Vec::new());
        loop {
            let mut line = String::new();
            // The client has had enough, or never meant HTTP.
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                seen.lock().unwrap().extend(lines.into_iter().next());
                return;
            }
            let line = line.trim_end().to_owned();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        seen.lock().unwrap().extend(lines.into_iter().next());
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body = format!("reached with {length}");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Names that lead to this machine, where ipybox runs with a file of hosts of its own.
const NAMES: [&str; 4] = ["allowed.test", "denied.test", "other.test", "rebound.test"];

/// ipybox with a sandbox that allows these domains.
async fn start(place: &Place, backend: &str, allowed: &[String], denied: &[&str]) -> Ipybox {
    let document = json!({
        "network": {"allowedDomains": allowed, "deniedDomains": denied},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    });
    let file = place.temporary().parent().unwrap().join("policy.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let hosts = place.temporary().parent().unwrap().join("hosts");
    let names = NAMES.map(|name| format!("127.0.0.1 {name}\n")).concat();
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n::1 localhost\n{names}")).unwrap();
    // Only root may mount without a user namespace, in which nobody else is root.
    let user = if rustix::process::geteuid().is_root() { &[][..] } else { &["--map-root-user"] };
    let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let launcher = [&["unshare", "--mount"], user, &["sh", "-c", &script, "sh"]].concat();
    let (python, path) = (kernel_python(), equipped());
    let flags = ["--python", python.to_str().unwrap(), "--sandbox", "--sandbox-backend", backend];
    let flags = [&flags[..], &["--sandbox-config", file.to_str().unwrap()]].concat();
    let mut ipybox = place.start_by(&launcher, &flags, &[("PATH", &path)]).await;
    ipybox.initialize().await;
    ipybox.cell(WAYS).await.ok();
    ipybox
}

/// Every way to a host.
const WAYS: &str = r#"
import http.client, httpx, os, requests, socket, struct, urllib.parse, urllib.request

def by_urllib(url):
    return urllib.request.urlopen(url, timeout=120).read().decode()

def by_requests(url):
    answer = requests.get(url, timeout=120)
    answer.raise_for_status()
    return answer.text

def by_httpx(url):
    return httpx.get(url, timeout=120).raise_for_status().text

def by_socket(url):
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return connection.recv(100).decode()

def by_connect(url, path="/tunnel"):
    """Through the tunnel that HTTPS goes through, without the TLS."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    headers = {}
    if proxy.username:
        import base64
        secret = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password)}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
    connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=120)
    connection.set_tunnel(parts.hostname, parts.port, headers)
    connection.request("POST", path, b"x" * 1_000_000)
    return connection.getresponse().read().decode()

def attempt(way, url):
    try:
        return way(url)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
"#;

/// What makes the libraries ask the proxy for this machine too.
const NO_EXCEPTIONS: &str = "os.environ.pop('NO_PROXY', None); os.environ.pop('no_proxy', None);";

const WAYS_THROUGH_THE_PROXY: [&str; 4] = ["by_urllib", "by_requests", "by_httpx", "by_connect"];

async fn attempt(ipybox: &mut Ipybox, way: &str, url: &str) -> String {
    ipybox.cell(&format!("print(attempt({way}, {url:?}))")).await.ok()
}

async fn nothing_is_reached_unless_it_is_named(backend: &str) {
    let (place, web) = (Place::new(), Web::start());
    let port = web.port();
    let mut ipybox = start(&place, backend, &[], &[]).await;
    ipybox.cell(NO_EXCEPTIONS).await.ok();
    for host in ["allowed.test", "localhost", "127.0.0.1", "[::1]"] {
        for way in WAYS_THROUGH_THE_PROXY.iter().chain(&["by_socket"]) {
            let text = attempt(&mut ipybox, way, &format!("http://{host}:{port}/")).await;
            assert!(text.starts_with("refused: "), "{way} {host}: {text}");
        }
    }
    ipybox.stop().await;
    assert_eq!(web.take_requests(), [""; 0]);
}

async fn what_is_named_is_reached_and_nothing_else(backend: &str) {
    let (place, web, other) = (Place::new(), Web::start(), Web::start());
    let (port, closed) = (web.port(), other.port());
    // A name leads to this machine only where the address is allowed too.
    let allowed = [
        format!("allowed.test:{port}"),
        format!("denied.test:{port}"),
        format!("rebound.test:{closed}"),
        format!("127.0.0.1:{port}"),
    ];
    let mut ipybox = start(&place, backend, &allowed, &["denied.test"]).await;
    for way in WAYS_THROUGH_THE_PROXY {
        let text = attempt(&mut ipybox, way, &format!("http://allowed.test:{port}/x")).await;
        assert!(text.starts_with("reached with "), "{way}: {text}");
    }
    assert_eq!(
        web.take_requests(),
        ["GET /x HTTP/1.1", "GET /x HTTP/1.1", "GET /x HTTP/1.1", "POST /tunnel HTTP/1.1"]
    );
    // A megabyte in one direction arrives whole, also from a child.
    let child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', \
                 f'import requests; print(requests.post(\"http://allowed.test:PORT/\", data=b\"x\" * 10**6).text)'], check=True);";
    let text = ipybox.cell(&child.replace("PORT", &port.to_string())).await.ok();
    assert_eq!(text, "reached with 1000000");
    web.take_requests();
    ipybox.cell(NO_EXCEPTIONS).await.ok();
    // Other names and ports, and all that goes around the proxy.
    for host in [
        &format!("other.test:{port}"),
        &format!("denied.test:{port}"),
        &format!("rebound.test:{closed}"),
        &format!("localhost:{port}"),
        &format!("allowed.test:{closed}"),
        &format!("127.0.0.1:{closed}"),
        &format!("127.0.0.2:{port}"),
        &format!("[::ffff:127.0.0.1]:{closed}"),
        "example.com:80",
        "169.254.169.254:80",
    ] {
        for way in WAYS_THROUGH_THE_PROXY {
            let text = attempt(&mut ipybox, way, &format!("http://{host}/")).await;
            assert!(text.starts_with("refused: "), "{way} {host}: {text}");
        }
    }
    for host in [&format!("allowed.test:{port}"), &format!("127.0.0.1:{port}")] {
        let text = attempt(&mut ipybox, "by_socket", &format!("http://{host}/")).await;
        assert!(text.starts_with("refused: "), "{host}: {text}");
    }
    ipybox.stop().await;
    assert_eq!((web.take_requests(), other.take_requests()), (vec![], vec![]));
}

async fn names_are_not_looked_up_and_datagrams_go_nowhere(backend: &str) {
    let (place, web) = (Place::new(), Web::start());
    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let allowed = [format!("allowed.test:{}", web.port()), format!("127.0.0.1:{}", web.port())];
    let mut ipybox = start(&place, backend, &allowed, &[]).await;
    let code = format!(
        r#"
def refused(action):
    try:
        return action() or "not refused"
    except OSError as error:
        return type(error).__name__

def send(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.5)
        # Never the port itself, from which it would hear itself.
        sender.bind(("", port % 60000 + 2000))
        # A query for `example.com`, which any name server would answer.
        query = struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"\7example\3com\0" + struct.pack(">2H", 1, 1)
        sender.sendto(query, (host, port))
        return sender.recv(100)

servers = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")]
print(refused(lambda: socket.getaddrinfo("example.com", 80)))
print(refused(lambda: socket.gethostbyname("example.org")))
print(*{{refused(lambda: send(host, port)) for host, port in [("127.0.0.1", {udp}), ("1.1.1.1", 53), *((s, 53) for s in servers if ":" not in s)]}} - {{"OSError", "TimeoutError", "ConnectionRefusedError"}})
print(refused(lambda: socket.create_connection(("1.1.1.1", 443), timeout=2)))
print(sorted(name for _, name in socket.if_nameindex()) in (["lo"], []))"#,
        udp = datagrams.local_addr().unwrap().port()
    );
    let text = ipybox.cell(&code).await.ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(matches!(lines[..], ["gaierror", "gaierror", "", "OSError", "True"]), "{text}");
    ipybox.stop().await;
    let mut buffer = [0; 10];
    assert_eq!(datagrams.recv(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// A test for each backend of each of these.
macro_rules! with_each_backend {
    ($($name:ident)*) => {
        mod srt { $(#[tokio::test] async fn $name() { super::$name("srt").await })* }
        mod bwrap { $(#[tokio::test] async fn $name() { super::$name("bwrap").await })* }
    };
}

with_each_backend! {
    nothing_is_reached_unless_it_is_named
    what_is_named_is_reached_and_nothing_else
    names_are_not_looked_up_and_datagrams_go_nowhere
}

/// What the end of an error says where code meets the limits of its sandbox.
async fn check_hints(backend: &str) {
    let place = Place::new();
    let mut ipybox = uninitialized(&place, backend, &[], &[]).await;
    let greeting = ipybox.initialize_with(json!({})).await;
    let instructions = greeting["instructions"].as_str().unwrap();
    assert!(
        instructions.contains("The kernel is in a sandbox without network: "),
        "{backend}: {instructions}"
    );
    for (code, hint) in [
        ("open('/planted', 'w')", "code writes below `"),
        (
            "import pathlib\npathlib.Path('.bashrc').write_text('x')",
            "files are protected that configure programs",
        ),
        (
            "import urllib.request\nurllib.request.urlopen('https://example.org')",
            "only hosts that the user has allowed",
        ),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "no service of this machine"),
    ] {
        let text = ipybox.cell(code).await.error();
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("hint: the kernel is in a sandbox") && last.contains(hint),
            "{backend}: {text}"
        );
    }
    for code in [
        "!pip install six",
        "%pip install six",
        "name = 'six'\n!uv pip install {name}",
        "x = !python -m pip install six",
    ] {
        let text = ipybox.cell(code).await.error();
        assert!(
            text.contains("The tool `install_package` can") && text.lines().count() < 12,
            "{backend}: {text}"
        );
    }
    let text = ipybox.cell("word = 'pip'\n!echo {word} is there\nopen('own', 'w').close()").await.ok();
    assert_eq!(text, "pip is there", "{backend}");
    let missing = ipybox.cell("open('missing')").await.error();
    assert!(missing.ends_with("'missing'"), "{backend}: {missing}");
    ipybox.stop().await;
}

#[tokio::test]
async fn srt_code_is_told_where_it_meets_its_sandbox() {
    check_hints("srt").await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn bwrap_code_is_told_where_it_meets_its_sandbox() {
    check_hints("bwrap").await;
}
