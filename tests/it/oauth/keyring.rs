//! The system's keyring: a real one on a session bus of the test's own.

use std::process::Command;

use super::*;
use crate::support::Place;

#[tokio::test]
#[cfg(target_os = "linux")]
async fn tokens_are_in_the_keyring_where_there_is_one() {
    let (place, behind) = (Place::new(), Behind::sdk(&[]));
    let home = tempfile::tempdir().unwrap();
    let script = format!(
        "echo -n secret | gnome-keyring-daemon --unlock --components=secrets >/dev/null && \
         {ipybox} login {url} {places} && {ipybox} servers --json {places} && ls {states}/workspaces/*/ && \
         {ipybox} logout {url} {places} && {ipybox} logout {url} {places}",
        ipybox = env!("CARGO_BIN_EXE_ipybox"),
        url = behind.url,
        places = format_args!(
            "--workspace {} --state-dir {}",
            place.workspace().display(),
            place.states().display()
        ),
        states = place.states().display(),
    );
    let mut command = Command::new("dbus-run-session");
    command
        .args(["--", "sh", "-c", &script])
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .env("BROWSER", browser())
        .env_remove("DBUS_SESSION_BUS_ADDRESS")
        .env_remove("IPYBOX_KEYRING");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("is forgotten") && printed.contains("was not there"), "{printed}");
    assert!(!printed.contains("secrets.json"), "{printed}");
    let mut tokens = Vec::new();
    collect_tokens(&behind.log().await, &mut tokens);
    let kept = place.everything_in_states();
    assert!(tokens.iter().all(|token| !kept.contains(token)), "{kept}");
}
