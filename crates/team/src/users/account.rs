//! The belongings of a user: an entry in the list of accounts, and a directory.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::UserSettings;
use crate::login::{TeamUser, UserIdentity};
use crate::storage::{now, replace};
use crate::users::{UserLimits, UserSystem};

/// The number of hexadecimal digits of a user's key: enough for none to meet, few enough for the paths of sockets.
const KEY_DIGITS: usize = 20;
/// The number of hexadecimal digits by which the servers of a machine differ.
const SERVER_DIGITS: usize = 8;
/// The key of nobody.
const PROBE: &str = "probe";
/// The file of a user's audit log; others beside it begin with its name.
pub(super) const AUDIT_LOG: &str = "log.jsonl";
/// The interval at which the presence of a user is noted, in seconds.
pub(super) const SEEN_SECONDS: u64 = 3600;

/// Why a user cannot have what belongs to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// A directory or file cannot be made or read.
    #[error("keep what belongs to users in `{}`", path.display())]
    Files {
        /// It.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory belongs to somebody else.
    #[error(
        "keep what belongs to users in `{}`: others can write it\n\
         hint: make it the server's own: `chmod go-w`, and `chown` to the server's user", path.display()
    )]
    Shared {
        /// The directory.
        path: PathBuf,
    },
    /// Another server keeps its users there.
    #[error(
        "keep what belongs to users in `{}`: another server does\n\
         hint: stop it, or give this one a `server.state_dir` of its own", path.display()
    )]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// The server cannot give users ids of the system.
    #[error(
        "give each user an id of the system: the server does not run as root\n\
         hint: start it as root, or say by `users.share_id = true` that users may reach what belongs to each other: their MCP servers \
         are in no sandbox"
    )]
    NoRoot,
    /// Nothing holds the limits of users.
    #[error(
        "hold the limits of `users`: {why}\n\
         hint: leave them out, or start the server where it may make control groups: as a service with `Delegate=yes`"
    )]
    Limits {
        /// Why.
        why: String,
    },
    /// All ids are taken.
    #[error("find an id for a user: all of `users.ids` are taken\nhint: make the range larger")]
    NoIds,
}

/// A user of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamAccount {
    /// The name of what belongs to the user on this machine.
    pub key: String,
    /// The issuer, which vouches for the user.
    pub issuer: String,
    /// The issuer's id of the user.
    pub subject: String,
    /// The name that the user was last seen with.
    pub name: String,
    /// The id of the system's user whose processes are the user's; `None` if they are the server's.
    pub id: Option<u32>,
    /// When the user first came, in seconds since 1970.
    pub created: u64,
    /// When the user was last seen, in seconds since 1970.
    pub seen: u64,
}

/// The place of a user on this machine.
#[derive(Debug)]
pub(crate) struct UserPlace {
    pub(crate) key: String,
    pub(crate) id: Option<u32>,
    /// The directories of the control groups that the user's processes are in.
    pub(crate) groups: Vec<PathBuf>,
    directory: PathBuf,
}

