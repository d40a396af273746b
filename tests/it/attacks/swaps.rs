//! Links that code puts in the place of directories while another sandbox of the workspace starts: no mount of it leads, or lands,
//! anywhere else.

use serde_json::json;

use super::host::{Backend, Host, User};
use super::nothing_gets_through_by;

/// The number of sandboxes that start meanwhile.
const STARTS: usize = 6;

/// Exchanges two directories of a protected name with links, over and over.
const SWAP: &str = r"
import ctypes, os, random, threading, time
libc = ctypes.CDLL(None)
for number in range(2):
    os.makedirs(f's{number}/d/.vscode', exist_ok=True)
    os.symlink(os.path.relpath(outside, os.path.abspath(f's{number}')), f's{number}/l')
def swap():
    while True:
        for number in range(2):
            libc.renameat2(-100, f's{number}/l'.encode(), -100, f's{number}/d'.encode(), 2)
            time.sleep(random.random() * 0.06)
threading.Thread(target=swap, daemon=True).start()
";

/// Writes through whatever the mounts show.
const WRITE: &str = r"
import os
for directory in [outside, *(f's{number}/{name}' for number in range(2) for name in 'dl')]:
    if os.path.exists(f'{directory}/marker'):
        try: open(f'{directory}/written', 'w').close()
        except OSError: continue
        print('WRITTEN')
";

async fn everything(backend: Backend, user: User) -> String {
    let Some(host) = Host::new(backend, user) else { return String::new() };
    std::fs::create_dir_all(host.outside().join(".vscode")).unwrap();
    std::fs::write(host.outside().join("marker"), "").unwrap();
    host.give_to_user();
    let mut ipybox = host.start();
    ipybox.initialize().await;
    let outside = format!("outside = {:?}\n", host.outside());
    ipybox.cell(&format!("{outside}{SWAP}")).await.ok();
    let mut through = Vec::new();
    for _ in 0..STARTS {
        let arguments = json!({"code": format!("{outside}{WRITE}"), "session": "new"});
        let answer = ipybox.call("execute_ipython_cell", arguments).await;
        // A sandbox whose mounts are not as planned does not start.
        if answer.text.contains("WRITTEN") {
            through.push(answer.text);
        }
    }
    ipybox.stop().await;
    if host.outside().join("written").exists() {
        through.push("the file is on the host".to_owned());
    }
    if through.is_empty() { String::new() } else { format!("{backend:?} {user:?}: {}", through.join("\n")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mount_follows_a_link_that_code_makes_at_the_start_of_a_sandbox() {
    nothing_gets_through_by(everything).await;
}
