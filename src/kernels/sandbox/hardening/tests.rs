use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use super::{Hardening, HardeningReport, probe};

/// Runs `act` in a hardened thread, with `inside` writable. The test stays as it is.
fn hardened<T: Send>(inside: &Path, allow_unix_sockets: bool, act: impl FnOnce() -> T + Send) -> T {
    let hardening = Hardening { writable: vec![inside.to_owned()], allow_unix_sockets, readable: None };
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let report = hardening.apply_to_kernel().expect("the thread is hardened");
                assert!(report.is_complete(), "these tests need a kernel with all layers: {report}");
                act()
            })
            .join()
            .expect("the thread ends well")
    })
}

/// Runs `act` with a writable directory and one that is not, which holds `file`.
#[track_caller]
fn check<T: Send>(outcome: Result<(), &[i32]>, act: impl FnOnce(&Path, &Path) -> io::Result<T> + Send) {
    let workspace = tempfile::tempdir().expect("a directory");
    let other = tempfile::tempdir().expect("another");
    fs::write(other.path().join("file"), "kept").expect("a file");
    let (inside, outside) = (workspace.path(), other.path());
    let result = hardened(inside, false, || act(inside, outside).map(drop));
    match (result, outcome) {
        (Ok(()), Ok(())) => {}
        (Err(error), Err(expected)) if error.raw_os_error().is_some_and(|code| expected.contains(&code)) => {}
        (result, outcome) => panic!("{result:?} instead of {outcome:?}"),
    }
    assert_eq!(fs::read_to_string(outside.join("file")).expect("the file is there"), "kept");
}

