use std::path::Path;

use serde_json::json;

use super::*;
use crate::config::UserSettings;
use crate::users::{UserLimits, UserSystem};

const SYSTEM: UserSystem = UserSystem {
    make_groups: |_, _, _: &UserLimits| Ok(Vec::new()),
    remove_groups: |_| {},
    remove_tree: |_| Ok(()),
};

/// The note about the second version.
const FIRST: &str = "it replaces version 1, which ann has published and fay allowed";

fn check(action: &Map<String, Value>) -> Result<CheckedAction, String> {
    let word = |key: &str| action[key].as_str().unwrap().to_owned();
    match word("name").as_str() {
        "bad" => Err("it is bad".to_owned()),
        _ => Ok(CheckedAction { category: word("category"), name: word("name") }),
    }
}

fn accounts(root: &Path) -> UserAccounts {
    UserAccounts::open(root, &UserSettings { share_id: true, ..UserSettings::default() }, SYSTEM).unwrap()
}

fn open(root: &Path, allowed: &[&str]) -> TeamActions {
    let table = toml::from_str("approver = 'group:a'").unwrap();
    TeamActions::open(&accounts(root), table, check, |question, digest| {
        digest == "d" && allowed.contains(&question)
    })
    .unwrap()
}

fn action(category: &str, name: &str, code: &str) -> Map<String, Value> {
    let Value::Object(action) = json!({"category": category, "name": name, "code": code}) else { panic!() };
    action
}

fn file(question: &str, code: &str) -> PublishedFile {
    PublishedFile {
        question: question.to_owned(),
        digest: "d".to_owned(),
        time: 5,
        publisher: "ann".to_owned(),
        by: "fay".to_owned(),
        action: action("sums", "total", code),
    }
}

/// The versions of the action, with their code.
fn versions(root: &Path) -> Vec<(u32, String)> {
    let kept = KeptActions::in_directory(root.join("actions"));
    let newest = kept.newest("total").unwrap().map_or(0, |newest| newest.version);
    let code = |version| kept.action("total", version).unwrap()["code"].as_str().unwrap().to_owned();
    (1..=newest).map(|version| (version, code(version))).collect()
}

#[test]
fn each_allowed_version_is_kept_and_readers_can_read_it() {
    let root = tempfile::tempdir().unwrap();
    let actions = open(root.path(), &[]);
    assert_eq!(actions.look_at(&action("sums", "total", "")), Ok(None));
    actions.publish(file("a", "one"), None, || Ok(())).unwrap();
    actions.publish(file("b", "two"), Some(FIRST), || Ok(())).unwrap();
    assert_eq!(versions(root.path()), [(1, "one".to_owned()), (2, "two".to_owned())]);
    let note = actions.look_at(&action("sums", "total", "")).unwrap().unwrap();
    assert_eq!(note, "it replaces version 2, which ann has published and fay allowed");
    let taken = actions.look_at(&action("other", "total", "")).unwrap_err();
    assert_eq!(taken, "`sums.total` is published already: choose another name");
    assert_eq!(actions.look_at(&action("sums", "bad", "")), Err("it is bad".to_owned()));
    let mode = |path: &str| std::fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("actions/total"), mode("actions/total/2.json")), (0o755, 0o644));
    let kept = KeptActions::in_directory(root.path().join("actions"));
    assert_eq!(kept.all().unwrap().len(), 1);
    kept.remove("total").unwrap();
    assert_eq!((kept.all().unwrap(), versions(root.path())), (Vec::new(), Vec::new()));
    assert_eq!(std::fs::read_dir(root.path().join("actions")).unwrap().count(), 0);
}

#[test]
fn nothing_is_published_whose_decision_is_not_written() {
    let root = tempfile::tempdir().unwrap();
    let actions = open(root.path(), &[]);
    let full = || Err(io::Error::other("the disk is full"));
    let fault = actions.publish(file("a", "one"), None, full).unwrap_err();
    assert!(matches!(fault, PublishFault::Unwritten(_)));
    drop(actions);
    open(root.path(), &["a"]);
    assert!(versions(root.path()).is_empty());
}

#[test]
fn an_answer_to_an_earlier_question_does_not_replace_a_version_that_nobody_has_named() {
    let root = tempfile::tempdir().unwrap();
    let actions = open(root.path(), &[]);
    actions.publish(file("a", "one"), None, || Ok(())).unwrap();
    let unwanted = || -> io::Result<()> { panic!("nothing is decided") };
    for (note, category) in [(None, "sums"), (Some(FIRST), "other")] {
        let mut other = file("b", "two");
        other.action = action(category, "total", "two");
        let fault = actions.publish(other, note, unwanted).unwrap_err();
        assert!(matches!(fault, PublishFault::Outdated(_)), "{fault:?}");
    }
    assert_eq!(versions(root.path()), [(1, "one".to_owned())]);
}

#[test]
fn an_allowed_version_that_cannot_be_put_into_its_place_is_said_to_be_undone_and_goes_before_others() {
    let root = tempfile::tempdir().unwrap();
    let actions = open(root.path(), &[]);
    let place = root.path().join("actions/total");
    // After the server has looked.
    let obstruct = || std::fs::write(&place, "");
    actions.publish(file("a", "one"), None, obstruct).unwrap();
    assert!(actions.undone("a").is_some() && actions.undone("b").is_none());
    let unwanted = || -> io::Result<()> { panic!("nothing is decided") };
    let fault = actions.publish(file("b", "two"), None, unwanted).unwrap_err();
    assert!(matches!(fault, PublishFault::Unwritten(_)) && actions.undone("a").is_some());
    std::fs::remove_file(&place).unwrap();
    actions.publish(file("b", "two"), Some(FIRST), || Ok(())).unwrap();
    assert!(actions.undone("a").is_none());
    assert_eq!(versions(root.path()), [(1, "one".to_owned()), (2, "two".to_owned())]);
}

#[test]
fn a_server_that_was_killed_publishes_what_was_decided_once() {
    let root = tempfile::tempdir().unwrap();
    let actions = open(root.path(), &[]);
    let waiting = root.path().join("approvals/decided");
    let wait = |file: &PublishedFile| {
        std::fs::write(actions.waiting_file(&file.question), serde_json::to_vec(file).unwrap()).unwrap();
    };
    // Killed before the decision was written, and after it; and a file that was not whole.
    wait(&file("undecided", "undecided"));
    wait(&file("decided", "decided"));
    wait(&PublishedFile { digest: "another call".to_owned(), ..file("other", "never shown") });
    std::fs::write(waiting.join("5.json"), serde_json::to_vec(&file("decided", "copied")).unwrap()).unwrap();
    std::fs::write(waiting.join(".tmp4"), "{\"question\": \"dec").unwrap();
    for _ in 0..2 {
        open(root.path(), &["decided", "other"]);
        assert_eq!(versions(root.path()), [(1, "decided".to_owned())]);
        assert_eq!(std::fs::read_dir(&waiting).unwrap().count(), 0);
    }
}
