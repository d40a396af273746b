//! The tokens of sessions at the socket of the server: one for each user, which another user cannot make.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::storage::{read_bounded, replace};

/// The number of bytes of the secret.
const SECRET_BYTES: usize = 32;

/// Makes and verifies tokens. Sessions outlive the server, and so does its secret.
pub(crate) struct SessionTokens(hmac::Key);

impl SessionTokens {
    /// Those by the secret in this file, which is made if there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let secret = match read_bounded(path, SECRET_BYTES as u64) {
            Ok(secret) => secret,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut secret = vec![0; SECRET_BYTES];
                SystemRandom::new().fill(&mut secret).map_err(|_| io::Error::other("no random numbers"))?;
                replace(path, &secret)?;
                secret
            }
            Err(error) => return Err(error),
        };
        if secret.len() != SECRET_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the secret of a server"));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }

    /// The token of a user's sessions.
    pub(crate) fn of(&self, user: &str) -> String {
        format!("{user}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, user.as_bytes())))
    }

    /// The key of the user whose token it is.
    pub(crate) fn user<'t>(&self, token: &'t str) -> Option<&'t str> {
        let (user, tag) = token.split_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.0, user.as_bytes(), &tag).ok().map(|()| user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_user_and_one_server_and_outlives_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| SessionTokens::open(&directory.path().join(name)).unwrap();
        let token = open("a").of("ann");
        assert_eq!(open("a").user(&token), Some("ann"));
        assert_eq!(open("b").user(&token), None);
        assert_eq!(open("a").user(&token.replace("ann", "bob")), None);
        assert_eq!((open("a").user("ann"), open("a").user("ann.")), (None, None));
    }
}
