//! Changes that wait, on the page.

use serde_json::{Value, json};

use super::{Visitor, start};
use crate::support::changes::copies;
use crate::support::{Browser, Ipybox, Place};

/// Has a copy of the session write a file that is there, and a new program.
async fn write_in_a_copy(ipybox: &mut Ipybox) {
    let code = "import os\nopen('a.txt', 'w').write('one\\nthree\\n')\n\
                open('run.sh', 'w').write('echo \\u202e\\n'); os.chmod('run.sh', 0o755)";
    ipybox.call("execute_ipython_cell", json!({"code": code, "session": "copy"})).await.ok();
}

/// The changes as the page shows them, once there are so many.
async fn waiting(visitor: &Visitor, count: usize) -> Value {
    loop {
        assert_eq!(visitor.post("changes", json!({})).await.status(), 200);
        let changes = visitor.scene().await["changes"].clone();
        let copies = changes["copies"].as_array().unwrap();
        if copies.iter().map(|copy| copy["changes"].as_array().unwrap().len()).sum::<usize>() == count {
            return changes;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn changes_are_shown_and_those_that_were_shown_are_applied_or_discarded() {
    let place = Place::new();
    place.write("a.txt", "one\ntwo\n");
    let log = place.temporary().join("audit.jsonl");
    let flags = ["--branch-files", "--audit-log", log.to_str().unwrap()];
    let (mut ipybox, url, code) = start(&place, &flags, json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    write_in_a_copy(&mut ipybox).await;
    let shown = waiting(&visitor, 2).await;
    let changes = &shown["copies"][0]["changes"];
    assert_eq!((&changes[0]["path"], &changes[0]["kind"]), (&json!("a.txt"), &json!("changed")), "{shown}");
    assert!(changes[0]["diff"].as_str().unwrap().contains("\n-two\n+three\n"), "{shown}");
    assert_eq!(changes[1]["marks"], json!([{"words": "program", "warning": true}]), "{shown}");
    assert!(changes[1]["diff"].as_str().unwrap().contains(r"+echo \u202e"), "{shown}");

    let copy = shown["copies"][0]["id"].clone();
    let answer = |revision: &Value, action: &str, places: Value| json!({"revision": revision, "copy": copy, "action": action, "changes": places});
    let revision = &shown["revision"];
    for (answer, status) in [
        (answer(&json!(77), "apply", json!(null)), 409),
        (answer(revision, "apply", json!([2])), 409),
        (answer(revision, "run", json!([0])), 422),
    ] {
        assert_eq!(visitor.post("settle", answer).await.status(), status);
    }
    // What code has changed since is not applied.
    let file = copies(&place)[0].join("files/run.sh");
    std::fs::write(&file, "rm -r ~\n").unwrap();
    assert_eq!(visitor.post("settle", answer(revision, "apply", json!(null))).await.status(), 200);
    let shown = waiting(&visitor, 1).await;
    let note = shown["note"].as_str().unwrap_or_default();
    assert_eq!(place.read("a.txt"), "one\nthree\n", "{note}");
    assert!(!place.workspace().join("run.sh").exists());
    assert_eq!(visitor.post("settle", answer(revision, "discard", json!([0]))).await.status(), 409);
    assert_eq!(visitor.post("settle", answer(&shown["revision"], "discard", json!([0]))).await.status(), 200);
    waiting(&visitor, 0).await;
    assert!(!file.exists());
    ipybox.stop().await;
    let lines = std::fs::read_to_string(log).unwrap();
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let settled: Vec<Value> = events.filter(|event| event["event"] == "changes").collect();
    let [applied, discarded] = &settled[..] else { panic!("{lines}") };
    assert_eq!((&applied["action"], &applied["via"]), (&json!("apply"), &json!("page")));
    assert_eq!((&applied["count"], &applied["refused"]), (&json!(1), &json!(1)));
    assert!(applied["files"]["a.txt"].as_str().unwrap().starts_with("File "), "{applied}");
    assert_eq!((&discarded["action"], &discarded["count"]), (&json!("discard"), &json!(1)));
}

#[tokio::test]
async fn a_browser_applies_one_file_and_discards_the_rest() {
    let place = Place::new();
    place.write("a.txt", "one\ntwo\n");
    let (mut ipybox, url, code) = start(&place, &["--branch-files"], json!({})).await;
    let mut browser = Browser::start();
    browser.enter(&url, &code).await;
    write_in_a_copy(&mut ipybox).await;
    ipybox.cell("1").await.ok();
    browser
        .run(
            "await page.waitForFunction(() => document.querySelectorAll('#copies li').length === 2);
             const mark = await page.$eval('#copies .mark.warning', (mark) => mark.textContent);
             if (mark !== 'program') throw new Error(mark);
             await page.click('#copies li:first-child summary');
             const added = await page.$eval('#copies li:first-child .diff .added', (line) => line.textContent);
             if (added !== '+three\\n') throw new Error(added);
             await page.focus('#copies li:first-child button');
             await page.keyboard.press('Enter');
             await page.waitForFunction(() => document.querySelectorAll('#copies li').length === 1);
             await page.focus('.copy > .answers button.deny');
             await page.keyboard.press('Enter');
             await page.waitForFunction(() => document.querySelectorAll('#copies li').length === 0);",
        )
        .await;
    assert_eq!(place.read("a.txt"), "one\nthree\n");
    assert!(!place.workspace().join("run.sh").exists());
    ipybox.stop().await;
}
