//! Attacks on the sandbox from a cell of the real product, with both backends, as root and as an ordinary user.
//!
//! What counts is the state of the host afterwards: files, processes, sockets and ports of the test's own. The attacks
//! themselves are in `attacks/*.py`; each prints a line for every attempt, and none may have got through.

mod bombs;
mod canaries;
mod git;
pub(crate) mod host;
mod host_programs;
mod later_programs;
mod swaps;
mod top_level;

use nix::sys::signal::Signal;
use serde_json::json;

use self::host::{Backend, Host, User};
use crate::support::Ipybox;

/// Programs in `attacks/`, each with the least number of attempts that it makes.
const PROGRAMS: [(&str, usize); 10] = [
    ("kernel_surface", 50),
    ("sockets", 20),
    ("shared", 8),
    ("files", 25),
    ("places", 80),
    ("reading", 100),
    ("processes", 15),
    ("neighbours", 10),
    ("tool_server", 130),
    ("planted", 40),
];

/// Runs a program of `attacks/` inside, and reports what got through and how many attempts did not.
const RUNNER: &str = r"
import json, os, subprocess, sys
def attack(program, targets, limit=270):
    environment = {**os.environ, 'ATTACK_TARGETS': json.dumps(targets), 'ATTACK_INSIDE': os.getcwd()}
    command = [sys.executable, f'attacks/{program}.py', str(os.getppid()), parent]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    held = 0
    for line in done.stdout.splitlines():
        attempt = json.loads(line)
        if attempt['held']: held += 1
        else: print(program, 'GOT THROUGH:', attempt['attack'], attempt['detail'][:300])
    if done.returncode: print(program, 'failed:', done.returncode, done.stderr[-1500:])
    print(held)
parent = open('/proc/self/stat').read().rsplit(')')[-1].split()[1]
";

async fn run(ipybox: &mut Ipybox, host: &Host, program: &str, least: usize) -> Vec<String> {
    let targets = host.targets().to_string();
    let code = format!("attack({program:?}, json.loads(r'''{targets}'''))");
    let arguments = json!({"code": code, "timeout": 280, "max_output_chars": 20_000});
    let answer = ipybox.call("execute_ipython_cell", arguments).await;
    let mut lines: Vec<String> = answer.text.lines().map(str::to_owned).collect();
    match lines.last().and_then(|line| line.parse::<usize>().ok()) {
        Some(held) if !answer.is_error => {
            lines.pop();
            if held < least {
                lines.push(format!("{program}: only {held} attempts were stopped; {least} were expected"));
            }
        }
        _ => lines.push(format!("{program} did not end as it should")),
    }
    lines
}

/// One session that is attacked in every way, one after the other; returns what got through.
async fn everything(backend: Backend, user: User) -> String {
    let Some(host) = Host::new(backend, user) else { return String::new() };
    let mut ipybox = host.start();
    ipybox.initialize().await;
    ipybox.register("probe", host.probe_with_secret()).await.ok();
    let namespaces =
        "import os; print(*(os.readlink(f'/proc/self/ns/{name}') for name in ['pid', 'net', 'mnt']))";
    let inside = ipybox.cell(namespaces).await.ok();
    // Memory of the host that is shared by number is closed to code in another way.
    for name in ["pid", "net", "mnt"] {
        let outer = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        // Nothing below may run on the host itself.
        assert!(
            !inside.contains(outer.to_str().unwrap()),
            "the sandbox has the host's {name} namespace: {inside}"
        );
    }
    ipybox.cell(RUNNER).await.ok();
    let mut through = Vec::new();
    for (program, least) in PROGRAMS {
        through.extend(run(&mut ipybox, &host, program, least).await);
        through.extend(host.changes().into_iter().map(|change| format!("after {program}: {change}")));
    }
    through.extend(host_work_after_planting(&mut ipybox, &host).await);
    through.extend(network(&mut ipybox, &host).await);
    through.extend(bombs::all(&mut ipybox, &host).await);
    through.extend(stopped_gateway(&mut ipybox, &host).await);
    ipybox.close_input();
    if !ipybox.ended().await.success() {
        through.push(format!("it ended badly: {}", ipybox.log()));
    }
    through.extend(host.end().await);
    if through.is_empty() { String::new() } else { format!("{backend:?} {user:?}:\n{}", through.join("\n")) }
}

