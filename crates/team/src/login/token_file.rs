//! The file with the users of a team that has no identity provider: hashes of tokens, never a token.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{ClaimedName, LOCAL_ISSUER, ProviderFault, TeamUser, TokenFault, TokenLoginError, UserIdentity};

/// The beginning of all tokens, by which scanners for secrets find a leaked one.
pub const TOKEN_PREFIX: &str = "ipybox_";
/// The number of random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// The largest file, in bytes; some ten thousand users.
const LARGEST: u64 = 4 * 1024 * 1024;
/// The longest name of a user or a group, in bytes.
const LONGEST_NAME: usize = 64;

/// A user of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalUser {
    /// The name, by which the user is known.
    pub name: String,
    /// The groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
    /// The SHA-256 of the token, in hexadecimal digits.
    sha256: TokenHash,
    /// The time at which the user was added, in seconds since 1970.
    pub created_secs: u64,
    /// The time at which the token ends; without one it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<u64>,
}

impl LocalUser {
    /// Whether the token has ended.
    pub fn is_expired(&self) -> bool {
        self.expires_secs.is_some_and(|end| end <= now_secs())
    }
}

/// A user to be added.
#[derive(Debug, Clone)]
pub struct NewUser {
    /// The name: letters, digits and `._@+-`.
    pub name: String,
    /// The groups, named likewise.
    pub groups: BTreeSet<String>,
    /// The time for which the token is valid.
    pub lifetime: Option<Duration>,
}

/// A token that was made just now; nothing else has it. `Debug` does not show it.
pub struct NewToken(String);

impl NewToken {
    /// The token, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NewToken")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct TokenHash([u8; 32]);

impl TokenHash {
    fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// The hash of a token, by which its user is found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalToken(TokenHash);

impl LocalToken {
    pub(super) fn of(token: &str) -> Self {
        Self(TokenHash::of(token))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash")
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hash.0.iter().fold(Self::new(), |mut text, byte| {
            // Texts take everything.
            write!(text, "{byte:02x}").ok();
            text
        })
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let wrong = "`sha256` has to be 64 hexadecimal digits";
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong);
        }
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong)?;
        }
        Ok(Self(hash))
    }
}

/// Why the file of tokens cannot be used, or a user not be added.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum TokenFileError {
    #[error("`{}` does not exist; add a user by `ipybox team user add NAME`", .0.display())]
    Missing(PathBuf),
    #[error("`{}` cannot be {done}", path.display())]
    Io {
        path: PathBuf,
        done: &'static str,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` {why}", path.display())]
    Unsafe { path: PathBuf, why: String },
    #[error("`{}` is no file of tokens: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("the user `{0}` exists; remove it first by `ipybox team user remove {0}`, which ends its token")]
    Exists(String),
    #[error("there is no user `{0}`; `ipybox team user list` lists them")]
    Nobody(String),
    #[error("{0:?} is no name; use up to {LONGEST_NAME} letters, digits, and `._@+-`")]
    Name(String),
    #[error("the token would end after the calendar does; give a shorter time")]
    Lifetime,
    #[error("the system has no random numbers")]
    Random,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTokens {
    users: Vec<LocalUser>,
}

/// The file of tokens.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<ReadTokens>>,
}

#[derive(Debug)]
struct ReadTokens {
    stamp: FileStamp,
    users: Arc<[LocalUser]>,
}

/// The state of a file by which a change is noticed: each writer makes a new one.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    changed: (i64, i64),
}

