//! What works without a sandbox works in one: the suites' own tests again, with srt and with bubblewrap, and what only
//! sessions in a sandbox have.

use std::path::Path;

use ipybox::{
    CodeExecutionError, CodeExecutionEvent, CodeExecutor, Registry, SandboxBackend, generate_mcp_sources,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{
    Ipybox, Place, Setting, descendants, equipped, eventually, is_running, kernel_python, probe, tool,
    with_kernels,
};
use crate::{
    calls, cells, content, deaths, inference, output, pictures, protocol, registration, shell, tracebacks,
};

const BACKENDS: [&str; 2] = ["srt", "bwrap"];

/// Makes a test of each test of another suite, which starts its sessions in a sandbox of this backend then.
macro_rules! once_more_in_a_sandbox {
    ($module:ident, $backend:literal: $($suite:ident::$name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { super::with_kernels(super::Setting::Sandbox($backend), super::$suite::$name) })*
        }
    };
}

once_more_in_a_sandbox! { bwrap, "bwrap":
    cells::output_is_what_ipython_shows
    cells::an_exception_is_an_error_with_what_was_printed_before
    cells::long_output_is_cut_with_a_notice
    cells::a_reset_clears_variables_and_stops_what_runs
    cells::the_kernel_is_like_ipython_on_a_plain_terminal
    calls::tools_are_called_from_every_kind_of_code
    calls::errors_of_tools_become_python_exceptions
    calls::interrupting_a_cell_ends_its_call_and_not_the_connection
    calls::large_arguments_and_results_pass
    content::binary_content_arrives_as_objects
    deaths::what_was_printed_before_a_sudden_death_is_told
    deaths::code_that_never_lets_go_of_the_interpreter_is_ended_with_what_it_printed
    inference::results_get_a_type_that_outlasts_the_kernel_and_the_registration
    output::output_holds_what_was_printed_however_slowly_it_is_read
    output::progress_bars_collapse_to_their_final_state
    output::what_threads_and_tasks_print_later_is_told_apart
    pictures::a_plot_is_shown_as_it_was_saved
    protocol::output_is_told_as_progress_while_it_is_produced
    protocol::a_cancelled_cell_is_interrupted_and_the_next_one_runs
    registration::code_that_runs_already_sees_a_new_registration
    shell::commands_run_as_ever_where_everything_is_allowed
    tracebacks::a_failed_call_shows_its_message_and_the_lines_of_the_users_code
    tracebacks::wrong_names_are_answered_with_the_right_ones
}

// What runs inside is the same, gateway and kernel: here is what depends on who makes the network, mounts and processes.
once_more_in_a_sandbox! { srt, "srt":
    cells::output_is_what_ipython_shows
    cells::a_reset_clears_variables_and_stops_what_runs
    calls::tools_are_called_from_every_kind_of_code
    calls::large_arguments_and_results_pass
    deaths::what_was_printed_before_a_sudden_death_is_told
    pictures::a_plot_is_shown_as_it_was_saved
    protocol::a_cancelled_cell_is_interrupted_and_the_next_one_runs
    registration::code_that_runs_already_sees_a_new_registration
    shell::commands_run_as_ever_where_everything_is_allowed
}

/// ipybox with a sandbox and these flags beside, initialized.
async fn start(place: &Place, backend: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = uninitialized(place, backend, flags, &[]).await;
    ipybox.initialize().await;
    ipybox
}

async fn uninitialized(place: &Place, backend: &str, flags: &[&str], variables: &[(&str, &str)]) -> Ipybox {
    let python = kernel_python();
    let own = ["--python", python.to_str().unwrap(), "--sandbox", "--sandbox-backend", backend];
    let path = equipped();
    place.start_with(&[&own, flags].concat(), &[&[("PATH", path.as_str())], variables].concat()).await
}