/// All at once: much of the time is spent waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_gets_through() {
    let sessions = [
        (Backend::Srt, User::Root),
        (Backend::Srt, User::Ordinary),
        (Backend::Bubblewrap, User::Root),
        (Backend::Bubblewrap, User::Ordinary),
    ]
    .map(|(backend, user)| tokio::spawn(everything(backend, user)));
    let ended = futures::future::join_all(sessions).await;
    let failed: Vec<String> =
        ended.into_iter().map(Result::unwrap).filter(|failed| !failed.is_empty()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Makes an attack with both backends, as root and as an ordinary user; it returns what got through.
async fn nothing_gets_through_by<F>(attack: fn(Backend, User) -> F)
where
    F: Future<Output = String> + Send + 'static,
{
    let mut failed = Vec::new();
    for backend in [Backend::Srt, Backend::Bubblewrap] {
        let both = [User::Root, User::Ordinary].map(|user| tokio::spawn(attack(backend, user)));
        failed.extend(futures::future::join_all(both).await.into_iter().map(Result::unwrap));
    }
    failed.retain(|failed| !failed.is_empty());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What the host writes after code has put links and plants in its way.
async fn host_work_after_planting(ipybox: &mut Ipybox, host: &Host) -> Vec<String> {
    let mut through = Vec::new();
    let link = format!(
        "import os, shutil\nshutil.rmtree('images', ignore_errors=True)\n\
         os.path.islink('images') or os.symlink({:?}, 'images')",
        host.outside()
    );
    ipybox.cell(&link).await.ok();
    // Whether these succeed is not the question: where they write is.
    ipybox.register("late", host.probe()).await;
    ipybox.cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").await;
    ipybox.cell("print('long ' * 100_000)").await;
    through.extend(host.changes().into_iter().map(|change| format!("after work of the host: {change}")));
    ipybox.cell("os.path.islink('images') and os.unlink('images')").await.ok();
    let late = "from mcptools.late import echo\necho.run(echo.Params(text='late'))";
    let registered = ipybox.register("late", host.probe()).await;
    if registered.is_error {
        through.push(format!("`late` is not registered: {}", registered.text));
    }
    through.extend(unless(ipybox.cell(late).await.text.contains("late"), "`late` can be called"));
    through
}

/// The host's network, and garbage for whatever listens inside, the kernel's own sockets included.
async fn network(ipybox: &mut Ipybox, host: &Host) -> Vec<String> {
    let mut through = run(ipybox, host, "network", 60).await;
    through.extend(host.changes().into_iter().map(|change| format!("after network: {change}")));
    // What follows takes long, and does not ask who attacks: each half for two of the four.
    if (host.backend() == Backend::Srt) == (host.user() == User::Root) {
        through.extend(garbage_to_descriptors(ipybox).await);
        return through;
    }
    let babble = format!(
        "attack('network', {{**json.loads(r'''{}'''), 'babble': True, 'addresses': []}})",
        host.targets()
    );
    // It may cost the kernel its life, which is code's own to end.
    ipybox.call("execute_ipython_cell", json!({"code": babble, "timeout": 5})).await;
    through.extend(goes_on(ipybox, "babbling at every port").await);
    through
}

/// Garbage into whatever the kernel's own process holds open.
async fn garbage_to_descriptors(ipybox: &mut Ipybox) -> Option<String> {
    let descriptors = "
import os
for name in os.listdir('/proc/self/fd'):
    if int(name) > 2:
        try: os.set_blocking(int(name), False); os.write(int(name), b'\\xff' * 64)
        except OSError: pass";
    ipybox.call("execute_ipython_cell", json!({"code": descriptors, "timeout": 2})).await;
    goes_on(ipybox, "garbage to every descriptor").await
}

/// A gateway that does not move, or dies, costs a kernel and not the session.
async fn stopped_gateway(ipybox: &mut Ipybox, host: &Host) -> Vec<String> {
    let mut through = Vec::new();
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        // The time that each step towards its end is given does not depend on who runs it.
        if signal == Signal::SIGSTOP && host.user() == User::Root {
            continue;
        }
        let Some(gateway) = host.gateway(ipybox.id()) else {
            return vec![format!("no gateway was found to send {signal} to")];
        };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(gateway), signal).unwrap();
        // What the gateway is needed for is to interrupt it.
        let code = json!({"code": "while True: pass", "timeout": 2});
        let answer = ipybox.call("execute_ipython_cell", code).await;
        if !answer.is_error {
            through.push(format!("a cell without a gateway ({signal}) says {}", answer.text));
        }
        through.extend(goes_on(ipybox, &format!("{signal} to the gateway")).await);
    }
    through
}

/// Whether cells run, at most two cells from now.
async fn goes_on(ipybox: &mut Ipybox, after: &str) -> Option<String> {
    let mut said = Vec::new();
    for _ in 0..3 {
        let answer = ipybox.call("execute_ipython_cell", json!({"code": "6 * 7", "timeout": 280})).await;
        if !answer.is_error && answer.text == "42" {
            ipybox.cell(RUNNER).await.ok();
            return None;
        }
        said.push(answer.text);
    }
    Some(format!("after {after} cells do not run: {said:?}"))
}

fn unless(is_so: bool, what: &str) -> Option<String> {
    (!is_so).then(|| format!("it is not so that {what}"))
}
