//! Users of a file, for a team without an identity provider.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use super::*;

fn new_user(name: &str) -> NewUser {
    NewUser { name: name.to_owned(), groups: BTreeSet::new(), lifetime: None }
}

fn with_file(path: &Path) -> UserAuthenticator {
    configured(&format!("tokens_file = \"{}\"", path.display()), SLOW)
}

/// Moves the end of a user's token.
fn expire(path: &Path, end: i64) {
    let mut file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    file["users"][0]["expires_secs"] = end.into();
    fs::write(path, file.to_string()).unwrap();
}

#[tokio::test]
async fn a_user_of_the_file_logs_in_until_removed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let file = TokenFile::new(path.clone());
    assert_eq!(file.list().unwrap(), []);
    let groups = BTreeSet::from(["lab".to_owned()]);
    let lifetime = Some(Duration::from_secs(90 * 86400));
    let alice = file.add(NewUser { name: "alice".to_owned(), groups: groups.clone(), lifetime }).unwrap();
    let bob = file.add(new_user("bob@lab.example")).unwrap();
    let authenticator = with_file(&path);
    let made = user(&authenticator, alice.reveal()).await.unwrap();
    assert_eq!(made.identity, UserIdentity { issuer: LOCAL_ISSUER.to_owned(), subject: "alice".to_owned() });
    assert_eq!((made.name.as_str(), made.groups), ("alice", groups));
    assert!(made.expires_at.unwrap() > SystemTime::now() + Duration::from_secs(89 * 86400));
    assert_eq!(user(&authenticator, bob.reveal()).await.unwrap().expires_at, None);
    file.remove("alice").unwrap();
    assert_eq!(fault(&authenticator, alice.reveal()).await, TokenFault::Unknown);
    user(&authenticator, bob.reveal()).await.unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(fault(&authenticator, bob.reveal()).await, TokenFault::Unknown);
}

#[test]
fn a_token_is_long_and_only_its_hash_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let file = TokenFile::new(path.clone());
    let tokens = ["a", "b"].map(|name| file.add(new_user(name)).unwrap());
    let text = fs::read_to_string(&path).unwrap();
    for token in &tokens {
        let random = token.reveal().strip_prefix(TOKEN_PREFIX).unwrap();
        assert_eq!(random.len(), 43);
        assert!(!text.contains(random) && !format!("{token:?}{file:?}").contains(random));
    }
    assert_ne!(tokens[0].reveal(), tokens[1].reveal());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_token_ends() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let file = TokenFile::new(path.clone());
    let token = file.add(new_user("alice")).unwrap();
    let authenticator = with_file(&path);
    expire(&path, now() + 1000);
    user(&authenticator, token.reveal()).await.unwrap();
    expire(&path, now() - 1);
    assert_eq!(fault(&authenticator, token.reveal()).await, TokenFault::Expired);
    assert!(file.list().unwrap()[0].is_expired());
    let lifetime = Some(Duration::MAX);
    let error = file.add(NewUser { lifetime, ..new_user("bob") }).unwrap_err().to_string();
    assert!(error.contains("give a shorter time"), "{error}");
}

#[tokio::test]
async fn a_file_that_others_can_write_lets_nobody_in() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let file = TokenFile::new(path.clone());
    let token = file.add(new_user("alice")).unwrap();
    let authenticator = with_file(&path);
    user(&authenticator, token.reveal()).await.unwrap();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = user(&authenticator, token.reveal()).await.unwrap_err();
        assert!(matches!(error, TokenLoginError::Unavailable(_)), "{error:?}");
        for error in [file.list().unwrap_err(), file.remove("alice").unwrap_err(), file.check().unwrap_err()]
        {
            assert!(error.to_string().ends_with("run `chmod 600` on it"), "{error}");
        }
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    user(&authenticator, token.reveal()).await.unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let error = file.list().unwrap_err().to_string();
        assert!(error.contains("belongs to another user, number 65534"), "{error}");
    }
}

#[tokio::test]
async fn a_broken_file_lets_nobody_in() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let file = TokenFile::new(path.clone());
    let token = file.add(new_user("alice")).unwrap();
    let authenticator = with_file(&path);
    let good = fs::read_to_string(&path).unwrap();
    for text in [
        "",
        "{}",
        "[]",
        &good.replace("\"users\"", "\"user\""),
        &good.replace("\"sha256\": \"", "\"sha256\": \"g"),
    ] {
        fs::write(&path, text).unwrap();
        let error = user(&authenticator, token.reveal()).await.unwrap_err();
        assert!(matches!(error, TokenLoginError::Unavailable(_)), "{error:?}");
        assert!(file.add(new_user("bob")).unwrap_err().to_string().contains("is no file of tokens"));
        // It is left as it is.
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, good).unwrap();
    user(&authenticator, token.reveal()).await.unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = file.list().unwrap_err().to_string();
    assert!(error.ends_with("is no regular file"), "{error}");
}

#[test]
fn a_file_that_is_missing_or_others_can_write_is_noticed_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let start = || {
        let config = config(&format!("tokens_file = \"{}\"", path.display()));
        rustls::crypto::ring::default_provider().install_default().ok();
        let error = UserAuthenticator::new(config, Client::new(), |_| None).unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    };
    assert!(start().ends_with("does not exist; add a user by `ipybox team user add NAME`"));
    fs::write(&path, "{\"users\": []}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(start().ends_with("run `chmod 600` on it"));
}

#[test]
fn users_have_names_and_are_added_once() {
    let place = tempfile::tempdir().unwrap();
    let file = TokenFile::new(place.path().join("tokens.json"));
    let long = "a".repeat(65);
    for name in ["", "a b", "a/b", "-a", "\u{e9}", "a\n", "a\"", &long] {
        let error = file.add(new_user(name)).unwrap_err().to_string();
        assert!(error.contains("is no name; use up to 64 letters"), "{error}");
    }
    let groups = BTreeSet::from(["a:b".to_owned()]);
    assert!(file.add(NewUser { groups, ..new_user("a") }).is_err());
    file.add(new_user("a.b_c@d+e-f")).unwrap();
    let error = file.add(new_user("a.b_c@d+e-f")).unwrap_err().to_string();
    assert!(error.contains("ipybox team user remove a.b_c@d+e-f"), "{error}");
    assert_eq!(
        file.remove("b").unwrap_err().to_string(),
        "there is no user `b`; `ipybox team user list` lists them"
    );
    assert_eq!(file.list().unwrap().len(), 1);
}

#[test]
fn writers_at_once_lose_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("tokens.json");
    let link = place.path().join("link");
    let first = TokenFile::new(path.clone());
    first.add(new_user("first")).unwrap();
    symlink("tokens.json", &link).unwrap();
    let paths = Arc::new([path.clone(), link.clone()]);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let paths = Arc::clone(&paths);
            std::thread::spawn(move || {
                let file = TokenFile::new(paths[writer % 2].clone());
                for index in 0..5 {
                    file.add(new_user(&format!("{writer}.{index}"))).unwrap();
                }
                file.remove(&format!("{writer}.0")).unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(first.list().unwrap().len(), 1 + 8 * 4);
    assert!(link.is_symlink() && !path.is_symlink());
}