impl FileStamp {
    fn of(file: &fs::Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.len(),
            mode: file.mode(),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl TokenFile {
    /// The file at this path, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: Mutex::default() }
    }

    /// Adds a user. The token that is returned is written nowhere.
    ///
    /// # Errors
    /// The user exists, has no proper name, or the file cannot be written.
    pub fn add(&self, user: NewUser) -> Result<NewToken, TokenFileError> {
        for name in user.groups.iter().chain([&user.name]) {
            if !is_name(name) {
                return Err(TokenFileError::Name(name.clone()));
            }
        }
        let created_secs = now_secs();
        let end = |lifetime: Duration| {
            let end = created_secs.checked_add(lifetime.as_secs())?;
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end)).map(|_| end)
        };
        let expires_secs =
            user.lifetime.map(|lifetime| end(lifetime).ok_or(TokenFileError::Lifetime)).transpose()?;
        let mut random = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| TokenFileError::Random)?;
        let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let sha256 = TokenHash::of(&token);
        self.change(|users| {
            if users.iter().any(|other| other.name == user.name) {
                return Err(TokenFileError::Exists(user.name));
            }
            users.push(LocalUser {
                name: user.name,
                groups: user.groups,
                sha256,
                created_secs,
                expires_secs,
            });
            Ok(())
        })?;
        Ok(NewToken(token))
    }

    /// The users, in the order in which they were added. None if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or others can write it.
    pub fn list(&self) -> Result<Vec<LocalUser>, TokenFileError> {
        match self.load() {
            Ok((_, users)) => Ok(users),
            Err(TokenFileError::Missing(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Removes a user, whose token is refused from now on.
    ///
    /// # Errors
    /// There is no such user, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), TokenFileError> {
        self.change(|users| {
            let index = users.iter().position(|user| user.name == name);
            users.remove(index.ok_or_else(|| TokenFileError::Nobody(name.to_owned()))?);
            Ok(())
        })
    }

    /// Reads the file, whatever was read before.
    ///
    /// # Errors
    /// As for [`Self::list`], or the file does not exist.
    pub fn check(&self) -> Result<(), TokenFileError> {
        self.load().map(|_| ())
    }

    /// The user whose token it is.
    pub(super) fn user(&self, token: &str) -> Result<TeamUser, TokenLoginError> {
        self.user_of(&LocalToken::of(token))
    }

    /// The same, by the token's hash.
    pub(super) fn user_of(&self, LocalToken(hash): &LocalToken) -> Result<TeamUser, TokenLoginError> {
        let users = self.users().map_err(|error| {
            tracing::error!(%error, "no tokens of local users");
            ProviderFault::new(self.path.display().to_string(), "cannot be used")
        })?;
        // All of them are compared, each in the same time: how long it takes says nothing about any.
        let found = users.iter().fold(None, |found, user| {
            if bool::from(user.sha256.0.ct_eq(&hash.0)) { Some(user) } else { found }
        });
        let user = found.ok_or(TokenFault::Unknown)?;
        if user.is_expired() {
            return Err(TokenFault::Expired.into());
        }
        Ok(TeamUser {
            identity: UserIdentity { issuer: LOCAL_ISSUER.to_owned(), subject: user.name.clone() },
            name: user.name.clone(),
            hub_user: ClaimedName { claim: "sub".to_owned(), value: user.name.clone() },
            groups: user.groups.clone(),
            scopes: BTreeSet::new(),
            expires_at: user.expires_secs.map(|end| SystemTime::UNIX_EPOCH + Duration::from_secs(end)),
        })
    }

    /// The users, read anew if the file has changed. A file on this machine is looked at faster than another thread is.
    fn users(&self) -> Result<Arc<[LocalUser]>, TokenFileError> {
        let mut read = self.read.lock();
        let stamp = match fs::metadata(&self.path) {
            Ok(file) => FileStamp::of(&file),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                *read = None;
                return Ok(Arc::default());
            }
            Err(cause) => return Err(self.io("read", cause)),
        };
        if let Some(read) = &*read
            && read.stamp == stamp
        {
            return Ok(Arc::clone(&read.users));
        }
        *read = None;
        let (stamp, users) = self.load()?;
        let users: Arc<[LocalUser]> = users.into();
        *read = Some(ReadTokens { stamp, users: Arc::clone(&users) });
        Ok(users)
    }

    fn load(&self) -> Result<(FileStamp, Vec<LocalUser>), TokenFileError> {
        let file = File::open(&self.path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => TokenFileError::Missing(self.path.clone()),
            _ => self.io("read", cause),
        })?;
        let metadata = file.metadata().map_err(|cause| self.io("read", cause))?;
        check_safe(&self.path, &metadata)?;
        let mut text = String::new();
        let bounded = file.take(LARGEST + 1).read_to_string(&mut text);
        bounded.map_err(|cause| self.io("read", cause))?;
        let malformed = |why: String| TokenFileError::Malformed { path: self.path.clone(), why };
        if text.len() as u64 > LARGEST {
            return Err(malformed(format!("it is larger than {LARGEST} bytes")));
        }
        let written: WrittenTokens =
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        Ok((FileStamp::of(&metadata), written.users))
    }

    /// Writes the file anew, as a whole. Other writers wait.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<LocalUser>) -> Result<(), TokenFileError>,
    ) -> Result<(), TokenFileError> {
        // Not by its name: it may be a link to where the file is.
        let path = match fs::canonicalize(&self.path) {
            Ok(path) => path,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => self.path.clone(),
            Err(cause) => return Err(self.io("read", cause)),
        };
        let written = |cause| self.io("written", cause);
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        // The lock of the directory ends with the process, and leaves no file behind.
        let lock = File::open(directory).map_err(written)?;
        lock.lock().map_err(written)?;
        let mut users = self.list()?;
        change(&mut users)?;
        let mut text =
            serde_json::to_string_pretty(&WrittenTokens { users }).map_err(|error| written(error.into()))?;
        text.push('\n');
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(written)?;
        file.write_all(text.as_bytes()).map_err(written)?;
        file.as_file().sync_all().map_err(written)?;
        file.persist(&path).map_err(|error| written(error.error))?;
        lock.sync_all().map_err(written)
    }

    fn io(&self, done: &'static str, cause: io::Error) -> TokenFileError {
        TokenFileError::Io { path: self.path.clone(), done, cause }
    }
}

/// Refuses a file that others could have written: they could add themselves.
fn check_safe(path: &Path, file: &fs::Metadata) -> Result<(), TokenFileError> {
    let refuse = |why: String| Err(TokenFileError::Unsafe { path: path.to_owned(), why });
    if !file.is_file() {
        return refuse("is no regular file".to_owned());
    }
    let user = rustix::process::geteuid().as_raw();
    if ![0, user].contains(&file.uid()) {
        return refuse(format!(
            "belongs to another user, number {}, who could add users; run `chown {user}` on it",
            file.uid()
        ));
    }
    match file.mode() & 0o022 {
        0 => Ok(()),
        _ => refuse(
            "can be written by other users, who could add themselves; run `chmod 600` on it".to_owned(),
        ),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-')
}

fn now_secs() -> u64 {
    // Before 1970 every token has ended.
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(u64::MAX, |time| time.as_secs())
}
