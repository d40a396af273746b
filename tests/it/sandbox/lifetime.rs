//! Sandboxes that cannot be made, are killed, or share a workspace, and what is left when they end.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::session::{BACKENDS, document, names, policy, start, temporary_files, uninitialized};
use crate::support::{Ipybox, Place, descendants, equipped, eventually, is_running, probe, write_program};

/// The process that makes the sandbox, and all that is in it.
fn sandbox_processes(ipybox: &Ipybox, backend: &str) -> (i32, Vec<i32>) {
    let maker = descendants(ipybox.id()).into_iter().find(|id| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let arguments = command.split(|byte| *byte == 0);
        let names = arguments.take(2).filter_map(|argument| argument.rsplit(|byte| *byte == b'/').next());
        names.into_iter().any(|name| name == backend.as_bytes())
    });
    let maker = maker.expect("a process that makes the sandbox");
    (maker, descendants(maker))
}

async fn all_gone(ids: &[i32]) {
    for &id in ids {
        eventually(&format!("process {id} is gone"), || !is_running(id)).await;
    }
}

#[tokio::test]
async fn a_sandbox_that_is_killed_is_replaced_and_its_death_reported() {
    for backend in BACKENDS {
        let place = Place::new();
        let mut ipybox = start(&place, backend, &[]).await;
        ipybox.register("probe", probe()).await.ok();
        ipybox.cell("x = 1").await.ok();
        let (maker, inside) = sandbox_processes(&ipybox, backend);
        assert!(inside.len() >= 2, "{backend}: {inside:?}");
        kill(Pid::from_raw(maker), Signal::SIGKILL).unwrap();
        all_gone(&[&inside[..], &[maker]].concat()).await;
        let text = ipybox.cell("print('next')").await.ok();
        for words in ["The kernel was started anew", "signal: 9 (SIGKILL)", "are gone"] {
            assert!(text.contains(words), "{backend}: {text}");
        }
        assert!(text.ends_with("next"), "{backend}: {text}");
        let call = "from mcptools.probe import echo\necho.run(echo.Params(text='fine'))";
        assert_eq!(ipybox.cell(call).await.ok(), "'fine'", "{backend}");
        // While a cell runs.
        let running = ipybox.start_cell("open('started', 'w').close()\nwhile True: pass").await;
        let started = place.workspace().join("started");
        eventually("the cell runs", || started.exists()).await;
        let (maker, inside) = sandbox_processes(&ipybox, backend);
        kill(Pid::from_raw(maker), Signal::SIGKILL).unwrap();
        let text = running.answer().await.error();
        assert!(text.contains("The IPython kernel died while running the cell"), "{backend}: {text}");
        all_gone(&[&inside[..], &[maker]].concat()).await;
        assert!(ipybox.cell("1 + 1").await.ok().ends_with("\n\n2"), "{backend}");
        ipybox.stop().await;
        assert_eq!(temporary_files(&place), [""; 0], "{backend}");
    }
}

/// A cell that leaves a mark if it runs at all.
const CANARY: &str = "open('canary', 'w').close(); 'sung'";

