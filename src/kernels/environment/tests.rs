//! The room as a whole, with real interpreters.

use std::sync::Mutex;

use super::install::EnvironmentInstallError;
use super::probe::tests::venv;
use super::*;
use crate::ground::process::test_tool;

fn environment(facts: PythonFacts, path: &str) -> Environment {
    let installer = Installer::new(&Variables::default());
    Environment {
        facts,
        tool: InstallerTool::Pip,
        installer,
        lock: PathBuf::from("/nonexistent/lock"),
        workspace: PathBuf::from("/workspace"),
        path: path.to_owned(),
    }
}

fn check_path(path: &str, expected: &str) {
    let environment = environment(venv("/venv", None, None), path);
    assert_eq!(environment.variables()["PATH"], expected, "{path}");
}

#[test]
fn the_environments_programs_come_first() {
    check_path("", "/venv/bin");
    check_path("/usr/bin:/bin", "/venv/bin:/usr/bin:/bin");
    check_path("/usr/bin:/venv/bin::/bin", "/venv/bin:/usr/bin:/bin");
}

#[test]
fn an_interpreter_without_environment_has_two_directories_and_no_virtual_env() {
    let mut facts = venv("/opt/python", None, None);
    facts.details.is_venv = false;
    facts.details.has_pip = false;
    facts.details.executable = PathBuf::from("/usr/local/bin/python3");
    let variables = environment(facts, "/usr/bin").variables();
    assert_eq!(variables["PATH"], "/opt/python/bin:/usr/local/bin:/usr/bin");
    assert_eq!(variables["PIP_PYTHON"], "/usr/local/bin/python3");
    assert!(!variables.contains_key("VIRTUAL_ENV"));
}

/// A state directory of a workspace, and the progress that was reported.
struct State {
    directory: tempfile::TempDir,
    reported: Mutex<Vec<String>>,
}

impl State {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), reported: Mutex::default() }
    }

    async fn prepare(&self, python: Option<&str>, variables: Variables) -> Result<Environment, Error> {
        let settings = EnvironmentSettings {
            is_sandboxed: false,
            python: python.map(PathBuf::from),
            state_dir: self.directory.path().to_owned(),
            workspace: self.directory.path().to_owned(),
            variables: Arc::new(variables),
        };
        let progress = |line: &str| self.reported.lock().unwrap().push(line.to_owned());
        is_send(Environment::prepare(&settings, &progress)).await
    }

    fn reported(&self) -> String {
        self.reported.lock().unwrap().join("\n")
    }
}

/// Both long futures run in spawned tasks.
fn is_send<F: Future + Send>(future: F) -> F {
    future
}

/// The variables of the process that runs the tests, as the server would read them.
fn inherited() -> Variables {
    Variables::load(Path::new("/nonexistent"))
}

#[tokio::test]
async fn without_any_python_the_message_says_what_to_install() {
    let state = State::new();
    let error = state.prepare(None, Variables::from_pairs([("PATH", "/nonexistent")])).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::NoPython { .. }), "{message}");
    assert!(message.contains("install uv") && message.contains("--python"), "{message}");
}