impl UserPlace {
    /// A place of the server's own user.
    #[cfg(test)]
    pub(super) fn at(directory: &Path) -> Self {
        Self { key: "a".to_owned(), id: None, groups: Vec::new(), directory: directory.to_owned() }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.join("workspace")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub(crate) fn audit(&self) -> PathBuf {
        self.directory.join("audit")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.audit().join(AUDIT_LOG)
    }
}

/// All users.
pub(crate) struct UserAccounts {
    pub(super) state_dir: PathBuf,
    /// The ids for users; `None` if the server cannot give any.
    ids: Option<std::ops::Range<u32>>,
    pub(super) system: UserSystem,
    limits: UserLimits,
    pub(super) places: Mutex<HashMap<String, (u64, Arc<UserPlace>)>>,
}

impl UserAccounts {
    /// Those in the directory of a server.
    pub(crate) fn open(
        state_dir: &Path,
        settings: &UserSettings,
        system: UserSystem,
    ) -> Result<Self, AccountError> {
        let ids = rustix::process::geteuid()
            .is_root()
            // The last one is nobody's.
            .then(|| settings.first_id..settings.first_id.saturating_add(settings.ids - 1));
        if ids.is_none() && !settings.share_id {
            return Err(AccountError::NoRoot);
        }
        // Users pass through it to what is theirs.
        let mode = if ids.is_some() { 0o711 } else { 0o700 };
        make(state_dir, mode)?;
        make(&state_dir.join("users"), mode)?;
        make(&state_dir.join("accounts"), 0o700)?;
        make(&state_dir.join("sessions"), 0o700)?;
        make(&state_dir.join("action-sessions"), 0o700)?;
        make(&state_dir.join("approvals"), mode)?;
        make(&state_dir.join("approvals/decided"), 0o700)?;
        // Users read what is published.
        make(&state_dir.join("actions"), if ids.is_some() { 0o755 } else { 0o700 })?;
        let limits = settings.limits();
        Ok(Self { state_dir: state_dir.to_owned(), ids, system, limits, places: Mutex::default() })
    }

