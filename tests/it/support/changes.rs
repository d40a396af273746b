//! `ipybox changes`, and the copies of workspaces that it knows.

use std::process::{Command, Output};

use serde_json::json;

use super::{Ipybox, PATIENCE, Place, environment};

/// `ipybox changes` with these arguments.
pub(crate) fn changes(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.env_clear().envs(environment()).arg("changes").args(arguments);
    command.arg("--workspace").arg(place.workspace()).arg("--state-dir").arg(place.states());
    command.output().unwrap()
}

/// The output of one that succeeds.
pub(crate) fn shown(place: &Place, arguments: &[&str]) -> String {
    let output = changes(place, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The messages of one that refuses something.
pub(crate) fn refused(place: &Place, arguments: &[&str]) -> String {
    let output = changes(place, arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The directories of copies in the state directory.
pub(crate) fn copies(place: &Place) -> Vec<std::path::PathBuf> {
    let workspaces = place.states().join("workspaces").read_dir().unwrap();
    let copies = workspaces.filter_map(|entry| entry.unwrap().path().join("changes").read_dir().ok());
    copies.flatten().map(|entry| entry.unwrap().path()).collect()
}

/// The answer of a cell that says that changes wait: this one, or a later one, since looks for them may take long.
pub(crate) async fn told(ipybox: &mut Ipybox, session: Option<&str>, mut text: String) -> String {
    let begun = std::time::Instant::now();
    while !text.contains("there until the user applies them") {
        assert!(begun.elapsed() < PATIENCE, "no answer says that changes wait: {text}");
        text = ipybox.call("execute_ipython_cell", json!({"code": "None", "session": session})).await.ok();
    }
    text
}
