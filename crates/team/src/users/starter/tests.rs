use std::path::Path;

use super::*;

#[test]
fn a_session_is_kept_saved_logged_and_in_a_sandbox() {
    let starter = SessionStarter::new(PathBuf::from("ipybox"), SessionSettings::default());
    let place = UserPlace::at(Path::new("/users/a"));
    let arguments = starter.arguments(&place);
    let arguments: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
    assert_eq!(
        arguments,
        [
            "--workspace",
            "/users/a/workspace",
            "--state-dir",
            "/users/a/state",
            "--keep-session",
            "28800s",
            "--audit-log",
            "/users/a/audit/log.jsonl",
            "--checkpoint",
            "--sandbox",
            "--sandbox-backend",
            "bwrap",
            "--sandbox-hide",
            "/home",
            "--sandbox-hide",
            "/root",
            "--sandbox-hide",
            "/run",
            "--sandbox-hide",
            "/tmp",
            "--sandbox-hide",
            "/var/tmp",
        ]
    );
}
