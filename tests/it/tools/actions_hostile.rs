//! Actions that hostile code saves, or changes after they were saved.

use serde_json::json;

use super::actions::{record, saved, with_total};
use super::actions_found::{actions, tested};
use crate::support::{Place, kernel_python};

const SEARCH: &str = "from mcptools import search\nprint(search('add numbers up'))";

#[tokio::test]
async fn an_action_that_is_changed_in_the_workspace_is_not_found_and_its_saved_copy_stays() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    ipybox.cell("save(total, category='sums')").await.ok();
    let evil = "open('gentools/sums/total/impl.py', 'a').write('\\nimport os')";
    ipybox.cell(evil).await.ok();
    let found = ipybox.cell(SEARCH).await.ok();
    assert!(!found.contains("gentools"), "{found}");
    let (_, listed, _) = actions(&place, &["list"]);
    assert!(listed.contains("changed") && listed.contains("impl.py` is not as it was saved"), "{listed}");
    let kept = std::fs::read_to_string(saved(&place, "sums/total/1/impl.py")).unwrap();
    assert!(!kept.contains("import os"));
    // A link to the same text is no file of the workspace.
    let copy = "import os, shutil\nshutil.copytree('gentools/sums/total', 'copy')\nshutil.rmtree('gentools/sums/total')\n\
                os.symlink(os.path.abspath('copy'), 'gentools/sums/total')";
    ipybox.cell(copy).await.ok();
    assert!(!ipybox.cell(SEARCH).await.ok().contains("gentools"));
    // The link is replaced, and what it leads to is left alone.
    let again = ipybox.cell("save(total, category='sums')").await.ok();
    assert!(again.contains("version 2"), "{again}");
    assert!(!place.workspace().join("gentools/sums/total").is_symlink());
    assert!(place.read("copy/impl.py").contains("import os"));
    assert!(ipybox.cell(SEARCH).await.ok().contains("from gentools.sums import total"));
    // A link in place of the category leads nowhere.
    let link = "import shutil\nshutil.move('gentools/sums', 'away')\nos.symlink(os.path.abspath('away'), 'gentools/sums')";
    ipybox.cell(link).await.ok();
    let error = ipybox.cell("save(total, category='sums')").await.error();
    assert!(error.contains("symbolic link"), "{error}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_edited_recording_is_red_and_named() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    ipybox.cell("save(total, category='sums')").await.ok();
    let test = saved(&place, "sums/total/1/test.jsonl");
    let text = std::fs::read_to_string(&test).unwrap();
    std::fs::write(&test, text.replace("\"8\"", "\"9\"")).unwrap();
    assert!(!ipybox.cell(SEARCH).await.ok().contains("gentools"));
    let (passed, listed) = tested(&place);
    assert!(!passed && listed[0]["state"] == "red", "{listed:?}");
    assert!(
        listed[0]["why"].as_str().unwrap().contains("test.jsonl` cannot be used: it was edited"),
        "{listed:?}"
    );
    ipybox.stop().await;
}

#[tokio::test]
async fn code_cannot_save_what_the_function_of_ipybox_would_not() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    let setup = "from ipybox_runtime import ask_host\nfiles = {name: '' for name in ('__init__.py', 'api.py', 'impl.py')}\n\
                 draft = dict(category='sums', name='x', files=files, description='X.', signature='()', is_async=False, \
                 input_schema={}, output_schema=None, example={})";
    ipybox.cell(setup).await.ok();
    for (change, words) in [
        ("category='../../evil'", "as a package name"),
        ("name='..'", "as a package name"),
        ("files={**files, '../../evil.py': ''}", "no others"),
        ("files={**files, 'impl.py': 'x' * 300_000}", "`impl.py` has more than"),
        ("files={**files, 'impl.py': 'x' * 3_000_000}", "413"),
        ("name='echo'", "a tool of the MCP server `probe` has this name"),
        ("worked=100", "unknown field"),
        ("name='y'", "its test has not passed: ImportError"),
    ] {
        let error = ipybox.cell(&format!("ask_host('/save', {{**draft, **dict({change})}})")).await.error();
        assert!(error.contains(words), "{change}: {error}");
    }
    assert!(!saved(&place, "").exists() && !place.workspace().join("gentools").exists());
    ipybox.stop().await;
}

#[tokio::test]
async fn nothing_is_saved_without_a_decision() {
    let place = Place::new();
    let python = kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--approval", "ask", "--approval-timeout", "300"];
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize_with(json!({"elicitation": {}})).await;
    let function =
        "from mcptools import save\ndef twice(x: int) -> int:\n    'Double.'\n    return 2 * x\ntwice(4)";
    ipybox.cell(function).await.ok();
    let saving =
        ipybox.start_call("execute_ipython_cell", json!({"code": "save(twice, category='sums')"})).await;
    let question = ipybox.question().await;
    let message = question["params"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("Save this action?") && message.contains("return 2 * x"), "{message}");
    ipybox.respond(&question, json!({"action": "decline"})).await;
    let error = saving.answer().await.error();
    assert!(error.contains("`ipybox.save_action` was rejected"), "{error}");
    assert!(!saved(&place, "sums").exists() && !place.workspace().join("gentools").exists());

    let saving =
        ipybox.start_call("execute_ipython_cell", json!({"code": "save(twice, category='sums')"})).await;
    ipybox.decide("allow once").await;
    saving.answer().await.ok();
    assert_eq!(record(&place, "sums/twice")["version"], 1);
    let changed = function.replace("2 * x", "x + x");
    ipybox.cell(&changed).await.ok();
    let saving =
        ipybox.start_call("execute_ipython_cell", json!({"code": "save(twice, category='sums')"})).await;
    let question = ipybox.question().await;
    let message = question["params"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("-     return 2 * x") && message.contains("+     return x + x"), "{message}");
    ipybox.respond(&question, json!({"action": "decline"})).await;
    saving.answer().await.error();
    assert_eq!(record(&place, "sums/twice")["version"], 1);
    ipybox.stop().await;
}

#[tokio::test]
async fn an_action_has_no_more_rights_than_the_cell_that_calls_it() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    ipybox.cell("save(total, category='sums')").await.ok();
    ipybox.stop().await;
    let python = kernel_python();
    let mut denied = place.start(&["--python", python.to_str().unwrap(), "--approval", "deny"]).await;
    denied.initialize().await;
    let error = denied.cell("from gentools.sums import total\ntotal.run([1])").await.error();
    assert!(error.contains("`probe.add` is denied by the approval policy"), "{error}");
    let function = "from mcptools import save\ndef twice(x: int) -> int:\n    'Double.'\n    return 2 * x\nsave(twice, 'sums', {'x': 1})";
    let error = denied.cell(function).await.error();
    assert!(error.contains("`ipybox.save_action` is denied by the approval policy"), "{error}");
    assert!(!saved(&place, "sums/twice").exists());
    denied.stop().await;
}
