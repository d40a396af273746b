//! States of a kernel, which sleep in its sandbox beside its code.

use serde_json::json;

use super::session::start;
use crate::support::Place;

/// Finds the newest state: the process of the same program that was made last.
const FIND: &str = "import ctypes, os, signal
mine = open('/proc/self/cmdline').read()
def is_state(process):
    try:
        return process != os.getpid() and open(f'/proc/{process}/cmdline').read() == mine
    except OSError:
        return False
state = max(int(name) for name in os.listdir('/proc') if name.isdigit() and is_state(int(name)))";

const ATTACK: &str = "libc = ctypes.CDLL(None, use_errno=True)
calls = {'ptrace': (101, 0x4206, state, 0, 0), 'process_vm_writev': (311, state, 0, 0, 0, 0, 0),
         'pidfd_getfd': (438, os.pidfd_open(state), 0, 0)}
held = {name: libc.syscall(*call) == -1 and ctypes.get_errno() == 1 for name, call in calls.items()}
try:
    os.open(f'/proc/{state}/mem', os.O_RDWR)
    held['mem'] = False
except PermissionError:
    held['mem'] = True
print(held == dict.fromkeys(held, True), held)";

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn code_can_end_a_state_but_neither_change_it_nor_keep_an_undo_from_saying_so() {
    let place = Place::new();
    let mut ipybox = start(&place, "bwrap", &[]).await;
    ipybox.cell("x = 1").await.ok();
    ipybox.cell("x = 2").await.ok();
    let text = ipybox.cell(&format!("{FIND}\n{ATTACK}")).await.ok();
    assert!(text.starts_with("True "), "{text}");
    // The state before this cell.
    let text = ipybox.cell(&format!("x = 3\n{FIND}\nos.kill(state, signal.SIGKILL)\nx")).await.ok();
    assert_eq!(text, "3");
    let refused = ipybox.call("reset", json!({"cells": 1})).await.error();
    assert!(refused.starts_with("Failed to "), "{refused}");
    assert_eq!(ipybox.cell("x").await.ok(), "3");
    // An earlier one is as it was.
    let undone = ipybox.call("reset", json!({"cells": 2})).await.ok();
    assert!(undone.starts_with("The kernel is as it was before"), "{undone}");
    assert_eq!(ipybox.cell("x").await.ok(), "2");
    ipybox.stop().await;
}
