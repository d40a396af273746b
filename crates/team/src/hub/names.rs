//! The users of the JupyterHub, and the one identity each belongs to.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::login::{ClaimedName, UserIdentity};
use crate::storage::{read_bounded, replace};

/// The longest name, in bytes: as long as the Hub keeps one.
const LONGEST: usize = 255;
/// The largest file, in bytes; some hundred thousand users.
const FILE_BYTES: u64 = 32 * 1024 * 1024;

/// The name of a user at the Hub: a segment of a path, in small letters, as the Hub has names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HubName(String);

/// Why a user has no server at the Hub.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubNameError {
    /// The login names nobody who could be a user there.
    #[error("find your server at the JupyterHub: the claim `{claim}` of your login {why}")]
    Claim { claim: String, why: &'static str },
    /// The user there is somebody else's.
    #[error(
        "find your server at the JupyterHub: its user `{0}` belongs to another login of this team server; ask its operator"
    )]
    Taken(HubName),
    /// Nobody has come with a login since the server was started.
    #[error("find your server at the JupyterHub: no request of yours has named its user")]
    Unknown,
    /// The names cannot be kept.
    #[error("note whose server at the JupyterHub it is: {0}")]
    File(#[from] io::Error),
}

impl HubName {
    /// The name that a login claims.
    pub(crate) fn of(claimed: &ClaimedName) -> Result<Self, HubNameError> {
        let ClaimedName { claim, value } = claimed;
        let wrong = |why| HubNameError::Claim { claim: claim.clone(), why };
        if value.is_empty() {
            return Err(wrong("is missing, empty or no text"));
        }
        if value.len() > LONGEST {
            return Err(wrong("is longer than a name at the JupyterHub can be"));
        }
        let is_segment = !value.contains(['/', '\\', '%'])
            && !value.chars().any(char::is_control)
            && value.trim() == value
            && !value.chars().all(|letter| letter == '.');
        if !is_segment {
            return Err(wrong("is no name of a user there, which is one segment of a URL's path"));
        }
        Ok(Self(value.to_lowercase()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The identity that a name at the Hub belongs to, for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HubNameOwner {
    issuer: String,
    subject: String,
}

impl HubNameOwner {
    fn is(&self, identity: &UserIdentity) -> bool {
        self.issuer == identity.issuer && self.subject == identity.subject
    }
}

/// All names that were claimed, in a file.
pub(super) struct HubNames {
    path: PathBuf,
    owners: Mutex<BTreeMap<HubName, HubNameOwner>>,
}

impl HubNames {
    /// Those in this file, which is made with the first one.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let owners = match read_bounded(&path, FILE_BYTES) {
            Ok(content) => serde_json::from_slice(&content)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, owners: Mutex::new(owners) })
    }

    /// Gives the name to an identity, unless another one has it.
    pub(super) fn claim(&self, name: &HubName, identity: &UserIdentity) -> Result<(), HubNameError> {
        // Held all the while: the file has what was decided.
        let mut owners = self.owners.lock();
        match owners.get(name) {
            Some(owner) if owner.is(identity) => return Ok(()),
            Some(_) => return Err(HubNameError::Taken(name.clone())),
            None => {}
        }
        let UserIdentity { issuer, subject } = identity.clone();
        let mut later = owners.clone();
        later.insert(name.clone(), HubNameOwner { issuer, subject });
        replace(&self.path, &serde_json::to_vec_pretty(&later).map_err(io::Error::from)?)?;
        *owners = later;
        Ok(())
    }

    /// Whether the name is an identity's.
    pub(super) fn belongs(&self, name: &HubName, identity: &UserIdentity) -> bool {
        self.owners.lock().get(name).is_some_and(|owner| owner.is(identity))
    }

    /// All names.
    pub(super) fn all(&self) -> Vec<HubName> {
        self.owners.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(value: &str) -> Result<HubName, HubNameError> {
        HubName::of(&ClaimedName { claim: "email".to_owned(), value: value.to_owned() })
    }

    fn identity(issuer: &str, subject: &str) -> UserIdentity {
        UserIdentity { issuer: issuer.to_owned(), subject: subject.to_owned() }
    }

    #[test]
    fn a_claim_that_is_no_name_is_refused_by_its_own_name() {
        for value in ["", "a/b", "..", ".", " ann", "ann ", "a\nb", "a\\b", "%2e%2e", &"a".repeat(256)] {
            let error = named(value).unwrap_err().to_string();
            assert!(error.contains("the claim `email` of your login is"), "{value}: {error}");
        }
        for value in ["ann", "ann@example.org", "a.b", "Änn Müller"] {
            assert_eq!(named(value).unwrap().as_str(), value.to_lowercase());
        }
    }

    #[test]
    fn a_name_belongs_to_the_first_identity_for_ever_however_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hub-users.json");
        let first = identity("https://id.example", "4711");
        let names = HubNames::open(path.clone()).unwrap();
        names.claim(&named("Ann").unwrap(), &first).unwrap();
        for names in [names, HubNames::open(path).unwrap()] {
            for other in [identity("https://id.example", "4712"), identity("local", "4711")] {
                let error = names.claim(&named("aNN").unwrap(), &other).unwrap_err().to_string();
                assert!(error.contains("its user `ann` belongs to another login"), "{error}");
                assert!(!names.belongs(&named("ann").unwrap(), &other));
            }
            names.claim(&named("ann").unwrap(), &first).unwrap();
            assert!(names.belongs(&named("ann").unwrap(), &first));
        }
    }

    #[test]
    fn a_file_that_is_damaged_gives_no_name_to_anybody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hub-users.json");
        std::fs::write(&path, r#"{"ann": {"issuer": "local"}}"#).unwrap();
        assert!(HubNames::open(path).is_err());
    }
}
