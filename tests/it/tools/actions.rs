//! `from mcptools import save`: functions that have worked are tested, and kept as actions.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, probe};

/// A function that calls a tool, and uses what else a session has.
pub(super) const TOTAL: &str = "from math import floor\nfrom mcptools import save\nfrom mcptools.probe import add\nEXTRA = 2\n\
    def half(value: float) -> int:\n    return floor(value / 2)\n\
    def total(numbers: list[int], start: int = 1) -> int:\n    'Add the numbers up.'\n\
    \x20   for number in numbers: start = add.run(a=start, b=number).total\n    return start + EXTRA + half(1.5)\n";

/// A session in which [`TOTAL`] has worked.
pub(super) async fn with_total(place: &Place) -> Ipybox {
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(ipybox.cell(&format!("{TOTAL}total([2, 3])")).await.ok(), "8");
    ipybox
}

/// The directory of an action in the state directory.
pub(super) fn saved(place: &Place, path: &str) -> PathBuf {
    let mut workspaces = std::fs::read_dir(place.states().join("workspaces")).unwrap();
    workspaces.next().unwrap().unwrap().path().join("actions").join(path)
}

/// The record of an action.
pub(super) fn record(place: &Place, path: &str) -> Value {
    let text = std::fs::read_to_string(saved(place, path).join("action.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["action"].take()
}

#[tokio::test]
async fn a_function_that_has_worked_is_tested_and_saved_with_all_that_it_uses() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    let answer = ipybox.cell("save(total, category='sums')").await.ok();
    assert!(
        answer.starts_with("saved `gentools.sums.total`, version 1, tested with 2 recorded calls\nfrom gentools.sums import total\n")
            && answer.ends_with("its example returned 8"),
        "{answer}"
    );
    let record = record(&place, "sums/total");
    assert_eq!(record["example"], json!({"numbers": [2, 3]}));
    assert_eq!(record["input_schema"]["properties"]["numbers"]["items"], json!({"type": "integer"}));
    assert_eq!(record["output_schema"], json!({"type": "integer"}));
    assert_eq!(record["summary"], "Add the numbers up.");
    assert!(record["servers"]["probe"]["add"].is_string() && record["test"]["passed"] == true, "{record:#}");
    for name in ["__init__.py", "api.py", "impl.py"] {
        let ours = std::fs::read(saved(&place, "sums/total/1").join(name)).unwrap();
        assert_eq!(ours, std::fs::read(place.workspace().join("gentools/sums/total").join(name)).unwrap());
    }
    ipybox.reset().await;
    let used = ipybox.cell("from gentools.sums import total\ntotal.run([1, 1], start=0)").await.ok();
    assert_eq!(used, "4");
    // The next version: the files of the one before stay.
    let code = format!("{}total([2, 3])", TOTAL.replace("EXTRA = 2", "EXTRA = 20"));
    assert_eq!(ipybox.cell(&code).await.ok(), "26");
    let answer = ipybox.cell("save(total, category='sums', example={'numbers': [3], 'start': 3})").await.ok();
    assert!(answer.contains("version 2, tested with 1 recorded call\n"), "{answer}");
    assert!(
        saved(&place, "sums/total/1/test.jsonl").exists() && saved(&place, "sums/total/2/api.py").exists()
    );
    assert_eq!(ipybox.cell("from gentools.sums import total\ntotal.run([1])").await.ok(), "22");
    ipybox.stop().await;
}

#[tokio::test]
async fn coroutines_and_packages_written_by_hand_are_saved_too() {
    let place = Place::new();
    let mut ipybox = with_total(&place).await;
    let code = "async def both(a: int, b: int = 5) -> list[int]:\n    'Two sums.'\n    import asyncio\n\
                \x20   sums = await asyncio.gather(add.run_async(a=a, b=b), add.run_async(a=b, b=a))\n    return [sum.total for sum in sums]\n\
                print(await both(1, b=6))\nprint(save(both, category='sums'))";
    let answer = ipybox.cell(code).await.ok();
    assert!(
        answer.contains("tested with 2 recorded calls") && answer.ends_with("returned [7, 7]"),
        "{answer}"
    );
    assert_eq!(record(&place, "sums/both")["is_async"], true);

    place.write("gentools/sums/twice/__init__.py", "from .api import Twice, run\n");
    place.write(
        "gentools/sums/twice/api.py",
        "\"\"\"Doubles.\"\"\"\n\nfrom pydantic import BaseModel\n\n\nclass Twice(BaseModel):\n    value: int\n\n\n\
         def run(twice: Twice) -> Twice:\n    \"\"\"Doubles a value.\"\"\"\n    from .impl import double\n\n    return double(twice)\n",
    );
    place.write(
        "gentools/sums/twice/impl.py",
        "from .api import Twice\n\n\ndef double(twice: Twice) -> Twice:\n    return Twice(value=2 * twice.value)\n",
    );
    let code = "import gentools.sums.twice\nsave(gentools.sums.twice, example={'twice': {'value': 4}})";
    let answer = ipybox.cell(code).await.ok();
    assert!(
        answer.contains("tested with 0 recorded calls") && answer.ends_with("returned Twice(value=8)"),
        "{answer}"
    );
    ipybox.stop().await;
}

#[tokio::test]
async fn what_cannot_be_saved_is_refused_with_what_would_help() {
    let place = Place::new();
    place.write("helpers.py", "def helped(): return 1");
    let mut ipybox = with_total(&place).await;
    let setup = "data = object()\ndef odd(x: int) -> int:\n    'Odd.'\n    return data\n\
                 def untyped(x): 'Untyped.'\n\
                 def helping(x: int) -> int:\n    'Helps.'\n    from helpers import helped\n    return helped()\n\
                 def other(x: int) -> int:\n    'Calls.'\n    return add.run(a=x, b=1).total\n\
                 def echo(x: int) -> int:\n    'Shadows.'\n    return x\n\
                 def failing(x: int) -> int:\n    'Fails.'\n    return 1 // x";
    ipybox.cell(setup).await.ok();
    for (code, words) in [
        ("save(failing, category='a', example={'x': 1}, publish=True)", "only `ipybox team` does"),
        ("save(lambda x: x, category='a')", "a lambda has no name"),
        ("save(untyped, category='a', example={'x': 1})", "the parameter `x` of `untyped` has no type"),
        (
            "save(odd, category='a', example={'x': 1})",
            "the variable `data` of the session, of type object: make it a parameter",
        ),
        ("save(total, category='../a')", "as a package name"),
        ("save(other, category='a')", "no cell calls `other` with values that are known"),
        (
            "save(other, category='a', example={'x': 41})",
            "`probe.add`: a call that the recording does not have",
        ),
        (
            "save(other, category='a', example={'x': 41})",
            "call the function in a cell with the arguments of the example",
        ),
        (
            "save(helping, category='a', example={'x': 1})",
            "its code needs `helpers`, which is in the workspace",
        ),
        ("save(failing, category='a', example={'x': 0})", "ZeroDivisionError"),
        ("save(echo, category='a', example={'x': 1})", "a tool of the MCP server `probe` has this name"),
    ] {
        let error = ipybox.cell(code).await.error();
        assert!(error.contains(words), "{code}: {error}");
    }
    assert!(!saved(&place, "").exists() && !place.workspace().join("gentools").exists());
    ipybox.cell("save(total, category='sums')").await.ok();
    let taken = ipybox.cell("save(total, category='reports')").await.error();
    assert!(taken.contains("`gentools.sums.total` has this name already"), "{taken}");
    ipybox.stop().await;
}
