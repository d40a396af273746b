//! Limits around a whole session: what goes beyond them ends or fails with words, and another session goes on.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, environment, equipped, eventually, kernel_python};

/// Takes shared memory, which no limit of a single process counts.
const TAKE_A_GIGABYTE: &str =
    "import mmap\nheld = mmap.mmap(-1, 1 << 30)\nfor at in range(0, 1 << 30, 4096): held[at] = 1";

/// More processes than there may be; they leave the group of the kernel's processes.
const START_PROCESSES: &str = "
import subprocess
started = []
try:
    for _ in range(1000): started.append(subprocess.Popen(['sleep', '4711'], start_new_session=True))
except OSError as error:
    print(type(error).__name__, 10 < len(started) < 60)";

async fn session(place: &Place, flags: &[&str]) -> Ipybox {
    session_with(place, &[], flags).await
}

async fn session_with(place: &Place, launcher: &[&str], flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_by(launcher, &flags, &[("PATH", &equipped())]).await;
    ipybox.initialize().await;
    ipybox
}

/// Whether limits of whole sessions can be held here. Where they cannot, a test that needs them says so.
#[expect(clippy::print_stderr, reason = "what a test leaves out must be seen")]
fn can_hold() -> bool {
    let doctor = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["doctor", "--json"])
        .env_clear()
        .envs(environment())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let finding = &report["groups"]["limits"][0];
    let can_hold = finding["status"] == "ok";
    if !can_hold {
        assert!(std::env::var_os("CI").is_none(), "in CI the limits are tried: {finding}");
        eprintln!("left out: {finding}");
    }
    can_hold
}

/// The control groups that a process has made.
fn groups_of(process: i32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(Path::new("/sys/fs/cgroup"), &process.to_string(), &mut found);
    found
}

fn collect(directory: &Path, process: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // The namespace of processes, the process, its start, and a number.
        let mut parts = name.split('-');
        if parts.next() == Some("ipybox") && parts.nth(1) == Some(process) {
            found.push(path.clone());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, process, found);
        }
    }
}

/// A value in one of the groups, which has one of these names.
fn value(groups: &[PathBuf], names: &[&str]) -> String {
    let files = groups.iter().flat_map(|group| names.iter().map(|name| group.join(name)));
    let text = files.into_iter().find_map(|file| std::fs::read_to_string(file).ok());
    text.unwrap_or_else(|| panic!("none of {names:?} in {groups:?}")).trim().to_owned()
}

#[track_caller]
fn assert_has(text: &str, words: &str) {
    assert!(text.contains(words), "`{words}` is missing: {text}");
}

async fn memory(flags: &[&str]) {
    if !can_hold() {
        return;
    }
    let (place, other_place) = (Place::new(), Place::new());
    let mut ipybox = session(&place, &[&["--limit-memory", "512M", "--checkpoint"], flags].concat()).await;
    let mut other = session(&other_place, flags).await;
    ipybox.cell("kept = 5").await.ok();
    eventually("the variable is saved", || place.everything_in_states().contains("\"name\": \"kept\"")).await;
    // What one process asks for at once is an exception, and nothing is lost.
    let text = ipybox.cell("x = bytearray(1 << 30)").await.error();
    assert_has(&text, "MemoryError");
    assert_has(&text, "The session's memory is limited (512 MiB), which `--limit-memory` sets.");
    let text = ipybox.cell(TAKE_A_GIGABYTE).await.error();
    assert_has(&text, "out of the session's memory (512 MiB)");
    assert_has(&text, "ipybox_checkpoint.restore()");
    assert!(!text.contains("may have run out of memory"), "{text}");
    assert_eq!(other.cell("1 + 1").await.ok(), "2");
    let restored = "import ipybox_checkpoint; ipybox_checkpoint.restore(); kept";
    assert_has(&ipybox.cell(restored).await.ok(), "5");
    // A child that is killed costs the kernel nothing.
    let child = format!(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {TAKE_A_GIGABYTE:?}]).returncode"
    );
    let text = ipybox.cell(&child).await.ok();
    assert_has(&text, "-9");
    assert_has(&text, "out of the session's memory (512 MiB)");
    assert_eq!(ipybox.cell("kept").await.ok(), "5");
    ipybox.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_session_that_is_out_of_memory_ends_alone() {
    memory(&[]).await;
}

