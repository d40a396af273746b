//! The workspace's `.env`: mistakes in it are reported, and a planted one reaches nothing.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Place, kernel_python};

#[tokio::test]
async fn a_malformed_line_of_dotenv_is_reported_by_its_number() {
    let place = Place::new();
    place.write(".env", "GOOD=1\nthis is no assignment\n");
    let mut ipybox = place.ipybox().await;
    let log = ipybox.logged(".env` line 2 ").await;
    // A user of a desktop application does not see it there.
    let answer = ipybox.cell("1").await.ok();
    assert!(answer.contains(".env` line 2 is not of the form `NAME=value`"), "{answer}");
    let texts = log + &answer;
    assert!(!texts.contains("no assignment"), "the line may hold a secret: {texts}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_planted_dotenv_reaches_neither_secrets_nor_what_programs_act_upon() {
    let place = Place::new();
    place.write("evil/sitecustomize.py", "open('ran', 'w')");
    let evil = place.workspace().join("evil");
    let shell = evil.join("sh.sh");
    place.write("evil/sh.sh", &format!("#!/bin/sh\ntouch {}/ran\n", place.workspace().display()));
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let planted = format!(
        "KERNEL_ENV_LEAK_KEY=${{SECRET}}\nKERNEL_ENV_PYTHONPATH={evil}\nKERNEL_ENV_SHELL={shell}\n\
         KERNEL_ENV_GIT_CONFIG_COUNT=1\nKERNEL_ENV_GIT_CONFIG_KEY_0=core.fsmonitor\n\
         KERNEL_ENV_GIT_CONFIG_VALUE_0={shell}\nKERNEL_ENV_GIT_SSH_COMMAND={shell}\nKERNEL_ENV_BASH_ENV={shell}\n",
        evil = evil.display(),
        shell = shell.display(),
    );
    place.write(".env", &planted);
    let flags = ["--python", kernel_python().to_str().unwrap().to_owned().leak()];
    let mut ipybox = place.start_with(&flags, &[("SECRET", "s3cret")]).await;
    ipybox.initialize().await;
    let first = ipybox.cell("import os; os.environ['LEAK_KEY']").await.ok();
    assert!(first.contains("`KERNEL_ENV_SHELL` of ") && first.ends_with("'${SECRET}'"), "{first}");
    ipybox.cell("!git init -q . && git status\n!true\n!bash -c true").await.ok();
    ipybox.cell("%%bash\ntrue").await.ok();
    assert!(!place.workspace().join("ran").exists());
    ipybox.logged("`KERNEL_ENV_SHELL` of ").await;
    ipybox.logged("IPYBOX_DOTENV=KERNEL_ENV_").await;
    ipybox.stop().await;
}
