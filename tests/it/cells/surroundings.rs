//! What code finds around it, as a program that was started in a terminal: directory, input, signals, environment.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Place, all_fail, all_say, eventually, kernel_python};

#[tokio::test]
async fn code_is_a_program_that_was_started_in_the_workspace() {
    let place = Place::new();
    place.write("script.py", "import sys\nprint(sys.argv, __name__, __file__)\nset_by_script = 5");
    let mut ipybox = place.ipybox().await;
    let workspace = place.workspace();
    let script = format!("['script.py', 'a', 'b c'] __main__ {}", workspace.join("script.py").display());
    all_say(
        &mut ipybox,
        &[
            ("import os; os.getcwd() == os.path.realpath(os.getcwd())", "True"),
            ("print(os.getcwd())", workspace.to_str().unwrap()),
            ("if __name__ == '__main__': print('main')", "main"),
            ("__import__('__main__').__dict__ is globals()", "True"),
            ("import argparse; argparse.ArgumentParser().parse_args()", "Namespace()"),
            ("%run script.py a 'b c'", &script),
            ("set_by_script", "5"),
            ("sub = 'sub'; os.mkdir(sub)", "[no output]"),
            ("%cd -q {sub}", "[no output]"),
            ("os.path.basename(os.getcwd())", "'sub'"),
            ("%cd -q ..", "[no output]"),
        ],
    )
    .await;
    all_fail(&mut ipybox, &[("__file__", "NameError")]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn standard_input_is_at_its_end() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(
        &mut ipybox,
        &[
            ("import os, subprocess, sys; sys.stdin.read(), sys.stdin.isatty()", "('', False)"),
            ("sys.stdin.readline(), list(sys.stdin)", "('', [])"),
            ("subprocess.run(['cat'], capture_output=True).stdout", "b''"),
            ("os.popen('cat').read()", "''"),
            ("os.system('cat')", "0"),
            ("lines = !cat\nlines", "[]"),
            ("!cat; echo end", "end"),
            ("!read line; echo \"got ($line)\"", "got ()"),
            ("%%bash\ncat; echo end", "end"),
        ],
    )
    .await;
    ipybox.stop().await;
}

/// What a child process of this Python, started by us, says of its signals.
fn signals_of_a_plain_child(code: &str) -> String {
    let output = Command::new(kernel_python()).args(["-c", code]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn signals_do_what_they_do_in_a_plain_python() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    // The last bits are of signals that the C library uses itself, the first are of those that a shell lets programs in
    // the background ignore: HUP, INT, QUIT.
    let child = "
import subprocess
lines = subprocess.check_output(['grep', '-E', 'SigBlk|SigIgn', '/proc/self/status'], text=True).split()
print([hex(int(mask, 16) & 0x7fff_fff8) for mask in lines[1::2]])";
    all_say(
        &mut ipybox,
        &[
            (child, &signals_of_a_plain_child(child)),
            ("import signal, os, time; signal.getsignal(signal.SIGINT) is signal.default_int_handler", "True"),
            ("[signal.getsignal(getattr(signal, 'SIG' + name)).name for name in ('TERM', 'CHLD', 'USR1', 'ALRM')] == ['SIG_DFL'] * 4", "True"),
            ("signal.pthread_sigmask(signal.SIG_BLOCK, [])", "set()"),
            ("rung = []\nring = signal.signal(signal.SIGALRM, lambda *_: rung.append('rang'))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile not rung: time.sleep(0.01)\nprint(*rung)", "rang"),
            ("try: os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\nexcept KeyboardInterrupt: print('caught')", "caught"),
            ("subprocess.run('kill -PIPE $$', shell=True).returncode", "-13"),
        ],
    )
    .await;
    all_fail(
        &mut ipybox,
        &[
            ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", "KeyboardInterrupt"),
            ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", "SIGTERM"),
        ],
    )
    .await;
    ipybox.stop().await;
}

/// The pipes and sockets that a process has open.
fn channels(process: i32) -> BTreeSet<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let names = targets.map(|target| target.display().to_string());
    names.filter(|name| name.starts_with("pipe:") || name.starts_with("socket:")).collect()
}

#[tokio::test]
async fn nothing_leaks_into_the_kernel_nor_out_of_it() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let kernel: i32 = ipybox.cell("import os; print(os.getpid())").await.ok().parse().unwrap();
    // What our own parent left open is not the server's. While a fork of the kernel begins, there is more.
    let alien = channels(std::process::id().try_into().unwrap());
    eventually("only the kernel's stderr, which the server reads, is common", || {
        let (ours, kernels) = (channels(ipybox.id()), channels(kernel));
        ours.intersection(&kernels).filter(|&name| !alien.contains(name)).count() == 1
    })
    .await;
    let leaked = format!(
        "print(*[fd for fd in map(int, os.listdir('/proc/self/fd')) if fd > 2 and fd not in {:?} and \
         os.path.exists(f'/proc/self/fd/{{fd}}') and os.get_inheritable(fd)])",
        inherited(),
    );
    all_say(
        &mut ipybox,
        &[
            (&leaked, "[no output]"),
            ("os.nice(0)", &niceness()),
            ("mask = os.umask(0); os.umask(mask); print(f'{mask:04o}')", &umask()),
        ],
    )
    .await;
    ipybox.stop().await;
}

