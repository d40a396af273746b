//! Access to the page: for whoever has typed the code that is shown to the user alone.
//!
//! A right code brings two secrets into the browser, and both are needed: a cookie that no script can read, and a key that
//! the page's script keeps in its memory. Browsers send cookies to every port of a host, so that a server of the code that
//! is decided about could see the cookie; the key belongs to the page's own port. The key is in no file and no URL.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

/// Letters and digits that are not mistaken for each other.
const ALPHABET: &[u8] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The length of a code: one of 656 billion (30⁸). SECURITY.md says how many can be tried in an hour.
const CODE_CHARS: usize = 8;

/// After how many wrong codes the user is warned. They do not change the code, which whoever can connect could then do
/// for ever, and a code is as hard to guess after them as before.
const TRIES: u32 = 5;

/// The number of bytes of chance in a secret.
const SECRET_BYTES: usize = 32;

/// The lock of a page.
#[derive(Debug)]
pub(super) struct PageLock {
    cookie: String,
    key: String,
    state: Mutex<LockState>,
}

#[derive(Debug)]
struct LockState {
    code: String,
    wrong: u32,
    /// The number of times that the right code was typed.
    entries: usize,
}

/// The result of a code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TriedCode {
    /// It was right, and is used up.
    Right,
    /// It was wrong.
    Wrong,
    /// It was wrong, as some before it: the user should know, once for each code.
    Guessed,
}

/// The system gives no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("get random numbers from the system")]
pub(super) struct NoChance;

impl PageLock {
    pub(super) fn new() -> Result<Self, NoChance> {
        let state = Mutex::new(LockState { code: code()?, wrong: 0, entries: 0 });
        Ok(Self { cookie: secret()?, key: secret()?, state })
    }

    /// The code that opens the page now.
    pub(super) fn code(&self) -> String {
        self.state.lock().code.clone()
    }

    /// The secrets that the browser gets for the right code: the value of its cookie, and the key.
    pub(super) fn secrets(&self) -> (&str, &str) {
        (&self.cookie, &self.key)
    }

    /// The number of times that the page was entered.
    pub(super) fn entries(&self) -> usize {
        self.state.lock().entries
    }

    /// Tries a code. Blanks and hyphens in it, and the case of its letters, do not matter.
    pub(super) fn enter(&self, tried: &str) -> Result<TriedCode, NoChance> {
        let is_part = |character: &char| !matches!(character, '-' | ' ');
        let tried: String = tried.chars().filter(is_part).map(|char| char.to_ascii_uppercase()).collect();
        let mut state = self.state.lock();
        let expected: String = state.code.chars().filter(is_part).collect();
        if expected.as_bytes().ct_eq(tried.as_bytes()).into() {
            *state = LockState { code: code()?, wrong: 0, entries: state.entries + 1 };
            return Ok(TriedCode::Right);
        }
        state.wrong = state.wrong.saturating_add(1);
        Ok(if state.wrong == TRIES { TriedCode::Guessed } else { TriedCode::Wrong })
    }

    /// Whether a request has both secrets.
    pub(super) fn admits(&self, cookie: &[u8], key: &[u8]) -> bool {
        (self.cookie.as_bytes().ct_eq(cookie) & self.key.as_bytes().ct_eq(key)).into()
    }
}

fn secret() -> Result<String, NoChance> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoChance)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// A new code, in two halves.
fn code() -> Result<String, NoChance> {
    let chance = SystemRandom::new();
    let mut code = String::with_capacity(CODE_CHARS + 1);
    // Beyond it, some letters would be likelier than others.
    let even = u8::MAX - u8::MAX % ALPHABET.len() as u8;
    while code.len() < CODE_CHARS + 1 {
        let mut byte = [0];
        chance.fill(&mut byte).map_err(|_| NoChance)?;
        if byte[0] >= even {
            continue;
        }
        if code.len() == CODE_CHARS / 2 {
            code.push('-');
        }
        code.push(char::from(ALPHABET[usize::from(byte[0]) % ALPHABET.len()]));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_opens_once() {
        let lock = PageLock::new().unwrap();
        let code = lock.code();
        assert!(code.len() == 9 && code.as_bytes()[4] == b'-', "{code}");
        assert_eq!(lock.enter(&code.replace('-', " ").to_lowercase()).unwrap(), TriedCode::Right);
        assert_eq!(lock.entries(), 1);
        assert_eq!(lock.enter(&code).unwrap(), TriedCode::Wrong);
        assert_eq!(lock.enter(&lock.code()).unwrap(), TriedCode::Right);
    }

    #[test]
    fn wrong_codes_are_reported_once_and_change_nothing() {
        let lock = PageLock::new().unwrap();
        let code = lock.code();
        for number in 1..10 * TRIES {
            let expected = if number == TRIES { TriedCode::Guessed } else { TriedCode::Wrong };
            assert_eq!(lock.enter("2222-2222").unwrap(), expected);
        }
        assert_eq!((lock.code(), lock.entries()), (code.clone(), 0));
        assert_eq!(lock.enter(&code).unwrap(), TriedCode::Right);
    }

    #[test]
    fn both_secrets_are_needed() {
        let lock = PageLock::new().unwrap();
        let (cookie, key) = lock.secrets();
        assert_eq!(cookie.len(), 43);
        assert!(lock.admits(cookie.as_bytes(), key.as_bytes()));
        assert!(!lock.admits(cookie.as_bytes(), cookie.as_bytes()));
        assert!(!lock.admits(key.as_bytes(), key.as_bytes()));
        assert!(!lock.admits(b"", b""));
        assert_ne!(PageLock::new().unwrap().secrets(), lock.secrets());
    }
}