/// A policy's file in the place, outside the workspace; returns its path.
fn policy(place: &Place, text: &Value) -> String {
    let path = place.temporary().parent().unwrap().join("policy.json");
    std::fs::write(&path, text.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn document(network: &Value, filesystem: &Value) -> Value {
    let mut document = json!({
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    });
    for (section, changes) in [("network", network), ("filesystem", filesystem)] {
        document[section].as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    }
    document
}

/// What is in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn temporary_files(place: &Place) -> Vec<String> {
    names(&place.temporary())
}

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
async fn a_sandbox_that_is_killed_is_replaced_and_the_caller_told() {
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

#[tokio::test]
async fn approval_is_asked_for_and_obeyed() {
    for backend in BACKENDS {
        let place = Place::new();
        let flags = ["--approval", "ask", "--approve-shell-cmds"];
        let mut ipybox = uninitialized(&place, backend, &flags, &[]).await;
        ipybox.initialize_with(json!({"elicitation": {}})).await;
        let arguments = json!({"server_name": "probe", "server_params": probe()});
        let registration = ipybox.start_call("register_mcp_server", arguments).await;
        ipybox.decide("allow once").await;
        registration.answer().await.ok();
        let call = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='called')))";
        for (code, asked, shown) in [
            (call, "called", "called"),
            ("!echo command", "echo command", "command"),
            ("%%bash\necho magic", "echo magic", "magic"),
        ] {
            let running = ipybox.start_cell(code).await;
            let question = ipybox.decide("allow once").await;
            assert!(question.contains(asked), "{backend}: {question}");
            assert_eq!(running.answer().await.ok(), shown, "{backend}");
            let running = ipybox.start_cell(code).await;
            ipybox.decide("deny").await;
            let text = running.answer().await.error();
            assert!(text.contains("reject"), "{backend}: {text}");
        }
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn code_gets_its_variables_and_not_the_secrets() {
    for backend in BACKENDS {
        let place = Place::new();
        place.write(".env", "KERNEL_ENV_FILE_KEY=file\nAPI_KEY=s3cret\n");
        place.write(".env.local", "API_KEY=s3cret\n");
        let variables = [("KERNEL_ENV_GIVEN", "given"), ("PLAIN", "s3cret")];
        let mut ipybox = uninitialized(&place, backend, &[], &variables).await;
        ipybox.initialize().await;
        let code =
            "import os\nprint(os.environ['GIVEN'], os.environ['FILE_KEY'], 's3cret' in str(os.environ))";
        assert_eq!(ipybox.cell(code).await.ok(), "given file False", "{backend}");
        for name in [".env", ".env.local"] {
            for code in [format!("print(repr(open('{name}').read()))"), format!("!cat {name}")] {
                let text = ipybox.cell(&code).await.text;
                assert!(!text.contains("s3cret"), "{backend}: {code}: {text}");
            }
        }
        assert!(ipybox.cell("open('.env', 'w')").await.is_error, "{backend}");
        ipybox.stop().await;
        assert_eq!(place.read(".env"), "KERNEL_ENV_FILE_KEY=file\nAPI_KEY=s3cret\n");
    }
}

#[tokio::test]
async fn processes_and_temporary_files_are_to_be_had() {
    for backend in BACKENDS {
        let place = Place::new();
        let mut ipybox = start(&place, backend, &[]).await;
        ipybox.cell("import concurrent.futures, multiprocessing, os, subprocess, tempfile").await.ok();
        for (code, expected) in [
            // Start methods that need Unix sockets are not the default, whatever Python's is.
            ("with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))", "[1, 2]"),
            (
                "with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(abs, [-1, -2]))",
                "[1, 2]",
            ),
            (
                "with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-1])))",
                "[1]",
            ),
            ("subprocess.run(['sh', '-c', 'exit 3']).returncode", "3"),
            ("with tempfile.NamedTemporaryFile() as file: file.write(b'x')", "[no output]"),
            (
                "print(subprocess.check_output(['mktemp'], text=True).startswith(os.environ['TMPDIR']))",
                "True",
            ),
            ("tempfile.gettempdir() == os.environ['TMPDIR']", "True"),
        ] {
            assert_eq!(ipybox.cell(code).await.ok(), expected, "{backend}: {code}");
        }
        ipybox.stop().await;
        assert_eq!(names(&place.workspace()), [".ipybox", "mcptools"], "{backend}");
    }
}

#[tokio::test]
async fn a_policy_opens_what_it_names_and_nothing_else() {
    for backend in BACKENDS {
        let place = Place::new();
        let beside = place.temporary().parent().unwrap().join("beside");
        for directory in
            ["beside/open", "beside/closed", "workspace/part", "workspace/part/kept", "workspace/rest"]
        {
            std::fs::create_dir_all(beside.parent().unwrap().join(directory)).unwrap();
        }
        place.write("rest/secret", "s3cret");
        let rules = json!({
            "denyRead": ["rest/secret"], "allowWrite": ["part", beside.join("open")], "denyWrite": ["part/kept"],
        });
        let file = policy(&place, &document(&json!({}), &rules));
        let mut ipybox = start(&place, backend, &["--sandbox-config", &file]).await;
        for (path, is_open) in [
            ("part/file", true),
            ("part/kept/file", false),
            ("rest/file", false),
            ("file", false),
            (beside.join("open/file").to_str().unwrap(), true),
            (beside.join("closed/file").to_str().unwrap(), false),
        ] {
            let answer = ipybox.cell(&format!("open({path:?}, 'w').close()")).await;
            assert_eq!(!answer.is_error, is_open, "{backend}: {path}: {}", answer.text);
            assert_eq!(place.workspace().join(path).exists(), is_open, "{backend}: {path}");
        }
        let text = ipybox.cell("open('rest/secret').read()").await.text;
        assert!(!text.contains("s3cret"), "{backend}: {text}");
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn a_policy_that_cannot_be_used_is_told_before_anything_is_served() {
    let place = Place::new();
    let check = async |text: Option<Value>, expected: &[&str]| {
        let file = match text {
            Some(text) => policy(&place, &text),
            None => "missing.json".to_owned(),
        };
        for backend in BACKENDS {
            let mut ipybox = uninitialized(&place, backend, &["--sandbox-config", &file], &[]).await;
            assert_eq!(ipybox.ended().await.code(), Some(1), "{backend}: {expected:?}");
            eventually("all of the log has come", || {
                expected.iter().all(|words| ipybox.log().contains(words))
            })
            .await;
        }
        assert_eq!(temporary_files(&place), [""; 0]);
    };
    check(None, &["missing.json", "No such file"]).await;
    check(Some(json!({})), &["policy.json", "`network`", "missing"]).await;
    check(Some(json!("text")), &["the document", "text"]).await;
    let mut misspelt = document(&json!({}), &json!({}));
    misspelt["filesystem"]["denyWrites"] = json!([".env"]);
    check(Some(misspelt), &["`filesystem.denyWrites`", "no such key", "denyWrite"]).await;
    let wrong = document(&json!({}), &json!({"allowWrite": [".", 7]}));
    check(Some(wrong), &["`filesystem.allowWrite[1]`", "`7` is not allowed"]).await;
    let wrong = document(&json!({"allowedDomains": ["https://example.com"]}), &json!({}));
    check(Some(wrong), &["`network.allowedDomains[0]`", "https://example.com"]).await;
    let off = document(&json!({}), &json!({"disabled": true}));
    check(Some(off), &["`filesystem.disabled`", "`true` is not allowed"]).await;
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
async fn a_sandbox_that_cannot_be_made_is_told_with_its_reason_and_nothing_runs() {
    let programs = Place::new();
    let path = format!("{}:{}", programs.workspace().display(), equipped());
    for backend in BACKENDS {
        let program = programs.workspace().join(backend);
        std::fs::write(&program, "#!/bin/sh\necho out of order >&2; exit 3\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let place = Place::new();
        let mut ipybox = uninitialized(&place, backend, &[], &[("PATH", &path)]).await;
        ipybox.initialize().await;
        let text = ipybox.cell(CANARY).await.error();
        assert!(text.contains("out of order") && text.contains(backend), "{backend}: {text}");
        assert!(!place.workspace().join("canary").exists());
        // Mended, the next cell runs.
        std::fs::remove_file(&program).unwrap();
        assert!(ipybox.cell(CANARY).await.ok().ends_with("'sung'"), "{backend}");
        ipybox.stop().await;
    }
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

#[tokio::test]
async fn the_workspaces_own_policy_is_taken_if_that_is_asked_for() {
    for backend in BACKENDS {
        let place = Place::new();
        let policy = document(&json!({}), &json!({"denyWrite": ["kept"]}));
        place.write("sandbox-config.json", &policy.to_string());
        place.write("kept", "as it was");
        for (flags, is_kept) in [(&["--sandbox-workspace-config"][..], true), (&[], false)] {
            let mut ipybox = start(&place, backend, flags).await;
            assert_eq!(
                ipybox.cell("open('kept', 'w').write('changed')").await.is_error,
                is_kept,
                "{backend}"
            );
            for code in
                ["open('sandbox-config.json', 'w')", "import os\nos.rename('sandbox-config.json', 'x')"]
            {
                ipybox.cell(code).await.error();
            }
            ipybox.stop().await;
        }
        assert_eq!(place.read("sandbox-config.json"), policy.to_string());
        std::fs::remove_file(place.workspace().join("sandbox-config.json")).unwrap();
        let mut ipybox = start(&place, backend, &["--sandbox-workspace-config"]).await;
        assert_eq!(ipybox.cell("open('kept', 'w').write('again')").await.ok(), "5", "{backend}");
        ipybox.stop().await;
        place.write("sandbox-config.json", "{}");
        let mut ipybox = uninitialized(&place, backend, &["--sandbox-workspace-config"], &[]).await;
        assert_eq!(ipybox.ended().await.code(), Some(1), "{backend}");
        assert!(ipybox.log().contains("sandbox-config.json"), "{backend}: {}", ipybox.log());
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

#[tokio::test]
async fn odd_paths_and_a_missing_home_are_fine() {
    for backend in BACKENDS {
        let place = Place::named("it's \"my\" work & $HOME é");
        let python = kernel_python();
        let flags = ["--python", python.to_str().unwrap(), "--sandbox", "--sandbox-backend", backend];
        let path = equipped();
        let mut ipybox = place.start_by(&["env", "-u", "HOME"], &flags, &[("PATH", &path)]).await;
        ipybox.initialize().await;
        let code = "import os\nopen('made here', 'w').close()\nprint(os.getcwd())";
        assert_eq!(ipybox.cell(code).await.ok(), place.workspace().to_str().unwrap(), "{backend}");
        let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()";
        assert_eq!(ipybox.cell(plot).await.images.len(), 1, "{backend}");
        ipybox.stop().await;
        assert_eq!(names(&place.workspace()), [".ipybox", "images", "made here", "mcptools"], "{backend}");
    }
}

#[tokio::test]
async fn a_server_of_its_own_sandbox_works_within_it() {
    let place = Place::new();
    place.write(".env", "API_KEY=s3cret");
    place.write("README.md", "read me");
    place.write("kept/file", "as it was");
    let inside = |name: &str| place.workspace().join(name);
    let closed = [inside(".env"), inside("kept")];
    let rules = json!({"denyRead": [closed[0]], "allowWrite": [place.workspace()], "denyWrite": closed});
    let settings = policy(&place, &document(&json!({}), &rules));
    let server = tool("npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let mut ipybox = start(&place, "bwrap", &[]).await;
    let parameters = json!({
        "command": tool("bin/srt"),
        "args": ["--settings", settings, "--", tool("bin/node"), server, "${workspace}"],
        "env": {"PATH": equipped()},
    });
    let tools = ipybox.register("filesystem", parameters).await.ok();
    assert!(tools.contains("read_text_file"), "{tools}");
    ipybox.cell("from mcptools.filesystem import read_text_file, write_file").await.ok();
    for (code, expected) in [
        ("print(read_text_file.run(path='README.md'))", Ok("read me")),
        ("print(write_file.run(path='made', content='by the server'))", Ok("wrote")),
        ("read_text_file.run(path='.env')", Err("EACCES")),
        ("write_file.run(path='kept/file', content='changed')", Err("EROFS")),
        ("write_file.run(path='kept/new', content='new')", Err("EROFS")),
    ] {
        let answer = ipybox.cell(code).await;
        let (is_error, words) = match expected {
            Ok(words) => (false, words),
            Err(words) => (true, words),
        };
        assert_eq!(answer.is_error, is_error, "{code}: {}", answer.text);
        assert!(answer.text.contains(words) && !answer.text.contains("s3cret"), "{code}: {}", answer.text);
    }
    ipybox.stop().await;
    assert_eq!((place.read("made"), place.read("kept/file")), ("by the server".into(), "as it was".into()));
    assert!(!place.workspace().join("kept/new").exists());
}

/// With bubblewrap, which is on everybody's `PATH`: a library has only the environment of its own process.
#[tokio::test]
async fn an_application_has_a_sandbox_too() {
    let place = Place::new();
    let registry = Registry::new();
    generate_mcp_sources(&registry, "probe", &probe(), place.workspace().join("mcptools")).await.unwrap();
    let executor = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .registry(&registry)
        .sandbox_backend(SandboxBackend::Bubblewrap)
        .gateway_program(env!("CARGO_BIN_EXE_ipybox"))
        .start()
        .await
        .unwrap();
    executor.execute("x = 41").await.unwrap();
    assert_eq!(executor.execute("x + 1").await.unwrap().text.as_deref(), Some("42"));
    let beside = place.temporary().join("file");
    let error = executor.execute(&format!("open({:?}, 'w')", beside.to_str().unwrap())).await.unwrap_err();
    assert!(matches!(error, CodeExecutionError::Raised { .. }), "{error}");
    assert!(!beside.exists());
    let mut execution =
        executor.stream("from mcptools.probe import echo\nprint(echo.run(echo.Params(text='asked')))");
    while let Some(event) = execution.next().await {
        match event.unwrap() {
            CodeExecutionEvent::ApprovalRequest(request) => assert!(request.accept()),
            CodeExecutionEvent::Result(result) => assert_eq!(result.text.as_deref(), Some("asked")),
            _ => {}
        }
    }
    executor.reset().await.unwrap();
    assert!(executor.execute("x").await.unwrap_err().to_string().contains("NameError"));
    executor.stop().await;
    assert_eq!(names(&place.workspace()), [".ipybox", "mcptools"]);
}