#[tokio::test]
async fn nothing_is_served_without_the_sandbox_that_was_asked_for() {
    let nowhere = Place::new();
    let path = nowhere.workspace();
    let file = json!({"mitmProxy": {"socketPath": "/run/mitm", "domains": ["example.com"]}});
    for (backend, path, flags, expected) in [
        ("srt", path.to_str(), false, "srt: not on PATH"),
        ("bwrap", path.to_str(), false, "bwrap: not on PATH"),
        ("bwrap", None, true, "`network.mitmProxy`"),
    ] {
        let place = Place::new();
        let path = path.map_or_else(equipped, str::to_owned);
        let file = policy(&place, &document(&file, &json!({})));
        let flags: &[&str] = if flags { &["--sandbox-config", &file] } else { &[] };
        let mut ipybox = uninitialized(&place, backend, flags, &[("PATH", &path)]).await;
        assert_eq!(ipybox.ended().await.code(), Some(1), "{backend}: {}", ipybox.log());
        eventually("all of the log has come", || ipybox.log().contains(expected)).await;
        assert_eq!(temporary_files(&place), [""; 0], "{backend}");
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_made_is_reported_with_the_reason_and_nothing_runs() {
    let programs = Place::new();
    let path = format!("{}:{}", programs.workspace().display(), equipped());
    for backend in BACKENDS {
        let program = programs.workspace().join(backend);
        write_program(&program, "#!/bin/sh\necho out of order >&2; exit 3\n");
        let place = Place::new();
        let mut ipybox = uninitialized(&place, backend, &[], &[("PATH", &path)]).await;
        ipybox.initialize().await;
        let text = ipybox.cell(CANARY).await.error();
        assert!(text.contains("out of order") && text.contains(backend), "{backend}: {text}");
        assert!(!place.workspace().join("canary").exists());
        // Without the broken program, the next cell runs.
        std::fs::remove_file(&program).unwrap();
        assert!(ipybox.cell(CANARY).await.ok().ends_with("'sung'"), "{backend}");
        ipybox.stop().await;
    }
}

/// A busy machine makes srt give up, which another start mends.
#[tokio::test]
async fn srt_is_started_again_when_its_own_helpers_were_too_slow() {
    let programs = Place::new();
    let directory = programs.workspace();
    let program = directory.join("srt");
    let script = format!(
        "#!/bin/sh\ncd '{0}' || exit\n[ -e once ] || {{ touch once; echo 'Error: Failed to create bridge sockets after 5 attempts' >&2; exit 1; }}\n\
         cd \"$OLDPWD\" && PATH='{1}' exec srt \"$@\"\n",
        directory.display(),
        equipped()
    );
    write_program(&program, &script);
    let place = Place::new();
    let path = format!("{}:{}", directory.display(), equipped());
    let mut ipybox = uninitialized(&place, "srt", &[], &[("PATH", &path)]).await;
    ipybox.initialize().await;
    assert_eq!(ipybox.cell("6 * 7").await.ok(), "42");
    assert!(directory.join("once").exists());
    ipybox.stop().await;
}

#[tokio::test]
async fn two_sandboxes_in_one_workspace_do_not_disturb_each_other() {
    for backend in BACKENDS {
        let place = Place::new();
        let (mut one, mut two) = (start(&place, backend, &[]).await, start(&place, backend, &[]).await);
        one.register("probe", probe()).await.ok();
        two.cell("x = 2").await.ok();
        one.cell("x = 1").await.ok();
        let code = "from mcptools.probe import echo\nprint(x, echo.run(echo.Params(text='hello')))";
        assert_eq!(one.cell(code).await.ok(), "1 hello", "{backend}");
        one.stop().await;
        assert_eq!(two.cell(code).await.ok(), "2 hello", "{backend}");
        for path in [".env", "mcptools/planted.py", ".ipybox/planted", "sandbox-config.json"] {
            two.cell(&format!("open({path:?}, 'w').write('planted')")).await;
            let planted = std::fs::read(place.workspace().join(path)).unwrap_or_default();
            assert!(planted.is_empty(), "{backend}: {path} was written");
        }
        two.stop().await;
        assert_eq!(names(&place.workspace()), [".ipybox", "mcptools"], "{backend}");
        assert_eq!(temporary_files(&place), [""; 0], "{backend}");
    }
}

/// Ways in which a server ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Input,
    Signal(Signal),
}

#[tokio::test]
async fn however_it_ends_it_leaves_nothing() {
    for backend in BACKENDS {
        for ending in [Ending::Input, Ending::Signal(Signal::SIGTERM), Ending::Signal(Signal::SIGKILL)] {
            let place = Place::new();
            let mut ipybox = start(&place, backend, &[]).await;
            ipybox.register("probe", probe()).await.ok();
            let code = "import subprocess\nfrom mcptools.probe import pid\npid.run(pid.Params())\n\
                        child = subprocess.Popen(['sleep', '600'], start_new_session=True)";
            ipybox.cell(code).await.ok();
            // An interpreter that listens to nobody, since one call in C keeps its lock.
            let _running = ipybox.start_cell("open('started', 'w').close()\nsum(range(10**14))").await;
            let started = place.workspace().join("started");
            eventually("the cell runs", || started.exists()).await;
            let processes = descendants(ipybox.id());
            match ending {
                Ending::Input => ipybox.close_input(),
                Ending::Signal(signal) => ipybox.signal(signal),
            }
            let status = ipybox.ended().await;
            assert_eq!(
                status.success(),
                !matches!(ending, Ending::Signal(Signal::SIGKILL)),
                "{}",
                ipybox.log()
            );
            all_gone(&processes).await;
            eventually("the temporary files are gone", || temporary_files(&place).is_empty()).await;
            if !status.success() {
                // What a killed server has left in the workspace disturbs nobody, and the next one clears it up.
                let mut next = start(&place, backend, &[]).await;
                assert_eq!(next.cell("1 + 1").await.ok(), "2", "{backend}");
                next.stop().await;
            }
            assert_eq!(names(&place.workspace()), [".ipybox", "mcptools", "started"], "{backend} {ending:?}");
        }
    }
}