const WORKS: Result<(), &[i32]> = Ok(());
const DENIED: Result<(), &[i32]> = Err(&[libc::EACCES, libc::EPERM, libc::EROFS]);
const OTHER_DEVICE: Result<(), &[i32]> = Err(&[libc::EXDEV, libc::EACCES]);

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let status = Command::new(program).args(arguments).stderr(std::process::Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

#[test]
fn files_are_written_inside_only() {
    check(WORKS, |inside, _| fs::write(inside.join("new"), "x"));
    check(WORKS, |_, outside| fs::read(outside.join("file")));
    check(WORKS, |_, _| fs::write("/dev/null", "x"));
    check(DENIED, |_, outside| fs::write(outside.join("file"), "x"));
    check(DENIED, |_, outside| fs::write(outside.join("new"), "x"));
    check(DENIED, |_, outside| fs::create_dir(outside.join("new")));
    check(DENIED, |_, outside| fs::remove_file(outside.join("file")));
    check(DENIED, |_, _| fs::OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern"));
    check(DENIED, |_, _| fs::OpenOptions::new().write(true).open("/proc/self/oom_score_adj"));
}

#[test]
fn only_what_is_readable_is_read_and_of_processes_only_the_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    for name in ["open", "closed"] {
        fs::create_dir(path(name)).expect("a directory");
        fs::write(path(name).join("file"), "x").expect("a file");
    }
    let read = || {
        let parent =
            format!("/proc/{}/cmdline", rustix::process::getppid().expect("a parent").as_raw_nonzero());
        let places = [path("open/file"), path("closed/file"), parent.into(), "/proc/self/status".into()];
        let listed = [path("open"), path("closed"), "/proc".into()];
        let read = places.map(|place| fs::read(place).is_ok());
        (read, listed.map(|place| fs::read_dir(place).is_ok()))
    };
    let readable = Some(vec![path("open")]);
    let hardening = Hardening { writable: vec![path("closed")], allow_unix_sockets: false, readable };
    let hardened = std::thread::scope(|scope| {
        let hardened = scope.spawn(|| {
            hardening.apply_to_kernel().expect("the thread is hardened");
            read()
        });
        hardened.join().expect("the thread ends well")
    });
    assert_eq!(hardened, ([true, false, false, true], [true, false, false]));
    assert_eq!(read(), ([true; 4], [true; 3]));
}

#[test]
fn files_do_not_cross_the_border() {
    check(WORKS, |inside, _| {
        fs::create_dir(inside.join("below"))?;
        fs::write(inside.join("new"), "x")?;
        fs::hard_link(inside.join("new"), inside.join("below/linked"))?;
        fs::rename(inside.join("new"), inside.join("below/moved"))
    });
    check(OTHER_DEVICE, |inside, outside| fs::rename(outside.join("file"), inside.join("file")));
    check(OTHER_DEVICE, |inside, outside| fs::hard_link(outside.join("file"), inside.join("file")));
    check(OTHER_DEVICE, |inside, outside| {
        fs::write(inside.join("new"), "x")?;
        fs::rename(inside.join("new"), outside.join("new"))
    });
    check(DENIED, |inside, outside| {
        std::os::unix::fs::symlink(outside, inside.join("link"))?;
        fs::write(inside.join("link/file"), "x")
    });
}

#[test]
fn sockets_are_of_the_internet_or_in_connected_pairs() {
    check(WORKS, |_, _| TcpStream::connect(TcpListener::bind("127.0.0.1:0")?.local_addr()?));
    check(WORKS, |_, _| UdpSocket::bind("127.0.0.1:0"));
    check(WORKS, |_, _| UnixStream::pair());
    check(DENIED, |_, _| UnixDatagram::pair());
    check(DENIED, |_, _| UnixDatagram::unbound());
    check(DENIED, |inside, _| UnixListener::bind(inside.join("socket")));
}

#[test]
fn unix_sockets_are_there_if_they_are_allowed() {
    let workspace = tempfile::tempdir().expect("a directory");
    let inside = workspace.path();
    let bound = hardened(inside, true, || {
        UnixDatagram::pair()?;
        UnixListener::bind(inside.join("socket"))
    });
    bound.expect("the socket is made");
}

#[test]
fn programs_run_but_neither_reach_us_nor_leave() {
    check(WORKS, |_, _| run("/bin/sh", &["-c", "sleep 10 & kill $!; echo $(echo x) >/dev/null"]));
    check(DENIED, |_, _| run("/bin/sh", &["-c", "kill -0 $PPID"]));
    check(DENIED, |_, _| run("/bin/sh", &["-c", "unshare --user true"]));
    check(DENIED, |_, _| run("/bin/sh", &["-c", "ls /proc/$PPID/cwd/ >/dev/null"]));
}

#[test]
fn no_capability_is_left() {
    let workspace = tempfile::tempdir().expect("a directory");
    let left = hardened(workspace.path(), false, || rustix::thread::capabilities(None));
    assert!(left.expect("capabilities can be asked for").permitted.is_empty());
}

#[test]
fn what_does_not_exist_is_skipped_and_reported() {
    let hardening =
        Hardening { writable: vec!["/nonexistent/here".into()], allow_unix_sockets: false, readable: None };
    let report =
        std::thread::spawn(move || hardening.apply_to_kernel()).join().expect("the thread ends well");
    let Ok(HardeningReport::Layers(layers)) = report else { panic!("{report:?}") };
    assert!(layers.landlock.skipped.iter().any(|path| path == Path::new("/nonexistent/here")));
}

#[test]
fn trying_it_out_restricts_nobody() {
    assert!(probe().expect("the layers can be tried").is_complete());
    let workspace = tempfile::tempdir().expect("a directory");
    UnixListener::bind(workspace.path().join("socket")).expect("sockets can still be made");
    assert!(!rustix::thread::no_new_privs().expect("the attribute can be read"));
}

#[test]
fn it_travels_as_json() {
    let readable = Some(vec!["/b".into()]);
    let hardening = Hardening { writable: vec!["/a".into()], allow_unix_sockets: true, readable };
    let json = serde_json::to_string(&hardening).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Hardening>(&json).expect("and back"), hardening);
    assert!(
        serde_json::from_str::<Hardening>(
            r#"{"writable":[],"allow_unix_sockets":false,"readable":null,"more":1}"#
        )
        .is_err()
    );
}
