use std::collections::BTreeSet;

use super::*;
use crate::login::{ClaimedName, UserIdentity};

fn user(subject: &str) -> TeamUser {
    TeamUser {
        identity: UserIdentity { issuer: "local".to_owned(), subject: subject.to_owned() },
        name: subject.to_owned(),
        hub_user: ClaimedName { claim: "sub".to_owned(), value: subject.to_owned() },
        groups: BTreeSet::new(),
        scopes: BTreeSet::new(),
        expires_at: None,
    }
}

fn settings(ids: u32) -> UserSettings {
    UserSettings { first_id: 1_600_000_000, ids, share_id: true, ..UserSettings::default() }
}

fn no_groups() -> UserSystem {
    UserSystem {
        make_groups: |_, _, _| Err("there are none".to_owned()),
        remove_groups: |_| {},
        remove_tree: |path| std::fs::remove_dir_all(path),
    }
}

#[test]
fn limits_that_nothing_holds_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let limited = UserSettings { limit_processes: Some(10), ..settings(8) };
    let accounts = UserAccounts::open(&directory.path().join("state"), &limited, no_groups()).unwrap();
    let error = accounts.place(&user("ann")).unwrap_err().to_string();
    assert!(error.contains("hold the limits of `users`: there are none"), "{error}");
}

#[test]
fn two_servers_do_not_keep_their_users_in_one_place() {
    let directory = tempfile::tempdir().unwrap();
    let open = || UserAccounts::open(directory.path(), &settings(8), no_groups()).unwrap();
    let first = open().lock().unwrap();
    let error = open().lock().unwrap_err();
    assert!(error.to_string().contains("another server does\nhint: stop it"), "{error}");
    drop(first);
    open().lock().unwrap();
}

#[test]
fn each_user_has_a_place_that_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let accounts = UserAccounts::open(&state, &settings(8), no_groups()).unwrap();
    let ann = accounts.place(&user("ann")).unwrap();
    let bob = accounts.place(&user("bob")).unwrap();
    assert_ne!(ann.key, bob.key);
    let again = UserAccounts::open(&state, &settings(8), no_groups()).unwrap();
    let found = again.place(&user("ann")).unwrap();
    assert_eq!((&found.key, found.id), (&ann.key, ann.id));
    let names: Vec<String> = again.list().unwrap().into_iter().map(|account| account.subject).collect();
    assert_eq!(names.len(), 2);
    for place in [&ann, &bob] {
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap();
        for path in [place.home(), place.workspace(), place.state()] {
            let metadata = mode(path);
            assert_eq!(metadata.mode() & 0o777, 0o700);
            if let Some(id) = place.id {
                assert_eq!((metadata.uid(), metadata.gid()), (id, id));
            }
        }
    }
    assert!(!rustix::process::geteuid().is_root() || ann.id != bob.id);
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    let error = UserAccounts::open(&state, &settings(8), no_groups()).err().unwrap();
    assert!(error.to_string().contains("others can write it"), "{error}");
}

#[test]
fn ids_end() {
    let directory = tempfile::tempdir().unwrap();
    let accounts = UserAccounts::open(&directory.path().join("state"), &settings(2), no_groups()).unwrap();
    accounts.place(&user("ann")).unwrap();
    let second = accounts.place(&user("bob"));
    if rustix::process::geteuid().is_root() {
        assert!(matches!(second.unwrap_err(), AccountError::NoIds));
    } else {
        second.unwrap();
    }
}
