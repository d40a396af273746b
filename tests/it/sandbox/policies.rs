//! Policies of a sandbox: what they open, and those that are refused.

use serde_json::{Value, json};

use super::session::{BACKENDS, document, policy, start, temporary_files, uninitialized};
use crate::support::{Place, environment, eventually};

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
async fn a_policy_that_cannot_be_used_is_reported_before_anything_is_served() {
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

#[tokio::test]
async fn what_a_workspaces_own_policy_opens_is_allowed_by_its_user_first_and_again_after_a_change() {
    for backend in BACKENDS {
        let place = Place::new();
        let beside = place.temporary().parent().unwrap().join("beside");
        std::fs::create_dir_all(&beside).unwrap();
        let policy =
            |more: &str| document(&json!({}), &json!({"allowWrite": [".", beside], "denyWrite": [more]}));
        place.write("sandbox-config.json", &policy("a").to_string());
        let flags = ["--sandbox-workspace-config"];
        let refused = async || {
            let mut ipybox = uninitialized(&place, backend, &flags, &[]).await;
            assert_eq!(ipybox.ended().await.code(), Some(1), "{backend}");
            eventually("all of the log has come", || ipybox.log().contains("ipybox sandbox-policy")).await;
            assert!(ipybox.log().contains("filesystem.allowWrite"), "{backend}: {}", ipybox.log());
        };
        let look = |allow: &[&str]| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
            command.env_clear().envs(environment()).env("HOME", place.temporary()).arg("sandbox-policy");
            command.arg("--workspace").arg(place.workspace()).arg("--state-dir").arg(place.states());
            let output = command.args(allow).stdin(std::process::Stdio::null()).output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        refused().await;
        let (is_allowed, said) = look(&[]);
        assert!(!is_allowed && said.contains(beside.to_str().unwrap()), "{backend}: {said}");
        refused().await;
        assert!(look(&["--allow"]).0 && look(&[]).0, "{backend}");
        let mut ipybox = start(&place, backend, &flags).await;
        let first = ipybox.cell(&format!("open({:?}, 'w').write('x')", beside.join("file"))).await.ok();
        let note = "[the sandbox's policy is `sandbox-config.json` of the workspace]";
        assert!(first.starts_with(note) && first.ends_with('1'), "{backend}: {first}");
        ipybox.stop().await;
        place.write("sandbox-config.json", &policy("b").to_string());
        refused().await;
    }
}
