use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::config::UserSettings;
use crate::login::{ClaimedName, TeamUser, UserIdentity};
use crate::storage::replace;
use crate::users::UserSystem;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn accounts(state: &Path) -> UserAccounts {
    let system = UserSystem {
        make_groups: |_, _, _| Err("there are none".to_owned()),
        remove_groups: |_| {},
        remove_tree: |path| std::fs::remove_dir_all(path),
    };
    let settings = UserSettings { share_id: true, ..UserSettings::default() };
    UserAccounts::open(&state.join("state"), &settings, system).unwrap()
}

/// The key of a user who has come.
fn come(accounts: &UserAccounts, subject: &str) -> String {
    let user = TeamUser {
        identity: UserIdentity { issuer: "local".to_owned(), subject: subject.to_owned() },
        name: subject.to_owned(),
        hub_user: ClaimedName { claim: "sub".to_owned(), value: subject.to_owned() },
        groups: BTreeSet::new(),
        scopes: BTreeSet::new(),
        expires_at: None,
    };
    accounts.place(&user).unwrap().key.clone()
}

/// Has a user been seen two years ago for the last time.
fn age(accounts: &UserAccounts, key: &str) {
    let seen = now() - 2 * YEAR.as_secs();
    let account = TeamAccount { seen, ..accounts.account(key).unwrap() };
    let file = accounts.state_dir.join(format!("accounts/{key}.json"));
    replace(&file, &serde_json::to_vec(&account).unwrap()).unwrap();
}

fn write_log(path: &Path, years: u32) {
    std::fs::write(path, "line\n").unwrap();
    let written = SystemTime::now() - years * YEAR;
    let file = File::options().append(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(written)).unwrap();
}

#[test]
fn files_of_the_log_go_when_their_last_line_is_old() {
    let directory = tempfile::tempdir().unwrap();
    let accounts = accounts(directory.path());
    let key = come(&accounts, "ann");
    let audit = accounts.state_dir.join("users").join(&key).join("audit");
    for (name, years) in
        [("log.jsonl", 0), ("log.jsonl.1", 2), ("log.jsonl.decisions.1", 2), ("log.jsonl.2", 3), ("other", 3)]
    {
        write_log(&audit.join(name), years);
    }
    assert_eq!(accounts.remove_old_logs(&key, YEAR).unwrap(), 3);
    let mut left: Vec<_> =
        std::fs::read_dir(&audit).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["log.jsonl", "other"]);
    assert_eq!(accounts.remove_old_logs(&key, YEAR).unwrap(), 0);
}

#[test]
fn links_of_a_user_lead_to_no_removal() {
    let directory = tempfile::tempdir().unwrap();
    let accounts = accounts(directory.path());
    let (ann, bob) = (come(&accounts, "ann"), come(&accounts, "bob"));
    let users = accounts.state_dir.join("users");
    let log = users.join(&bob).join("audit/log.jsonl.1");
    write_log(&log, 2);
    // A link among the files, and in the place of their directory.
    symlink(&log, users.join(&ann).join("audit/log.jsonl.1")).unwrap();
    assert_eq!(accounts.remove_old_logs(&ann, YEAR).unwrap(), 0);
    std::fs::remove_dir_all(users.join(&ann).join("audit")).unwrap();
    symlink(users.join(&bob).join("audit"), users.join(&ann).join("audit")).unwrap();
    accounts.remove_old_logs(&ann, YEAR).unwrap_err();
    assert!(log.exists());
    // In the place of a directory that is to be removed.
    std::fs::remove_dir_all(users.join(&ann).join("workspace")).unwrap();
    symlink(users.join(&bob).join("workspace"), users.join(&ann).join("workspace")).unwrap();
    std::fs::write(users.join(&bob).join("workspace/kept"), "").unwrap();
    age(&accounts, &ann);
    assert!(accounts.remove_belongings(&ann, YEAR).unwrap());
    assert!(users.join(&ann).join("workspace").symlink_metadata().is_err());
    assert!(users.join(&bob).join("workspace/kept").exists());
}

#[test]
fn users_who_have_gone_leave_their_audit_log_alone() {
    let directory = tempfile::tempdir().unwrap();
    let accounts = accounts(directory.path());
    let (ann, bob) = (come(&accounts, "ann"), come(&accounts, "bob"));
    let of_ann = accounts.state_dir.join("users").join(&ann);
    write_log(&of_ann.join("audit/log.jsonl"), 0);
    age(&accounts, &ann);
    let gone: Vec<String> = accounts.gone(YEAR).unwrap().into_iter().map(|account| account.key).collect();
    assert_eq!(gone, [ann.as_str()]);
    assert!(accounts.remove_belongings(&ann, YEAR).unwrap());
    assert!(!of_ann.join("workspace").exists() && !of_ann.join("home").exists());
    assert!(of_ann.join("audit/log.jsonl").exists());
    assert!(accounts.gone(YEAR).unwrap().is_empty());
    // Who has come in the meantime keeps all.
    assert!(!accounts.remove_belongings(&bob, YEAR).unwrap());
    age(&accounts, &ann);
    come(&accounts, "ann");
    assert!(of_ann.join("workspace").exists());
    // What an earlier process has left goes, too.
    std::fs::create_dir_all(accounts.state_dir.join("left/x/y")).unwrap();
    accounts.remove_left().unwrap();
    assert_eq!(std::fs::read_dir(accounts.state_dir.join("left")).unwrap().count(), 0);
}
