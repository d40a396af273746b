//! Secrets that ipybox keeps for its user: in the system's keyring, and where there is none, in `secrets.json` of the
//! state directory, which nobody else can read.
//!
//! `IPYBOX_KEYRING=off` uses the file alone. All functions block: a keyring may ask its user for a password.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ground::files::StateFile;

/// The variable that turns the keyring off.
pub(crate) const IPYBOX_KEYRING: &str = "IPYBOX_KEYRING";
/// The name of our entries in the keyring.
const SERVICE: &str = "ipybox";
/// The time to wait for the keyring, whose user may have to type a password.
const KEYRING_TIMEOUT: Duration = Duration::from_secs(60);

/// Set once the keyring has not answered: it is not asked again.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// The secrets of one state directory.
#[derive(Debug)]
pub(crate) struct Vault {
    directory: PathBuf,
    file: StateFile,
}

#[derive(Default, Serialize, Deserialize)]
struct VaultDocument {
    secrets: BTreeMap<String, String>,
}

impl Vault {
    pub(crate) fn in_directory(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.to_owned(),
            file: StateFile::new(state_directory.join("secrets.json")),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Has one process at a time, as long as the result lives, decide which names secrets get.
    ///
    /// # Errors
    /// Another process has the turn for longer than a keyring may take.
    pub(crate) fn turn(&self) -> io::Result<File> {
        self.file.turn(2 * KEYRING_TIMEOUT)
    }

    /// The secret under `key`.
    ///
    /// # Errors
    /// The file cannot be read. A keyring that cannot be used counts as one without the secret.
    pub(crate) fn get(&self, key: &str) -> io::Result<Option<String>> {
        if let Some(secret) = self.file.read::<VaultDocument>()?.secrets.remove(key) {
            return Ok(Some(secret));
        }
        Ok(self.with_entry(key, |entry| entry.get_password()).ok().flatten())
    }

    /// Keeps a secret under `key`, in place of an earlier one.
    ///
    /// # Errors
    /// The keyring cannot be used, and the file cannot be written.
    pub(crate) fn put(&self, key: &str, secret: &str) -> io::Result<()> {
        let owned = secret.to_owned();
        let is_in_keyring =
            self.with_entry(key, move |entry| entry.set_password(&owned)).is_ok_and(|done| done.is_some());
        let has_file = self.file.stamp()?.is_some();
        if is_in_keyring && !has_file {
            return Ok(());
        }
        self.file.change(|document: &mut VaultDocument| {
            if is_in_keyring {
                drop(document.secrets.remove(key))
            } else {
                drop(document.secrets.insert(key.to_owned(), secret.to_owned()))
            }
        })
    }

    /// Removes the secret under `key`. Returns whether there was one.
    ///
    /// # Errors
    /// The file cannot be read or written. A keyring that cannot be used counts as one without the secret.
    pub(crate) fn remove(&self, key: &str) -> io::Result<bool> {
        // The keyring first: as long as the file has a newer one, an older one of the keyring is hidden.
        let in_keyring = self.with_entry(key, |entry| entry.delete_credential());
        let mut is_removed = matches!(in_keyring, Ok(Some(())));
        if self.file.read::<VaultDocument>()?.secrets.contains_key(key) {
            self.file.change(|document: &mut VaultDocument| {
                is_removed |= document.secrets.remove(key).is_some()
            })?;
        }
        if let Err(error) = in_keyring {
            tracing::debug!(%error, "the keyring was not searched for a removed secret");
        }
        Ok(is_removed)
    }

    /// The name of the keyring's entry for `key`: the same however the state directory is named.
    fn entry(&self, key: &str) -> String {
        let real = self.directory.canonicalize();
        let directory = real.as_deref().unwrap_or(&self.directory).as_os_str();
        format!("{:.16} {key}", format!("{:x}", Sha256::digest(directory.as_encoded_bytes())))
    }

    /// Does `work` with the keyring's entry; `None` if it has none.
    fn with_entry<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&keyring::v1::Entry) -> keyring::v1::Result<T> + Send + 'static,
    ) -> keyring::v1::Result<Option<T>> {
        if !is_on() {
            return Err(keyring::v1::Error::NoDefaultStore);
        }
        let user = self.entry(key);
        let (sender, receiver) = mpsc::channel();
        // In a thread of its own: the keyring's daemon may not answer.
        std::thread::spawn(move || {
            let done = keyring::v1::Entry::new(SERVICE, &user).and_then(|entry| work(&entry));
            // Nobody waits any longer.
            sender.send(done).ok();
        });
        match receiver.recv_timeout(KEYRING_TIMEOUT) {
            Ok(Ok(done)) => Ok(Some(done)),
            Ok(Err(keyring::v1::Error::NoEntry)) => Ok(None),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the system's keyring cannot be used");
                Err(error)
            }
            Err(_) => {
                tracing::warn!(
                    "the system's keyring has not answered in {} s; it is not used",
                    KEYRING_TIMEOUT.as_secs()
                );
                IS_SILENT.store(true, Ordering::Relaxed);
                Err(keyring::v1::Error::NoDefaultStore)
            }
        }
    }
}

fn is_on() -> bool {
    let is_off = std::env::var_os(IPYBOX_KEYRING).is_some_and(|value| value == "off" || value == "0");
    !is_off && !IS_SILENT.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn secrets_outlive_the_process_in_a_file_for_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        // A key that no keyring of the machine that runs the test has; with a keyring there is no file.
        let vault = Vault::in_directory(directory.path());
        assert_eq!(vault.get("a").unwrap(), None);
        assert!(!vault.remove("a").unwrap());
        vault.put("a", "one").unwrap();
        vault.put("a", "two").unwrap();
        vault.put("b", "three").unwrap();
        let again = Vault::in_directory(directory.path());
        assert_eq!(again.get("a").unwrap().as_deref(), Some("two"));
        let file = directory.path().join("secrets.json");
        if let Ok(metadata) = std::fs::metadata(file) {
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        assert!(again.remove("a").unwrap());
        assert!(again.remove("b").unwrap());
        assert_eq!(vault.get("a").unwrap(), None);
    }

    #[test]
    fn a_link_leads_to_the_same_entries_of_the_keyring() {
        let directory = tempfile::tempdir().unwrap();
        let [state, link] = ["state", "link"].map(|name| directory.path().join(name));
        std::fs::create_dir(&state).unwrap();
        std::os::unix::fs::symlink(&state, &link).unwrap();
        let [real, linked] = [&state, &link].map(|path| Vault::in_directory(path).entry("secret:a"));
        assert_eq!(real, linked);
        assert_ne!(real, Vault::in_directory(directory.path()).entry("secret:a"));
    }
}
