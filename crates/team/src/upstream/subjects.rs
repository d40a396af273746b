//! The tokens by which users have come, for as long as they are valid: in memory alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// The longest time that a token is kept after the request that has shown it; some do not say when they end.
const LONGEST: Duration = Duration::from_secs(3600);

/// The newest token of each user.
#[derive(Default)]
pub(crate) struct SubjectTokens(Mutex<HashMap<String, SubjectToken>>);

struct SubjectToken {
    token: Arc<str>,
    end: SystemTime,
}

impl SubjectTokens {
    /// Keeps the token of a request, unless there is one of the user's that is valid for longer.
    pub(crate) fn note(&self, user: &str, token: &str, end: Option<SystemTime>) {
        let now = SystemTime::now();
        let end = end.unwrap_or(now + LONGEST).min(now + LONGEST);
        let mut tokens = self.0.lock();
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
    pub(super) fn of(&self, user: &str) -> Option<Arc<str>> {
        let mut tokens = self.0.lock();
        let now = SystemTime::now();
        tokens.retain(|_, kept| kept.end > now);
        tokens.get(user).map(|kept| Arc::clone(&kept.token))
    }

    /// Forgets a token of the user that the provider takes for none.
    pub(super) fn forget(&self, user: &str, token: &str) {
        let mut tokens = self.0.lock();
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
        let subjects = SubjectTokens::default();
        let in_seconds = |seconds| Some(SystemTime::now() + Duration::from_secs(seconds));
        subjects.note("ann", "a", in_seconds(600));
        subjects.note("ann", "b", in_seconds(300));
        subjects.note("bob", "c", Some(SystemTime::now()));
        assert_eq!((subjects.of("ann").as_deref(), subjects.of("bob").as_deref()), (Some("a"), None));
        assert_eq!(subjects.0.lock().len(), 1);
        subjects.note("ann", "d", None);
        assert_eq!(subjects.of("ann").as_deref(), Some("d"));
        subjects.forget("ann", "a");
        assert_eq!(subjects.of("ann").as_deref(), Some("d"));
        subjects.forget("ann", "d");
        assert_eq!(subjects.of("ann"), None);
    }
}
