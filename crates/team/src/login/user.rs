//! A user of the team server.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

/// The issuer of the tokens that `ipybox team user add` makes. No URL, so that no identity provider has this name.
pub const LOCAL_ISSUER: &str = "local";

/// The user as far as the server keeps things for one: the issuer with the subject.
///
/// A name, an address or a group never identifies a user: those can change hands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserIdentity {
    /// The value of `iss`, or [`LOCAL_ISSUER`].
    pub issuer: String,
    /// The value of `sub`; unique at the issuer.
    pub subject: String,
}

/// A name that a user has elsewhere, as a claim has it. Its form is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedName {
    /// The claim.
    pub claim: String,
    /// Its text; empty if it is missing or no text.
    pub value: String,
}

/// The user of a request, as its token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamUser {
    /// The user's identity.
    pub identity: UserIdentity,
    /// The name for people. Without control characters; not unique, and not to decide by.
    pub name: String,
    /// The user's name at a JupyterHub. Not to decide by: whoever can choose the claim can choose anybody's.
    pub hub_user: ClaimedName,
    /// The user's groups.
    pub groups: BTreeSet<String>,
    /// The scopes of the token.
    pub scopes: BTreeSet<String>,
    /// The end of the token; without one it does not expire by itself.
    pub expires_at: Option<SystemTime>,
}

impl UserIdentity {
    /// A name for directories and system users: 32 hexadecimal digits that no other identity has.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        // With its length, since a subject may contain anything.
        hash.update((self.issuer.len() as u64).to_be_bytes());
        hash.update(self.issuer.as_bytes());
        hash.update(self.subject.as_bytes());
        hash.finalize()[..16].iter().fold(String::new(), |mut text, byte| {
            // Texts take everything.
            write!(text, "{byte:02x}").ok();
            text
        })
    }
}

impl fmt::Display for UserIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.subject, self.issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_identities_have_one_fingerprint() {
        let fingerprint = |issuer: &str, subject: &str| {
            UserIdentity { issuer: issuer.to_owned(), subject: subject.to_owned() }.fingerprint()
        };
        assert_eq!(fingerprint("a", "b").len(), 32);
        assert_ne!(fingerprint("a", "bc"), fingerprint("ab", "c"));
        assert_ne!(fingerprint("local", "a"), fingerprint("https://id.example", "a"));
    }
}
