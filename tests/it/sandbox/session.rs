//! ipybox in a sandbox, for the tests of sandboxes.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, equipped, kernel_python};

pub(super) const BACKENDS: [&str; 2] = ["srt", "bwrap"];

/// ipybox with a sandbox and these flags beside, initialized.
pub(super) async fn start(place: &Place, backend: &str, flags: &[&str]) -> Ipybox {
    let mut ipybox = uninitialized(place, backend, flags, &[]).await;
    ipybox.initialize().await;
    ipybox
}

pub(super) async fn uninitialized(
    place: &Place,
    backend: &str,
    flags: &[&str],
    variables: &[(&str, &str)],
) -> Ipybox {
    let python = kernel_python();
    let own = ["--python", python.to_str().unwrap(), "--sandbox", "--sandbox-backend", backend];
    let path = equipped();
    place.start_with(&[&own, flags].concat(), &[&[("PATH", path.as_str())], variables].concat()).await
}

/// A policy's file in the place, outside the workspace; returns its path.
pub(super) fn policy(place: &Place, text: &Value) -> String {
    let path = place.temporary().parent().unwrap().join("policy.json");
    std::fs::write(&path, text.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

pub(super) fn document(network: &Value, filesystem: &Value) -> Value {
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
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(super) fn temporary_files(place: &Place) -> Vec<String> {
    names(&place.temporary())
}