/// The descriptors of ours that every child inherits, because our own parent left them open.
fn inherited() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
    numbers.filter(|number| !closes_on_exec(*number)).collect()
}

fn closes_on_exec(descriptor: i32) -> bool {
    let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")) else { return true };
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t")).unwrap();
    i32::from_str_radix(flags, 8).unwrap() & nix::libc::O_CLOEXEC != 0
}

/// Ours, which every child has unless it is changed.
fn niceness() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The 19th field; the second is a name in parentheses.
    stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned()
}

fn umask() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("Umask:\t")).unwrap().to_owned()
}

#[tokio::test]
async fn the_environment_is_a_plain_one() {
    let place = Place::new();
    place.write("startup.py", "started = True");
    let startup = place.workspace().join("startup.py").display().to_string();
    let flags = ["--python", kernel_python().to_str().unwrap().to_owned().leak()];
    let mut ipybox = place.start_with(&flags, &[("PYTHONSTARTUP", &startup), ("UNKNOWN", "1")]).await;
    ipybox.initialize().await;
    all_say(
        &mut ipybox,
        &[
            ("'started' in globals()", "False"),
            ("import os, sys; os.environ.get('UNKNOWN'), os.environ.get('PYTHONSTARTUP')", "(None, None)"),
            ("os.path.isdir(os.path.expanduser('~')), os.environ['PATH'] != ''", "(True, True)"),
            ("'GLIBC_TUNABLES' in os.environ", "False"),
            (
                "{encoding.lower() for encoding in (sys.getfilesystemencoding(), sys.stdout.encoding, open(os.devnull).encoding)}",
                "{'utf-8'}",
            ),
            ("%env NEW=new value", "env: NEW=new value"),
            ("%env NEW", "'new value'"),
            ("!echo $NEW", "new value"),
            (
                "open('naïve ☃.txt', 'w').write('é'); sorted(name for name in os.listdir() if 'na' in name)",
                "['naïve ☃.txt']",
            ),
            ("!cat naï*", "é"),
        ],
    )
    .await;
    ipybox.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn arrays_are_in_huge_pages_where_programs_may_ask_for_them() {
    // Where the system gives them to all, nobody needs to ask.
    let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let asks = if modes.contains("[madvise]") { "True" } else { "False" };
    let look = "arrays = [bytearray(1 << 20) for _ in range(8)]
heaps = open('/proc/self/smaps').read().split('[heap]')[1:]
any(' hg' in heap.split('VmFlags:')[1].splitlines()[0] for heap in heaps)";
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    all_say(&mut ipybox, &[(look, asks)]).await;
    ipybox.stop().await;

    let own = "glibc.malloc.hugetlb=0";
    let flags = ["--python", kernel_python().to_str().unwrap().to_owned().leak()];
    let mut ipybox = place.start_with(&flags, &[("KERNEL_ENV_GLIBC_TUNABLES", own)]).await;
    ipybox.initialize().await;
    let shown = format!("'{own}'");
    all_say(&mut ipybox, &[(look, "False"), ("import os; os.environ['GLIBC_TUNABLES']", &shown)]).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_vanished_working_directory_does_not_stop_code() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')").await.ok();
    all_say(&mut ipybox, &[("1 + 1", "2"), ("import json.tool, csv; 'imported'", "'imported'")]).await;
    all_fail(&mut ipybox, &[("os.getcwd()", "FileNotFoundError")]).await;
    all_say(&mut ipybox, &[("os.chdir('/'); os.getcwd()", "'/'")]).await;
    ipybox.stop().await;
}
