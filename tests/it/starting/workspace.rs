//! The workspace: missing, vanished, or shared by two servers.

use std::process::Stdio;

use crate::support::{Place, environment, probe};

#[tokio::test]
async fn a_missing_workspace_is_created() {
    let place = Place::new();
    let workspace = place.workspace();
    std::fs::remove_dir(&workspace).unwrap();
    let status = tokio::process::Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .args(["--python", "/nonexistent/python", "--workspace"])
        .arg(workspace.join("a/b"))
        .arg("--state-dir")
        .arg(place.states())
        .env_clear()
        .envs(environment())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .unwrap();
    assert!(status.success(), "{status}");
    assert!(workspace.join("a/b").is_dir());
}

#[tokio::test]
async fn directories_that_vanish_are_made_again() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    let code = "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['PYTHONPATH'].split(':')[0]))";
    ipybox.cell(code).await.ok();
    ipybox.reset().await;
    let call = "from mcptools.probe import echo\necho.run(text='again')";
    assert_eq!(ipybox.cell(call).await.ok(), "'again'");
    std::fs::remove_dir_all(place.workspace()).unwrap();
    ipybox.reset().await;
    assert_eq!(ipybox.cell("import os; os.listdir()").await.ok(), "[]");
    ipybox.stop().await;
}

#[tokio::test]
async fn two_servers_in_one_workspace_do_not_disturb_each_other() {
    let place = Place::new();
    let (mut one, mut two) = (place.ipybox().await, place.ipybox().await);
    one.cell("x = 1").await.ok();
    two.cell("x = 2").await.ok();
    one.register("probe", probe()).await.ok();
    let code = "from mcptools.probe import echo\nprint(x, echo.run(echo.Params(text='hello')))";
    assert_eq!(two.cell(code).await.ok(), "2 hello");
    two.stop().await;
    assert_eq!(one.cell(code).await.ok(), "1 hello");
    one.stop().await;
}
