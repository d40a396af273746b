//! Saved actions that use other saved actions, and parsers in `mcpparse/`.

use serde_json::{Value, json};

use super::actions::{record, saved, with_total};
use super::actions_found::{actions, tested};
use super::actions_served::{result, run, serve};
use crate::support::{Ipybox, Place, kernel_python};

const PARSER: &str = "from mcptools.probe import echo\n\n\ndef run_parsed(text: str) -> list[str]:\n    return echo.run(text=text).split()\n";

/// A function that uses the saved action `total`, and a parser.
const COUNTED: &str = "from gentools.sums import total as summed\nfrom mcpparse.probe.echo import run_parsed\n\
    def counted(text: str) -> int:\n    'Add up the numbers of a text.'\n    return summed.run([int(part) for part in run_parsed(text)])\n";

const SAVE: &str = "save(counted, category='sums')";

/// A session that has saved `total`, and `counted`, which uses it.
async fn with_counted(place: &Place) -> Ipybox {
    let mut ipybox = with_total(place).await;
    ipybox.cell("save(total, category='sums')").await.ok();
    place.write("mcpparse/probe/echo.py", PARSER);
    assert_eq!(ipybox.cell(&format!("{COUNTED}counted('2 3')")).await.ok(), "8");
    let answer = ipybox.cell(SAVE).await.ok();
    assert!(
        answer.contains("version 1, tested with 3 recorded calls") && answer.ends_with("returned 8"),
        "{answer}"
    );
    ipybox
}

/// The state of an action, and why it is so.
fn state(place: &Place, name: &str) -> (String, String) {
    let (_, text, error) = actions(place, &["list", "--json"]);
    let listed: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {error}"));
    let action = listed.as_array().unwrap().iter().find(|action| action["name"] == name).unwrap();
    (action["state"].as_str().unwrap().to_owned(), action["why"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_action_that_uses_another_works_in_cells_served_and_exported() {
    let place = Place::new();
    let mut ipybox = with_counted(&place).await;
    let record = record(&place, "sums/counted");
    assert_eq!(record["uses"]["total"]["version"], 1, "{record:#}");
    assert!(record["files"]["mcpparse.probe.echo.py"].is_string(), "{record:#}");
    assert!(record["servers"]["probe"]["add"].is_string() && record["servers"]["probe"]["echo"].is_string());
    ipybox.reset().await;
    let used = ipybox.cell("from gentools.sums import counted\ncounted.run('4 5')").await.ok();
    assert_eq!(used, "12");
    ipybox.stop().await;
    let (_, shown, _) = actions(&place, &["show", "counted"]);
    assert!(
        shown.contains("uses total, version 1\n") && shown.contains("# mcpparse.probe.echo.py\n"),
        "{shown}"
    );

    let python = kernel_python();
    let file = place.temporary().join("counted.py");
    let flags = ["-o", file.to_str().unwrap(), "--python", python.to_str().unwrap()];
    let (is_well, _, error) = actions(&place, &[&["export", "counted"][..], &flags].concat());
    assert!(is_well, "{error}");
    let done = run(&place, &file, &["--text", "4 5"], &[]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "12\n", "{}", String::from_utf8_lossy(&done.stderr));

    // Copies of the workspace, which code can change, are not used.
    place.write("gentools/sums/total/impl.py", "raise SystemExit('changed')");
    place.write("mcpparse/probe/echo.py", "raise SystemExit('changed')");
    let mut served = serve(&place).await;
    let answer = result(&mut served, "counted", json!({"text": "4 5"})).await;
    assert_eq!(answer["structuredContent"], json!({"result": 12}), "{answer}");
    served.stop().await;
}

#[tokio::test]
async fn an_action_is_left_out_while_one_that_it_uses_is_another_one() {
    let place = Place::new();
    let mut ipybox = with_counted(&place).await;
    let search = "from mcptools import search\nprint(search('add up the numbers of a text'))";
    assert!(ipybox.cell(search).await.ok().contains("counted.run"));
    place.write("mcpparse/probe/echo.py", "changed = 1");
    let (word, why) = state(&place, "counted");
    assert!(
        word == "changed" && why.contains("`mcpparse/probe/echo.py` is not as it was saved"),
        "{word} {why}"
    );
    assert!(!ipybox.cell(search).await.ok().contains("counted"));
    // No hint offers what a search leaves out.
    let error = ipybox.cell("del counted\ncounted").await.error();
    assert!(!error.contains("saved action"), "{error}");
    place.write("mcpparse/probe/echo.py", PARSER);
    let error = ipybox.cell("counted").await.error();
    assert!(error.contains("`from gentools.sums import counted` is a saved action"), "{error}");

    place.write("gentools/sums/total/impl.py", "changed = 1");
    let (word, why) = state(&place, "counted");
    assert!(
        word == "drifted" && why.contains("`gentools.sums.total`, which it uses, is changed"),
        "{word} {why}"
    );
    let answer = ipybox.cell("save(total, category='sums')").await.ok();
    assert!(answer.contains("version 2"), "{answer}");
    let (word, why) = state(&place, "counted");
    assert!(
        word == "drifted" && why == "`gentools.sums.total`, which it uses, was saved anew",
        "{word} {why}"
    );
    assert!(!ipybox.cell(search).await.ok().contains("counted"));
    let (passed, listed) = tested(&place);
    assert!(passed && listed.iter().all(|action| action["state"] == "usable"), "{listed:?}");
    assert_eq!(record(&place, "sums/counted")["uses"]["total"]["version"], 2);
    assert!(ipybox.cell(search).await.ok().contains("counted.run"));

    actions(&place, &["remove", "total"]);
    let (word, why) = state(&place, "counted");
    assert!(
        word == "drifted" && why == "the saved action `total`, which it uses, is removed",
        "{word} {why}"
    );
    ipybox.stop().await;
}

#[tokio::test]
async fn an_action_uses_only_what_is_saved_and_never_itself() {
    let place = Place::new();
    let mut ipybox = with_counted(&place).await;
    place.write("gentools/sums/loose/__init__.py", "def run() -> int: return 1\n");
    let code = "from gentools.sums import loose\ndef outer() -> int:\n    'Uses it.'\n    return loose.run()\n\
                outer()\nsave(outer, category='sums')";
    let error = ipybox.cell(code).await.error();
    assert!(
        error.contains("it uses `gentools.sums.loose`, which is no saved action: save that one first"),
        "{error}"
    );
    let circle = "def total(numbers: list[int]) -> int:\n    'Add the numbers up.'\n    from gentools.sums.counted import run\n\
                  \x20   return run('1') if len(numbers) > 9 else 1\ntotal([1])\nsave(total, category='sums')";
    let error = ipybox.cell(circle).await.error();
    assert!(error.contains("an action cannot use itself"), "{error}");
    place.write("gentools/sums/total/impl.py", "changed = 1");
    let error = ipybox.cell(SAVE).await.error();
    assert!(error.contains("it uses `gentools.sums.total`, which is changed"), "{error}");
    assert!(!saved(&place, "sums/outer").exists() && !saved(&place, "sums/total/2").exists());
    assert!(!saved(&place, "sums/counted/2").exists());
    ipybox.stop().await;
}
