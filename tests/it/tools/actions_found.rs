//! Saved actions are found by `search` as long as they can be used, and the commands for them.

use std::process::Command;

use serde_json::{Value, json};

use super::actions::{record, with_total};
use crate::support::{Place, environment, kernel_python, probe};

/// The success, stdout and stderr of `ipybox actions`.
pub(super) fn actions(place: &Place, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipybox"));
    command.arg("actions").args(arguments).arg("--workspace").arg(place.workspace());
    command.arg("--state-dir").arg(place.states()).env_clear().envs(environment());
    let output = command.env("TMPDIR", place.temporary()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// The tests of all actions again: whether they have passed, and the actions.
pub(super) fn tested(place: &Place) -> (bool, Vec<Value>) {
    let python = kernel_python();
    let (passed, text, error) = actions(place, &["test", "--json", "--python", python.to_str().unwrap()]);
    (passed, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {error}")))
}

#[tokio::test]
async fn a_saved_action_is_found_and_counted_by_the_cells_that_call_it() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    ipybox.cell("save(total, category='sums')").await.ok();
    let search = "from mcptools import search\nsearch('add numbers up')";
    let found = ipybox.cell(search).await.ok();
    let line = "total.run(numbers: list[int], start: int=1) -> int  # Add the numbers up.";
    assert!(found.contains("from gentools.sums import total\n") && found.contains(line), "{found}");
    assert!(found.contains("of 8 tools fit") && found.contains("# 1 of 1 saved actions fit"), "{found}");
    // The tool of the name that is asked for is explained all the same, and first.
    let add = ipybox.cell("search('add', limit=1)").await.ok();
    assert!(add.starts_with("from mcptools import probe\nprobe.add"), "{add}");
    // Two cells that work, one that does not, and code that only says so.
    ipybox.cell("from gentools.sums import total as saved\nsaved.run([1])\nsaved.run([2])").await.ok();
    ipybox.cell("saved.run([3])").await.ok();
    ipybox.cell("saved.run(['x'])").await.error();
    ipybox.cell("print('total.run worked')\n'saved.run([1]) worked 100 times'").await.ok();
    let found = ipybox.cell("search('add numbers up')").await.ok();
    assert!(found.contains("Add the numbers up. (worked 2 times)"), "{found}");
    let listed = ipybox.cell("print(search(''))").await.ok();
    assert!(listed.contains("1 saved actions: gentools.sums.total"), "{listed}");
    for (code, words) in [
        ("del total\ntotal", "`from gentools.sums import total` is a saved action: `total.run(...)`"),
        ("from gentools.sums import totl", "`from gentools.sums import total` is a saved action"),
    ] {
        let error = ipybox.cell(code).await.error();
        assert!(error.contains(words), "{code}: {error}");
    }
    ipybox.stop().await;
    let (is_well, listed, _) = actions(&place, &["list"]);
    assert!(
        is_well && listed.starts_with("sums.total (usable, version 1, worked 2, failed 1)\n"),
        "{listed}"
    );
    let (_, shown, _) = actions(&place, &["show", "total"]);
    assert!(
        shown.contains("from gentools.sums import total\ntotal.run(") && shown.contains("calls probe: add"),
        "{shown}"
    );
    let (is_well, _, error) = actions(&place, &["show", "totl"]);
    assert!(!is_well && error.ends_with("did you mean `total`?"), "{error}");
    assert_eq!(actions(&place, &["remove", "total"]).1, "`total` is removed.");
    assert!(!place.workspace().join("gentools/sums/total").exists());
    assert!(actions(&place, &["list"]).1.starts_with("No action is saved"));
}

#[tokio::test]
async fn a_tool_that_has_changed_takes_its_actions_out_of_search_until_their_tests_pass() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    ipybox.cell("save(total, category='sums')").await.ok();
    let server = |description: &str| {
        let code = format!(
            "from mcp.server.fastmcp import FastMCP\nserver = FastMCP('s', log_level='ERROR')\n\
             from pydantic import BaseModel\nclass Sum(BaseModel):\n    total: int\n    terms: list[int]\n\
             @server.tool(description={description:?})\ndef add(a: int, b: int = 5) -> Sum: ...\nserver.run()"
        );
        json!({"command": crate::support::tool("mcp1/bin/python"), "args": ["-c", code]})
    };
    ipybox.register("probe", server("Adds anew.")).await.ok();
    let search = "from mcptools import search\nsearch('add numbers up')";
    let found = ipybox.cell(search).await.ok();
    assert!(!found.contains("gentools"), "{found}");
    let (_, listed, _) = actions(&place, &["list"]);
    assert!(
        listed.contains("drifted") && listed.contains("`probe.add` is defined in another way"),
        "{listed}"
    );
    let before = record(&place, "sums/total")["servers"].clone();
    let (passed, tested) = tested(&place);
    assert!(passed && tested[0]["state"] == "usable", "{tested:?}");
    assert_ne!(record(&place, "sums/total")["servers"], before);
    let found = ipybox.cell("search('add numbers up')").await.ok();
    assert!(found.contains("from gentools.sums import total\n"), "{found}");
    ipybox.register("probe", probe()).await.ok();
    assert!(!ipybox.cell("search('add numbers up')").await.ok().contains("gentools"));
    ipybox.stop().await;
}