#[tokio::test]
async fn a_sandboxed_session_that_is_out_of_memory_ends_alone() {
    memory(&["--sandbox", "--sandbox-backend", "bwrap"]).await;
}

#[tokio::test]
async fn full_shared_memory_of_a_sandbox_does_not_outlive_its_kernel() {
    if !can_hold() {
        return;
    }
    let place = Place::new();
    let flags = ["--limit-memory", "512M", "--sandbox", "--sandbox-backend", "bwrap"];
    let mut ipybox = session(&place, &flags).await;
    let fill = "with open('/dev/shm/full', 'wb') as file:\n    while True: file.write(bytes(1 << 20))";
    for _ in 0..2 {
        assert_has(&ipybox.cell(fill).await.error(), "out of the session's memory (512 MiB)");
        assert_eq!(ipybox.cell("1 + 1").await.ok().lines().last(), Some("2"));
    }
    ipybox.stop().await;
}

/// A copy is in the control group of its origin, whose reset must not end it.
#[tokio::test]
async fn a_copy_is_within_the_limits_of_its_origin_and_outlives_its_reset() {
    if !can_hold() {
        return;
    }
    let place = Place::new();
    let mut ipybox = session(&place, &["--limit-memory", "512M", "--limit-disk", "4G"]).await;
    ipybox.cell("x = 1").await.ok();
    let of = |code: &str, session: &str| json!({"code": code, "session": session});
    let text = ipybox.call("execute_ipython_cell", of("x += 1", "copy")).await.ok();
    let handle = text.split('`').nth(1).unwrap().to_owned();
    ipybox.reset().await;
    let text = ipybox.call("execute_ipython_cell", of("x", &handle)).await.ok();
    assert_eq!(text.lines().last(), Some("2"), "{text}");
    // Nor do the files of the copy end with those of an origin that has run out.
    let keep = "import os, tempfile\nkept = tempfile.mkstemp()[1]";
    ipybox.call("execute_ipython_cell", of(keep, &handle)).await.ok();
    assert_has(&ipybox.cell(TAKE_A_GIGABYTE).await.error(), "out of the session's memory (512 MiB)");
    assert_eq!(ipybox.cell("1 + 1").await.ok().lines().last(), Some("2"));
    let text = ipybox.call("execute_ipython_cell", of("os.path.exists(kept)", &handle)).await.ok();
    assert_eq!(text.lines().last(), Some("True"), "{text}");
    let text = ipybox.call("execute_ipython_cell", of(TAKE_A_GIGABYTE, &handle)).await.error();
    assert_has(&text, "out of the session's memory (512 MiB)");
    assert_eq!(ipybox.cell("1 + 1").await.ok().lines().last(), Some("2"));
    ipybox.stop().await;
}

