//! Bombs of processes, memory, files and messages, in bounded doses: they cost code its kernel, and the host nothing.

use serde_json::json;

use super::goes_on;
use super::host::{Host, User, descendants};
use crate::support::{Ipybox, eventually, peak_kib};

/// What a cell does, and what is said then if the bomb does not go off.
const BOMBS: [(&str, &str, &str); 11] = [
    ("memory", "x = bytearray(4 << 30)", "MemoryError"),
    (
        "memory of children",
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'bytearray(4 << 30)'], capture_output=True).stderr)",
        "MemoryError",
    ),
    ("a file", "open('large', 'w').truncate(1 << 43)", "OSError"),
    ("output without end", "while True: print('x' * 1000)", "timed out after 2 seconds"),
    (
        "a message of 20 MB",
        "from IPython.display import display\ndisplay({'text/plain': 'x' * 20_000_000}, raw=True)",
        "xxxx",
    ),
    (
        TOO_LONG,
        "get_ipython().kernel._host.send('stream', {'name': 'stdout', 'text': 'x' * 270_000_000})",
        "",
    ),
    ("a forged death", FORGED_DEATH, "alive"),
    ("garbage as messages", GARBAGE, ""),
    ("raw frames", RAW_FRAMES, ""),
    ("an end by signal", "import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    (
        DEAF,
        "import signal, sys\nfor number in (2, 15): signal.signal(number, signal.SIG_IGN)\nsum(range(10**14))",
        "",
    ),
];

const TOO_LONG: &str = "a message of 270 MB";
const DEAF: &str = "a kernel that cannot be interrupted";

const FORGED_DEATH: &str = "
host = get_ipython().kernel._host
for content in [{'execution_state': 'dead', 'why': 'x' * 1_000_000}, {'execution_state': 'dead'}]:
    for cell in (None, b''):
        host.send('status', content, cell)
print('alive')";

const GARBAGE: &str = "
host = get_ipython().kernel._host
for kind in ['stream', 'display_data', 'execute_result', 'error', 'status', 'clear_output', 'update_display_data',
             'execute_input', 'iopub_welcome', 'comm_open', 'shutdown_reply', 'kernel_info_reply', 'execute_reply', '']:
    for content in [{}, {'execution_state': 'idle'}, {'status': 'ok'}, {'data': 5}, {'name': [], 'text': {}}]:
        host.send(kind, content)";

const RAW_FRAMES: &str = r"
import os
host = get_ipython().kernel._host
for frame in [b'', b'\x02\0\0\0{}', b'\x04\0\0\0null', b'\x01\0\0\0' + os.urandom(1000), b'\xff\xff\xff\xff']:
    host._socket.sendall(frame)
for number in range(1000): os.write(1, host._mark + b'm%d\0' % number)";

/// Processes that leave the kernel's session, so that no signal to a group finds them.
const DAEMONS: &str = "
import subprocess
script = 'i=0; while [ $i -lt 800 ]; do setsid sleep 4711 & i=$((i+1)); done; wait'
daemons = subprocess.Popen(['sh', '-c', script], stderr=subprocess.DEVNULL, start_new_session=True)
import time; time.sleep(2)";

/// Processes that are never there when one looks: each starts its successor and ends.
const DODGERS: &str = r"
import subprocess, sys
code = '''
import os
os.setsid()
for _ in range(8):
    if os.fork() == 0: break
while True:
    if os.fork() != 0: os._exit(0)
'''
subprocess.Popen([sys.executable, '-S', '-c', code])
import time; time.sleep(0.5)";

/// A process whose parent is the gateway.
const SIBLING: &str = r"
import ctypes, os, signal
if ctypes.CDLL(None).syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine], 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    os.setsid()
    os.execvp('sleep', ['sleep', '4711'])";

pub(super) async fn all(ipybox: &mut Ipybox, host: &Host) -> Vec<String> {
    let mut through = Vec::new();
    for (name, code, expected) in BOMBS {
        // Slow, and not a question of who attacks.
        if (name == TOO_LONG) != (host.user() == User::Ordinary) && [TOO_LONG, DEAF].contains(&name) {
            continue;
        }
        let is_endless = expected.is_empty() || expected.contains("timed out");
        let timeout = if is_endless { 2 } else { 280 };
        let arguments = json!({"code": code, "timeout": timeout, "max_output_chars": 1000});
        let answer = ipybox.call("execute_ipython_cell", arguments).await;
        if !answer.text.contains(expected) {
            through.push(format!("{name}: {}", answer.text.chars().take(500).collect::<String>()));
        }
        through.extend(goes_on(ipybox, name).await);
    }
    let large = host.workspace().join("large");
    if large.metadata().is_ok_and(|file| file.len() > 1 << 40) {
        through.push("a file of 8 TiB".to_owned());
    }
    for (name, code) in [("daemons", DAEMONS), ("dodgers", DODGERS), ("a sibling", SIBLING)] {
        ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 280})).await;
        let started = || descendants(ipybox.id()).len();
        if name == "daemons" {
            eventually("many processes are started", || started() >= 100).await;
            if host.user() == User::Ordinary && started() > 450 {
                through.push(format!("{name}: {} processes in spite of a limit of 400", started()));
            }
        }
        ipybox.reset().await;
        eventually(&format!("no process is left after a reset: {name}"), || left(ipybox.id()).is_empty())
            .await;
        through.extend(goes_on(ipybox, name).await);
    }
    let peak = peak_kib(ipybox).await;
    if peak > 1_500 * 1024 {
        through.push(format!("the server has used {peak} KiB"));
    }
    through.extend(host.changes().into_iter().map(|change| format!("after bombs: {change}")));
    through
}

fn left(server: i32) -> Vec<String> {
    descendants(server).into_iter().filter_map(words).filter(|words| is_left(words)).collect()
}

fn words(id: i32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&words).replace('\0', " "))
}

fn is_left(words: &str) -> bool {
    words.contains("sleep 4711") || words.contains("os.setsid()")
}
