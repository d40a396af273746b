use serde_json::json;

use super::*;
use crate::config::UserSettings;
use crate::users::{UserLimits, UserSystem};

const SYSTEM: UserSystem = UserSystem {
    make_groups: |_, _, _: &UserLimits| Ok(Vec::new()),
    remove_groups: |_| {},
    remove_tree: |_| Ok(()),
};

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
    actions.publish(&file("a", "one"), || Ok(())).unwrap();
    actions.publish(&file("b", "two"), || Ok(())).unwrap();
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
    assert!(actions.publish(&file("a", "one"), || Err(io::Error::other("the disk is full"))).is_err());
    drop(actions);
    open(root.path(), &["a"]);
    assert!(versions(root.path()).is_empty());
}

#[test]
fn a_server_that_was_killed_publishes_what_was_decided_once() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path(), &[]));
    let waiting = root.path().join("approvals/decided");
    // Killed before the decision was written, and after it; and a file that was not whole.
    for (name, question) in [("1.json", "undecided"), ("2.json", "decided")] {
        std::fs::write(waiting.join(name), serde_json::to_vec(&file(question, question)).unwrap()).unwrap();
    }
    let other = PublishedFile { digest: "another call".to_owned(), ..file("decided", "never shown") };
    std::fs::write(waiting.join("3.json"), serde_json::to_vec(&other).unwrap()).unwrap();
    std::fs::write(waiting.join(".tmp4"), "{\"question\": \"dec").unwrap();
    for _ in 0..2 {
        open(root.path(), &["decided"]);
        assert_eq!(versions(root.path()), [(1, "decided".to_owned())]);
        assert_eq!(std::fs::read_dir(&waiting).unwrap().count(), 0);
    }
}
