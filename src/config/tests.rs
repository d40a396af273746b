//! Settings that are made usable, or refused.

use super::*;

fn config(workspace: &Path, states: &Path) -> Config {
    let settings = Settings {
        workspace: workspace.to_owned(),
        state_dir: Some(states.to_owned()),
        ..Settings::default()
    };
    Config::new(settings).unwrap()
}

#[test]
fn a_workspace_has_the_same_state_however_it_is_named() {
    let root = tempfile::tempdir().unwrap();
    let states = root.path().join("states");
    let first = config(&root.path().join("a/work"), &states);
    std::os::unix::fs::symlink(root.path().join("a"), root.path().join("b")).unwrap();
    assert_eq!(config(&root.path().join("b/work"), &states).state_dir, first.state_dir);
    assert_ne!(config(&root.path().join("c/work"), &states).state_dir, first.state_dir);
}

#[test]
fn only_the_user_enters_the_state_directory() {
    use std::os::unix::fs::PermissionsExt as _;

    let root = tempfile::tempdir().unwrap();
    let config = config(&root.path().join("work"), &root.path().join("states"));
    assert_eq!(std::fs::metadata(config.state_dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn shell_commands_are_required_only_if_they_ask() {
    let mut settings = Settings::default();
    settings.kernel.require_shell_escape = true;
    assert!(matches!(Config::new(settings), Err(Error::EscapeWithoutApproval)));
}

#[test]
fn a_jupyter_server_has_kernels_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let check = |change: fn(&mut Settings)| {
        let mut settings = Settings {
            workspace: place.path().join("work"),
            state_dir: Some(place.path().join("states")),
            remote: Some(RemoteSettings::new("http://localhost:8888/")),
            ..Settings::default()
        };
        change(&mut settings);
        Config::new(settings)
    };
    assert_eq!(check(|_| {}).unwrap().tool_server_address(), None);
    let with_python = check(|settings| settings.kernel.python = Some("python3".into()));
    assert!(matches!(with_python, Err(Error::NotRemote { .. })));
    let with_checkpoint = check(|settings| settings.kernel.checkpoint = true);
    assert!(matches!(with_checkpoint, Err(Error::NotRemote { .. })));
    let token = check(|settings| {
        let remote = settings.remote.as_mut().unwrap();
        remote.token = Some("secret".to_owned());
        assert!(!format!("{remote:?}").contains("secret"));
        remote.token_env = Some("not a name: secret".to_owned());
        remote.token = None;
    });
    let error = token.unwrap_err().to_string();
    assert!(error.contains("not the token") && !error.contains("secret"), "{error}");
}

#[test]
fn a_file_in_place_of_the_workspace_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = Settings { workspace: file.path().to_owned(), ..Settings::default() };
    let error = Config::new(settings).unwrap_err();
    assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
}