/// A program in the state directory that says `output` and ends with `code`.
fn program(state: &State, name: &str, output: &str, code: u8) -> String {
    let program = state.directory.path().join(name);
    let text = format!("#!/bin/sh\necho '{output}' >&2\nexit {code}\n");
    // Written by a child: a file that we have open ourselves may be inherited by what another test
    // starts at that moment, and then cannot be run ("text file busy").
    let script = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let written = std::process::Command::new("sh").args(["-c", script]).arg(&program).arg(text).status();
    assert!(written.unwrap().success());
    program.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_python_without_venv_is_reported_with_the_package_that_completes_it() {
    let state = State::new();
    let mut facts = venv("/usr", None, None);
    facts.details.has_venv = false;
    program(&state, "python3", &serde_json::to_string(&facts).unwrap(), 0);
    let path = state.directory.path().to_str().unwrap();
    let error = state.prepare(None, Variables::from_pairs([("PATH", path)])).await.unwrap_err().to_string();
    assert!(error.contains("`/usr/bin/python` comes without `venv`"), "{error}");
    assert!(error.contains("apt install python3.12-venv"), "{error}");
}

#[tokio::test]
async fn a_uv_that_fails_is_reported_with_its_output() {
    let state = State::new();
    let uv = program(&state, "uv", "no network today", 2);
    let variables = Variables::from_pairs([("PATH", "/nonexistent"), ("UV", uv.as_str())]);
    let error = state.prepare(None, variables).await.unwrap_err().to_string();
    assert!(error.contains("`uv venv` failed: no network today"), "{error}");
    assert!(state.reported().contains("trying venv and pip"), "{}", state.reported());
}

#[tokio::test]
async fn an_unfinished_environment_is_made_again_and_what_it_held_is_named() {
    let state = State::new();
    let site_packages = state.directory.path().join("python/lib/python3.12/site-packages");
    std::fs::create_dir_all(site_packages.join("six-1.17.0.dist-info")).unwrap();
    state.prepare(None, Variables::default()).await.unwrap_err();
    assert_eq!(
        state.reported(),
        "the Python environment is made again, because its creation was interrupted; packages to install again: six"
    );
}

/// An environment that was complete with Python 3.12, and whose interpreter now says `facts`.
async fn check_changed(facts: impl FnOnce(&mut PythonFacts), expected: &str) {
    let state = State::new();
    let directory = state.directory.path().join("python");
    std::fs::create_dir_all(directory.join("bin")).unwrap();
    let python = directory.join("bin/python");
    let mut reported = venv(directory.to_str().unwrap(), Some("9.5.0"), Some("2.14.3"));
    program(&state, "python/bin/python", "", 0);
    RecordFile::new(state.directory.path().join("python.json"))
        .keep(&python, InstallerTool::Pip, &reported)
        .unwrap();
    facts(&mut reported);
    program(&state, "python/bin/python", &serde_json::to_string(&reported).unwrap(), 1);
    let prepared = state.prepare(None, Variables::default()).await;
    assert!(state.reported().starts_with(expected), "{} {prepared:?}", state.reported());
    assert_eq!(prepared.is_ok(), expected.is_empty());
}

#[tokio::test]
async fn a_changed_environment_is_kept_repaired_or_made_again() {
    check_changed(|_| (), "").await;
    check_changed(|facts| facts.version.2 += 1, "").await;
    check_changed(
        |facts| facts.details.pydantic = None,
        "repairing the Python environment, which lacks pydantic>=2.6",
    )
    .await;
    check_changed(
        |facts| facts.version.1 += 1,
        "the Python environment is made again, because its Python is of another version now",
    )
    .await;
}

#[tokio::test]
async fn a_missing_interpreter_is_named() {
    let state = State::new();
    let error = state.prepare(Some("/nonexistent/python"), inherited()).await.unwrap_err().to_string();
    assert!(
        error.starts_with("use `/nonexistent/python` as the kernel's Python: it does not exist"),
        "{error}"
    );
}

/// Needs PyPI; takes 3 s.
#[tokio::test]
async fn an_environment_is_made_repaired_and_recalled() {
    let Some(uv) = test_tool("bin/uv") else { return };
    let variables = || {
        let own = std::env::vars().filter(|(name, _)| name != "UV");
        Variables::from_pairs(own.chain([("UV".to_owned(), uv.display().to_string())]))
    };
    let state = State::new();
    let environment = state.prepare(None, variables()).await.unwrap();
    assert!(environment.python().starts_with(state.directory.path()));
    let six = ["six==1.16.0".to_owned()];
    let said = is_send(environment.install(&six, &|_| (), None)).await.unwrap();
    assert_eq!(said, "Installed six 1.16.0");
    let said = environment.install(&six, &|_| (), None).await.unwrap();
    assert_eq!(said, "Already there: six 1.16.0");

    // Recalled: not even uv is needed.
    state.reported.lock().unwrap().clear();
    let recalled = state.prepare(None, Variables::default()).await.unwrap();
    assert_eq!(recalled.facts, environment.facts);
    assert_eq!(state.reported(), "");

    // What the kernel needs was removed: repaired, and nothing else is lost.
    let ipython = environment.facts.details.ipython.as_ref().unwrap().path.as_ref().unwrap();
    std::fs::remove_dir_all(ipython).unwrap();
    state.prepare(None, variables()).await.unwrap();
    assert!(
        state.reported().contains("repairing the Python environment, which lacks ipython>=8"),
        "{}",
        state.reported()
    );
    assert!(ipython.exists());
    let site_packages = ipython.parent().unwrap();
    assert!(site_packages.join("six.py").exists());

    // Interrupted in the middle of an installation, which the installer takes for complete.
    let turn = lock::InstallTurn::wait(&environment.lock, &|_| ()).await.unwrap();
    turn.begin(environment.python()).unwrap();
    drop(turn);
    std::fs::remove_file(site_packages.join("six.py")).unwrap();
    let said = environment.install(&six, &|_| (), None).await.unwrap();
    let completed = "Completed the interrupted installation of `six==1.16.0`";
    assert_eq!(said, format!("{completed}\nAlready there: six 1.16.0"));
    assert!(site_packages.join("six.py").exists());
    assert_eq!(environment.install(&six, &|_| (), None).await.unwrap(), "Already there: six 1.16.0");

    let several = ["six==1.17.0".to_owned(), "nonexistent-package-of-nobody".to_owned()];
    let failed = environment.install(&several, &|_| (), None).await.unwrap_err();
    let end = "Not possible: `nonexistent-package-of-nobody`\nNone of the packages was installed";
    assert!(
        matches!(&failed, EnvironmentInstallError::Failed { output, .. } if output.ends_with(end)),
        "{failed}"
    );
    assert_eq!(environment.version_of("six").as_deref(), Some("1.16.0"));
    let failed =
        environment.install(&["pydantic<2".to_owned()], &|_| (), None).await.unwrap_err().to_string();
    let hint = "hint: ipybox itself requires ipython>=8 and pydantic>=2.6 in this environment; nothing has been changed";
    assert!(failed.ends_with(hint), "{failed}");
}
