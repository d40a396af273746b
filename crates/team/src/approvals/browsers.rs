//! The browsers that have logged in: a random cookie each, of which the server keeps a hash, in memory alone.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use crate::login::{LocalToken, TeamUser, UserIdentity};

/// The time for which a login holds.
const LIFETIME: Duration = Duration::from_secs(8 * 3600);
/// The number of logins; the oldest one makes room.
const MOST: usize = 4096;
/// The number of random bytes of a cookie, and of other secrets of a login.
const SECRET_BYTES: usize = 32;

/// A user who has logged in by a browser.
#[derive(Clone)]
pub(crate) struct BrowserLogin {
    pub(crate) user: TeamUser,
    /// The token that it was done with, which may be taken away meanwhile.
    pub(crate) token: Option<LocalToken>,
    since: Instant,
}

/// All logins, by the hashes of their cookies.
#[derive(Default)]
pub(crate) struct BrowserLogins(Mutex<HashMap<[u8; 32], BrowserLogin>>);

impl BrowserLogins {
    /// Logs a user in; the value of the cookie.
    pub(crate) fn begin(&self, user: TeamUser, token: Option<LocalToken>) -> Option<String> {
        let cookie = random()?;
        let mut logins = self.0.lock();
        logins.retain(|_, login| login.holds());
        if logins.len() >= MOST
            && let Some(oldest) = logins.iter().min_by_key(|(_, login)| login.since).map(|(hash, _)| *hash)
        {
            logins.remove(&oldest);
        }
        logins.insert(hash(&cookie), BrowserLogin { user, token, since: Instant::now() });
        Some(cookie)
    }

    /// The login with this cookie.
    pub(crate) fn find(&self, cookie: &str) -> Option<BrowserLogin> {
        let mut logins = self.0.lock();
        let hash = hash(cookie);
        match logins.get(&hash) {
            Some(login) if login.holds() => Some(login.clone()),
            Some(_) => {
                logins.remove(&hash);
                None
            }
            None => None,
        }
    }

    /// Ends a login.
    pub(crate) fn end(&self, cookie: &str) {
        self.0.lock().remove(&hash(cookie));
    }

    /// The logins of a user.
    pub(crate) fn of(&self, identity: &UserIdentity) -> Vec<BrowserLogin> {
        let logins = self.0.lock();
        logins.values().filter(|login| login.user.identity == *identity && login.holds()).cloned().collect()
    }
}

impl BrowserLogin {
    fn holds(&self) -> bool {
        self.since.elapsed() < LIFETIME && self.user.expires_at.is_none_or(|end| SystemTime::now() < end)
    }
}

/// A secret that nobody can guess; `None` if the system has no random numbers.
pub(crate) fn random() -> Option<String> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

fn hash(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::login::ClaimedName;

    #[test]
    fn a_login_ends_with_its_token_at_logout_and_for_room() {
        let user = |end: Option<SystemTime>| TeamUser {
            identity: UserIdentity { issuer: "local".to_owned(), subject: "ann".to_owned() },
            name: "ann".to_owned(),
            hub_user: ClaimedName { claim: "sub".to_owned(), value: "ann".to_owned() },
            groups: BTreeSet::new(),
            scopes: BTreeSet::new(),
            expires_at: end,
        };
        let logins = BrowserLogins::default();
        let first = logins.begin(user(None), None).unwrap();
        assert!(
            logins.find(&first).is_some()
                && logins.find("other").is_none()
                && logins.of(&user(None).identity).len() == 1
        );
        let ended = logins.begin(user(Some(SystemTime::UNIX_EPOCH)), None).unwrap();
        assert!(logins.find(&ended).is_none());
        let second = logins.begin(user(None), None).unwrap();
        logins.end(&second);
        assert!(logins.find(&second).is_none() && logins.find(&first).is_some());
        for _ in 0..MOST {
            logins.begin(user(None), None).unwrap();
        }
        assert!(logins.find(&first).is_none());
    }
}