    /// Keeps other servers away from the directory while the file is open.
    pub(crate) fn lock(&self) -> Result<File, AccountError> {
        let path = self.state_dir.join("server.lock");
        // Users cannot open it, and so not lock it.
        let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let failed = |source| AccountError::Files { path: path.clone(), source };
        let file = opened.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(AccountError::Taken { path: self.state_dir.clone() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The directory for what is known of sessions.
    pub(crate) fn sessions(&self) -> PathBuf {
        self.state_dir.join("sessions")
    }

    /// Whether users have ids of the system.
    pub(crate) fn has_ids(&self) -> bool {
        self.ids.is_some()
    }

    /// The directory for decisions, through which users pass to its socket.
    pub(crate) fn approvals(&self) -> PathBuf {
        self.state_dir.join("approvals")
    }

    /// The directory for what is known of sessions that call published actions.
    pub(crate) fn action_sessions(&self) -> PathBuf {
        self.state_dir.join("action-sessions")
    }

    /// The directory for published actions, which all users can read.
    pub(crate) fn actions(&self) -> PathBuf {
        self.state_dir.join("actions")
    }

    /// The directory for actions whose decisions are being written.
    pub(crate) fn decided_actions(&self) -> PathBuf {
        self.approvals().join("decided")
    }

    /// All accounts, the oldest first.
    pub(crate) fn list(&self) -> Result<Vec<TeamAccount>, AccountError> {
        let directory = self.state_dir.join("accounts");
        let failed = |source| AccountError::Files { path: directory.clone(), source };
        let mut accounts = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                accounts.push(read(&path).map_err(|source| AccountError::Files { path, source })?);
            }
        }
        accounts.sort_by_key(|account: &TeamAccount| account.created);
        Ok(accounts)
    }

    /// The place of a user, who gets one when first seen.
    pub(crate) fn place(&self, user: &TeamUser) -> Result<Arc<UserPlace>, AccountError> {
        let key = user_key(&user.identity);
        // Held all the while: two requests must not give two ids.
        let mut places = self.places.lock();
        if let Some((seen, place)) = places.get(&key)
            && now().saturating_sub(*seen) < SEEN_SECONDS
        {
            return Ok(Arc::clone(place));
        }
        let account = self.seen(&key, user)?;
        let place = Arc::new(self.place_of(&account)?);
        own(&place)?;
        places.insert(key, (account.seen, Arc::clone(&place)));
        Ok(place)
    }

    /// The place of nobody, to try things in.
    pub(crate) fn probe(&self) -> Result<UserPlace, AccountError> {
        let id = self.ids.as_ref().map(|ids| ids.end);
        let directory = self.state_dir.join("users").join(PROBE);
        let groups = self.groups(PROBE, id)?;
        let place = UserPlace { key: PROBE.to_owned(), id, groups, directory };
        own(&place)?;
        Ok(place)
    }

    /// The place of an account.
    pub(crate) fn place_of(&self, account: &TeamAccount) -> Result<UserPlace, AccountError> {
        let directory = self.state_dir.join("users").join(&account.key);
        let groups = self.groups(&account.key, account.id)?;
        Ok(UserPlace { key: account.key.clone(), id: account.id, groups, directory })
    }

    /// The control groups of a user: limits that nothing holds are an error, and no groups without limits are none.
    fn groups(&self, key: &str, id: Option<u32>) -> Result<Vec<PathBuf>, AccountError> {
        match (self.system.make_groups)(&self.group_name(key), id, &self.limits) {
            Ok(groups) => Ok(groups),
            Err(why) if self.limits == UserLimits::default() => {
                tracing::info!(%why, "users have no control groups of their own");
                Ok(Vec::new())
            }
            Err(why) => Err(AccountError::Limits { why }),
        }
    }

    /// The name of a user's control group: another server of this machine has another one for a user of this name.
    pub(super) fn group_name(&self, key: &str) -> String {
        let mut server = format!("{:x}", Sha256::digest(self.state_dir.as_os_str().as_bytes()));
        server.truncate(SERVER_DIGITS);
        format!("{key}-{server}")
    }

    /// The file of an account.
    fn account_file(&self, key: &str) -> PathBuf {
        self.state_dir.join("accounts").join(format!("{key}.json"))
    }

    /// The account with this key, as it is now.
    pub(crate) fn account(&self, key: &str) -> io::Result<TeamAccount> {
        read(&self.account_file(key))
    }

    /// Notes that a user is there; the account.
    fn seen(&self, key: &str, user: &TeamUser) -> Result<TeamAccount, AccountError> {
        let path = self.account_file(key);
        let failed = |source| AccountError::Files { path: path.clone(), source };
        let account = match read(&path) {
            Ok(account) => TeamAccount { seen: now(), name: user.name.clone(), ..account },
            Err(error) if error.kind() == io::ErrorKind::NotFound => TeamAccount {
                key: key.to_owned(),
                issuer: user.identity.issuer.clone(),
                subject: user.identity.subject.clone(),
                name: user.name.clone(),
                id: self.free_id()?,
                created: now(),
                seen: now(),
            },
            Err(error) => return Err(failed(error)),
        };
        write(&path, &account).map_err(failed)?;
        Ok(account)
    }

    fn free_id(&self) -> Result<Option<u32>, AccountError> {
        let Some(ids) = &self.ids else { return Ok(None) };
        let taken: Vec<u32> = self.list()?.into_iter().filter_map(|account| account.id).collect();
        ids.clone().find(|id| !taken.contains(id)).map(Some).ok_or(AccountError::NoIds)
    }
}

/// The key of a user: the same for the same issuer and subject, and for no others.
pub(crate) fn user_key(identity: &UserIdentity) -> String {
    let mut key = identity.fingerprint();
    key.truncate(KEY_DIGITS);
    key
}

/// Makes the directories of a user.
fn own(place: &UserPlace) -> Result<(), AccountError> {
    for path in [place.directory.clone(), place.home(), place.workspace(), place.state(), place.audit()] {
        let failed = |source| AccountError::Files { path: path.clone(), source };
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(failed)?,
        }
        if let Some(id) = place.id {
            // What was made, and no link that a program of the user has put there meanwhile.
            let made = rustix::fs::open(
                &path,
                OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            );
            let made = made.map_err(|error| failed(error.into()))?;
            std::os::unix::fs::fchown(made, Some(id), Some(id)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Makes a directory of the server's own, or finds that it is.
pub(super) fn make(path: &Path, mode: u32) -> Result<(), AccountError> {
    let failed = |source| AccountError::Files { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
    let metadata = std::fs::symlink_metadata(path).map_err(failed)?;
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !is_own || metadata.mode() & 0o022 != 0 {
        return Err(AccountError::Shared { path: path.to_owned() });
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)
}

fn read(path: &Path) -> io::Result<TeamAccount> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn write(path: &Path, account: &TeamAccount) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(account)?)
}

#[cfg(test)]
mod tests;
