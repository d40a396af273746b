//! Actions that sandboxed sessions save: their tests have the same sandbox, also later.
#![cfg(target_os = "linux")]

use serde_json::json;

use super::actions::record;
use super::actions_found::tested;
use crate::support::{Place, equipped, kernel_python, repository};

/// A function that tries what must not work, with what has worked all the same.
const TRIES: &str = "from mcptools import save\ndef tries(workspace: str, hidden: str, shown: str) -> list[str]:\n    'Try what must not work.'\n\
    \x20   import io, os, socket\n    done = []\n\
    \x20   def attempt(name, action):\n        try:\n            if action():\n                done.append(name)\n        except OSError:\n            pass\n\
    \x20   attempt('secret', lambda: io.open(os.path.join(workspace, '.env')).read())\n\
    \x20   attempt('policy', lambda: io.open(hidden).read())\n\
    \x20   attempt('data', lambda: io.open(shown).read())\n\
    \x20   attempt('write', lambda: io.open(os.path.join(workspace, 'data.txt'), 'w') and None)\n\
    \x20   attempt('network', lambda: socket.create_connection(('192.0.2.1', 80), 1))\n    return done\n";

#[tokio::test]
async fn the_test_of_an_action_is_in_the_sandbox_of_its_session_and_keeps_its_policy() {
    let place = Place::new();
    place.write(".env", "API_KEY=the-secret-value\n");
    place.write("data.txt", "of the workspace");
    let hidden = repository().join("Cargo.toml");
    let policy = json!({
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {"denyRead": [hidden], "allowWrite": ["."], "denyWrite": []},
    });
    let file = place.temporary().join("policy.json");
    std::fs::write(&file, policy.to_string()).unwrap();
    let python = kernel_python();
    let flags = [
        "--python",
        python.to_str().unwrap(),
        "--sandbox",
        "--sandbox-backend",
        "bwrap",
        "--sandbox-config",
        file.to_str().unwrap(),
    ];
    let path = equipped();
    let mut ipybox = place.start_with(&flags, &[("PATH", path.as_str())]).await;
    ipybox.initialize().await;
    let workspace = place.workspace();
    let example = json!({"workspace": workspace, "hidden": hidden, "shown": repository().join("Cargo.lock")});
    let save = format!("{TRIES}save(tries, 'sums', {example})");
    let answer = ipybox.cell(&save).await.ok();
    assert!(answer.ends_with("its example returned ['data']"), "{answer}");
    assert_eq!(place.read("data.txt"), "of the workspace");
    ipybox.stop().await;

    let kept = record(&place, "sums/tries")["sandbox"].clone();
    assert_eq!((&kept["backend"], &kept["config"]), (&json!("bwrap"), &json!(file)));
    // Without the policy it would read one file more, and without a sandbox all of them.
    let (passed, listed) = tested(&place);
    assert!(passed && listed[0]["state"] == "usable", "{listed:?}");
    // A policy that is missing is never left out.
    std::fs::remove_file(&file).unwrap();
    let (is_well, _, error) =
        super::actions_found::actions(&place, &["test", "--python", python.to_str().unwrap()]);
    assert!(!is_well && error.contains("policy.json"), "{error}");
}
