//! Notebooks that `--notebook` has written are replayed as far as they go.

use std::path::PathBuf;

use serde_json::Value;

use super::replaying::{edited, kinds, replay_with, report, results};
use crate::support::{Ipybox, Place, kernel_python, probe};

async fn writing(place: &Place) -> Ipybox {
    let python = kernel_python();
    let mut ipybox = place.start(&["--python", python.to_str().unwrap(), "--notebook", "run.ipynb"]).await;
    ipybox.initialize().await;
    ipybox
}

fn notebook(place: &Place) -> PathBuf {
    let file = place.temporary().join("run.ipynb");
    std::fs::copy(place.workspace().join("run.ipynb"), &file).unwrap();
    file
}

#[tokio::test]
async fn cells_of_a_notebook_give_the_same_outputs_again() {
    let place = Place::new();
    let mut ipybox = writing(&place).await;
    ipybox.cell("x = 1\nprint('one')\nx + 1").await.ok();
    ipybox
        .cell("from IPython.display import JSON, display\ndisplay(JSON({'b': [1, 2], 'a': 'ü'}))\nprint(x)")
        .await
        .ok();
    ipybox.cell("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()").await.ok();
    ipybox.cell("1 / 0").await.error();
    ipybox
        .call("execute_ipython_cell", serde_json::json!({"code": "while True: pass", "timeout": 1}))
        .await
        .error();
    ipybox.reset().await;
    ipybox.cell("print('x' in globals())").await.ok();
    ipybox.stop().await;
    let file = notebook(&place);
    let same = report(&place, &file, &[]).await;
    assert_eq!(results(&same), ["same", "same", "same", "same", "not_run", "same"], "{same:#}");
    assert!(same["notes"].to_string().contains("a notebook has no seed"), "{same:#}");
    let other = edited(&file, "print('one')", "print('two')");
    let other = report(&place, &other, &[]).await;
    assert_eq!((results(&other)[0], kinds(&other, 0)), ("different", vec!["output"]), "{other:#}");
}

#[tokio::test]
async fn calls_of_a_notebook_go_to_living_servers_or_nowhere() {
    let place = Place::new();
    let mut ipybox = writing(&place).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox
        .cell("from mcptools.probe import add, echo\nprint(echo.run(text='a'), add.run(a=1).total)")
        .await
        .ok();
    ipybox.cell("print(2)").await.ok();
    ipybox.stop().await;
    let file = notebook(&place);
    let strict = report(&place, &file, &[]).await;
    assert_eq!(
        (results(&strict), kinds(&strict, 0)),
        (vec!["different"], vec!["left_out_answer"]),
        "{strict:#}"
    );
    assert!(strict["cells"][0].to_string().contains("a notebook has no answers"), "{strict:#}");
    let live = report(&place, &file, &["--mode", "live"]).await;
    assert_eq!((results(&live), &live["cells"][0]["calls"]), (vec!["same"; 2], &2.into()), "{live:#}");
    let reads = report(&place, &file, &["--mode", "reads"]).await;
    assert!(kinds(&reads, 0).contains(&"left_out_answer"), "{reads:#}");
    let another = edited(&file, "echo.run(text='a')", "echo.run(text='b')");
    let another = report(&place, &another, &["--mode", "live"]).await;
    assert!(kinds(&another, 0).contains(&"unknown_call"), "{another:#}");
}

#[tokio::test]
async fn foreign_cells_of_a_notebook_are_named() {
    let place = Place::new();
    let mut ipybox = writing(&place).await;
    ipybox.cell("x = 1").await.ok();
    ipybox.cell("x = 2").await.ok();
    ipybox.stop().await;
    let file = notebook(&place);
    let mut foreign: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let cells = foreign["cells"].as_array_mut().unwrap();
    cells.last_mut().unwrap()["metadata"] = serde_json::json!({});
    std::fs::write(&file, foreign.to_string()).unwrap();
    let output = replay_with(&place, &file, &[], &[]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("cell 2: ipybox has not run it"), "{error}");
}