#[tokio::test]
async fn processes_are_refused_beyond_the_limit_of_their_session() {
    if !can_hold() {
        return;
    }
    let (place, other_place) = (Place::new(), Place::new());
    let mut ipybox = session(&place, &["--limit-processes", "60"]).await;
    let mut other = session(&other_place, &["--limit-processes", "60"]).await;
    let text = ipybox.cell(START_PROCESSES).await.ok();
    assert_has(&text, "BlockingIOError True");
    assert_has(&text, "out of the session's processes (60), which `--limit-processes` sets.");
    assert_eq!(other.cell("!echo fine").await.ok(), "fine");
    ipybox.reset().await;
    // A bomb of processes that start others as long as they can.
    let bomb = "%%bash\nbomb() { bomb | bomb & }\nbomb 2>/dev/null";
    ipybox.call("execute_ipython_cell", json!({"code": bomb, "timeout": 2})).await;
    assert_eq!(other.cell("!echo fine").await.ok(), "fine");
    ipybox.reset().await;
    assert_eq!(ipybox.cell("!echo again").await.ok(), "again");
    let is_left = || {
        let members = value(&groups_of(ipybox.id()), &["cgroup.procs"]);
        let command = |id: &str| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        members.lines().any(|id| command(id).contains("4711"))
    };
    eventually("no process of the first kernel is left", || !is_left()).await;
    ipybox.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_busy_session_gets_its_part_of_the_processors() {
    if !can_hold() {
        return;
    }
    let (place, other_place) = (Place::new(), Place::new());
    let mut ipybox = session(&place, &["--limit-cpu", "0.5"]).await;
    let mut other = session(&other_place, &[]).await;
    let code = "import subprocess\nfor _ in range(3): subprocess.Popen(['sh', '-c', 'while :; do :; done'])\nwhile True: pass";
    let busy = ipybox.start_cell(code).await;
    assert_eq!(other.cell("1 + 1").await.ok(), "2");
    let groups = groups_of(ipybox.id());
    let limit = value(&groups, &["cpu.cfs_quota_us", "cpu.max"]);
    assert!(["50000", "50000 100000"].contains(&limit.as_str()), "{limit}");
    let is_held_back = || {
        let text = value(&groups, &["cpu.stat"]);
        text.lines().any(|line| line.strip_prefix("nr_throttled ").is_some_and(|count| count != "0"))
    };
    eventually("the system holds it back", is_held_back).await;
    ipybox.cancel(&busy).await;
    ipybox.reset().await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
    other.stop().await;
}

async fn disk(flags: &[&str], code: &str) {
    let (place, other_place) = (Place::new(), Place::new());
    let mut ipybox = session(&place, &[&["--limit-disk", "64M"], flags].concat()).await;
    let mut other = session(&other_place, flags).await;
    let prelude = "import os, tempfile, time\n";
    for _ in 0..2 {
        let text = ipybox.cell(&format!("{prelude}{code}")).await.error();
        assert_has(&text, "out of the session's disk (64 MiB), which `--limit-disk` sets.");
        assert_eq!(other.cell("1 + 1").await.ok(), "2");
        assert_eq!(ipybox.cell("1 + 1").await.ok().lines().last(), Some("2"));
    }
    ipybox.stop().await;
    other.stop().await;
}

/// Writes more than the limit, never more than ten times that, and waits for its end.
const FILL_TEMPORARY: &str = "
with tempfile.NamedTemporaryFile(delete=False) as file:
    for _ in range(640): file.write(bytes(1 << 20))
    file.flush()
while True: time.sleep(1)";

/// The same in a file that has no name.
const FILL_NAMELESS: &str = "
file = tempfile.TemporaryFile()
for _ in range(640): file.write(bytes(1 << 20))
file.flush()
while True: time.sleep(1)";

/// The same in the workspace, each time anew.
const FILL_WORKSPACE: &str = "
with open(f'large-{time.time()}', 'wb') as file:
    for _ in range(640): file.write(bytes(1 << 20))
while True: time.sleep(1)";

#[tokio::test]
async fn temporary_files_of_a_session_are_limited() {
    disk(&[], FILL_TEMPORARY).await;
}

#[tokio::test]
async fn files_without_a_name_are_limited() {
    disk(&[], FILL_NAMELESS).await;
}

#[tokio::test]
async fn the_growth_of_a_workspace_is_limited() {
    disk(&[], FILL_WORKSPACE).await;
}

#[tokio::test]
async fn temporary_files_of_a_sandbox_are_limited() {
    disk(&["--sandbox", "--sandbox-backend", "bwrap"], FILL_TEMPORARY).await;
}

#[tokio::test]
async fn a_sandbox_has_limits_by_default() {
    if !can_hold() {
        return;
    }
    for backend in ["bwrap", "srt"] {
        let place = Place::new();
        let mut ipybox = session(&place, &["--sandbox", "--sandbox-backend", backend]).await;
        assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
        let groups = groups_of(ipybox.id());
        let memory: u64 = value(&groups, &["memory.limit_in_bytes", "memory.max"]).parse().unwrap();
        let machine = std::fs::read_to_string("/proc/meminfo").unwrap();
        let machine: u64 = machine.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(memory > 0 && memory <= machine * 1024 / 4 * 3, "{memory}");
        assert_eq!(value(&groups, &["pids.max"]), "1024");
        assert!(value(&groups, &["cgroup.procs"]).lines().count() > 1);
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn groups_are_removed_at_the_end_of_any_kind() {
    if !can_hold() {
        return;
    }
    let place = Place::new();
    let mut ipybox = session(&place, &["--limit-processes", "100"]).await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    let process = ipybox.id();
    assert!(!groups_of(process).is_empty());
    ipybox.stop().await;
    eventually("the groups are removed", || groups_of(process).is_empty()).await;
    // Killed, with a process that has left the kernel's group.
    let mut ipybox = session(&place, &["--limit-processes", "100"]).await;
    let stray = "import subprocess\nsubprocess.Popen(['sleep', '4712'], start_new_session=True).pid";
    let stray = ipybox.cell(stray).await.ok();
    let process = ipybox.id();
    assert!(!groups_of(process).is_empty());
    ipybox.signal(nix::sys::signal::Signal::SIGKILL);
    ipybox.ended().await;
    eventually("the groups are removed", || groups_of(process).is_empty()).await;
    let stray = format!("/proc/{stray}/cmdline");
    let is_gone = || !std::fs::read_to_string(&stray).unwrap_or_default().contains("4712");
    eventually("the process has ended", is_gone).await;
}

#[tokio::test]
async fn groups_that_a_killed_process_has_left_are_removed_at_the_next_start() {
    if !can_hold() {
        return;
    }
    let place = Place::new();
    let mut ipybox = session(&place, &["--limit-processes", "100"]).await;
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    let mut left = Vec::new();
    for group in groups_of(ipybox.id()) {
        let name = group.file_name().unwrap().to_str().unwrap();
        let namespace = name.split('-').nth(1).unwrap();
        // No process has this id.
        left.push(group.with_file_name(format!("ipybox-{namespace}-4194305-1-1")));
    }
    let mut sleeper = std::process::Command::new("sleep").arg("4713").spawn().unwrap();
    // Another test that starts a session in between removes the groups.
    eventually("a process is in an abandoned group", || {
        left.iter().all(|group| std::fs::create_dir_all(group).is_ok())
            && std::fs::write(left[0].join("cgroup.procs"), sleeper.id().to_string()).is_ok()
    })
    .await;
    let next_place = Place::new();
    let mut next = session(&next_place, &["--limit-processes", "100"]).await;
    assert_eq!(next.cell("1 + 1").await.ok(), "2");
    assert!(!sleeper.wait().unwrap().success());
    for abandoned in left {
        eventually("it is removed", || !abandoned.exists()).await;
    }
    next.stop().await;
    // The group of a session that lives is left alone.
    assert_eq!(ipybox.cell("!echo lives").await.ok(), "lives");
    ipybox.stop().await;
}

#[tokio::test]
async fn where_no_group_can_be_made_what_is_not_held_is_refused_or_said() {
    let launcher = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/sys", "/sys"];
    let place = Place::new();
    let mut ipybox = place.start_by(&launcher, &["--limit-cpu", "1"], &[("PATH", &equipped())]).await;
    assert!(!ipybox.ended().await.success());
    for words in ["limit the processor time of the session", "leave `--limit-cpu` out"] {
        assert_has(&ipybox.log(), words);
    }
    let mut ipybox = session_with(&place, &launcher, &["--limit-memory", "512M"]).await;
    assert_has(&ipybox.cell("x = bytearray(1 << 30)").await.error(), "`--limit-memory`");
    assert_has(&ipybox.log(), "memory: limited for each process, and not for the session as a whole");
    ipybox.stop().await;
}
