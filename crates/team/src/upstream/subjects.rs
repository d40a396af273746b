//! The tokens by which users have come, for as long as they are valid: in memory alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// The longest time that a token is kept after the request that has shown it; some do not say when they end.
const LONGEST: Duration = Duration::from_secs(3600);

/// A token of each user.
pub(crate) struct SubjectTokens {
    /// The issuers whose tokens are exchanged. Others are not kept.
    issuers: BTreeSet<String>,
    /// By the keys of the users.
    tokens: Mutex<HashMap<String, SubjectToken>>,
}

struct SubjectToken {
    token: Arc<str>,
    end: SystemTime,
}

impl SubjectTokens {
    /// Keeps tokens of these issuers.
    pub(super) fn of(issuers: BTreeSet<String>) -> Self {
        Self { issuers, tokens: Mutex::default() }
    }

    /// Keeps the token of a request, unless there is one of the user's that is valid for longer.
    pub(crate) fn note(&self, user: &str, issuer: &str, token: &str, end: Option<SystemTime>) {
        if !self.issuers.contains(issuer) {
            return;
        }
        let now = SystemTime::now();
        let end = end.unwrap_or(now + LONGEST).min(now + LONGEST);
        let mut tokens = self.tokens.lock();
        match tokens.get_mut(user) {
            Some(kept) if *kept.token == *token => kept.end = end,
            Some(kept) if kept.end > end => {}
            _ => {
                tokens.retain(|_, kept| kept.end > now);
                tokens.insert(user.to_owned(), SubjectToken { token: token.into(), end });
            }
        }
    }

    /// A token of the user that is valid.
    pub(super) fn valid(&self, user: &str) -> Option<Arc<str>> {
        let mut tokens = self.tokens.lock();
        let now = SystemTime::now();
        tokens.retain(|_, kept| kept.end > now);
        tokens.get(user).map(|kept| Arc::clone(&kept.token))
    }

    /// Forgets a token of the user that the provider takes for none.
    pub(super) fn forget(&self, user: &str, token: &str) {
        let mut tokens = self.tokens.lock();
        if tokens.get(user).is_some_and(|kept| *kept.token == *token) {
            tokens.remove(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_that_is_valid_for_longest_is_kept_until_it_ends() {
        let subjects = SubjectTokens::of(BTreeSet::from(["id".to_owned()]));
        let in_seconds = |seconds| Some(SystemTime::now() + Duration::from_secs(seconds));
        subjects.note("ann", "id", "a", in_seconds(600));
        subjects.note("ann", "id", "b", in_seconds(300));
        subjects.note("bob", "id", "c", Some(SystemTime::now()));
        assert_eq!((subjects.valid("ann").as_deref(), subjects.valid("bob").as_deref()), (Some("a"), None));
        assert_eq!(subjects.tokens.lock().len(), 1);
        subjects.note("ann", "id", "d", None);
        assert_eq!(subjects.valid("ann").as_deref(), Some("d"));
        subjects.note("ann", "other", "e", in_seconds(6000));
        subjects.forget("ann", "a");
        assert_eq!(subjects.valid("ann").as_deref(), Some("d"));
        subjects.forget("ann", "d");
        assert_eq!(subjects.valid("ann"), None);
    }
}
