//! Removing what is not to be kept any longer: files of audit logs, all of users who have gone, control groups.
//!
//! Users can write in the directories that are theirs. So each step is taken from a descriptor, follows no link, and takes the
//! directories of users who have gone out of their reach before anything in them is removed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::account::{AUDIT_LOG, AccountError, SEEN_SECONDS, TeamAccount, UserAccounts};
use crate::storage::now;

/// The directory in which the server removes what users have left.
const LEFT: &str = "left";
/// The directories of a user that go when the user has gone.
const BELONGINGS: [&str; 3] = ["home", "workspace", "state"];

impl UserAccounts {
    /// The users who were last seen before this time, and have left something.
    pub(crate) fn gone(&self, kept: Duration) -> Result<Vec<TeamAccount>, AccountError> {
        let has_left = |account: &TeamAccount| {
            let directory = self.state_dir.join("users").join(&account.key);
            BELONGINGS.iter().any(|name| directory.join(name).symlink_metadata().is_ok())
        };
        let accounts = self.list()?.into_iter();
        Ok(accounts.filter(|account| is_older(account.seen, kept) && has_left(account)).collect())
    }

    /// Removes all but the audit log of a user, unless the user has come again. Returns whether it has. Blocks.
    pub(crate) fn remove_belongings(&self, key: &str, kept: Duration) -> io::Result<bool> {
        let place = self.take_away(key, kept)?;
        if let Some(place) = &place {
            (self.system.remove_tree)(place)?;
        }
        Ok(place.is_some())
    }

    /// Moves the directories of a user to where nobody but the server can reach them.
    fn take_away(&self, key: &str, kept: Duration) -> io::Result<Option<PathBuf>> {
        let mut places = self.places.lock();
        if !is_older(self.account(key)?.seen, kept) {
            return Ok(None);
        }
        places.remove(key);
        let left = self.left()?;
        let place = tempfile::Builder::new().prefix(key).tempdir_in(left)?.keep();
        let user = self.state_dir.join("users").join(key);
        for name in BELONGINGS {
            match std::fs::rename(user.join(name), place.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(Some(place))
    }

    /// Removes what an earlier process has not come to remove. Blocks.
    pub(crate) fn remove_left(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(self.left()?)? {
            (self.system.remove_tree)(&entry?.path())?;
        }
        Ok(())
    }

    fn left(&self) -> io::Result<PathBuf> {
        let left = self.state_dir.join(LEFT);
        super::account::make(&left, 0o700).map_err(io::Error::other)?;
        Ok(left)
    }

    /// Removes the files of a user's audit log whose last line is older than that; how many. The next file then begins after
    /// records that are not there, by whose hash its chain is known.
    pub(crate) fn remove_old_logs(&self, key: &str, kept: Duration) -> io::Result<usize> {
        let directory = match self.audit_directory(key) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            directory => directory?,
        };
        let mut removed = 0;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.to_bytes().starts_with(AUDIT_LOG.as_bytes()) {
                continue;
            }
            let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let written = u64::try_from(found.st_mtime).unwrap_or_default();
            if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && is_older(written, kept) {
                rustix::fs::unlinkat(&directory, name, AtFlags::empty())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The directory of a user's audit log, and not what a link in its place leads to.
    fn audit_directory(&self, key: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let user = rustix::fs::open(self.state_dir.join("users").join(key), flags, Mode::empty())?;
        Ok(rustix::fs::openat(user, "audit", flags, Mode::empty())?)
    }

    /// Removes the control groups of users who have been away for a time, and run nothing.
    pub(crate) fn remove_empty_groups(&self) -> Result<(), AccountError> {
        for account in self.list()? {
            // No request that has got a place is on its way to it, and none gets one meanwhile.
            let mut places = self.places.lock();
            let is_away = self.account(&account.key).is_ok_and(|account| is_older(account.seen, AWAY));
            if is_away {
                places.remove(&account.key);
                (self.system.remove_groups)(&self.group_name(&account.key));
            }
        }
        Ok(())
    }
}

/// The time after which no request of a user who was seen before is on its way.
const AWAY: Duration = Duration::from_secs(2 * SEEN_SECONDS);

/// Whether seconds since 1970 are further back than that.
fn is_older(seconds: u64, kept: Duration) -> bool {
    now().saturating_sub(seconds) > kept.as_secs()
}

#[cfg(test)]
mod tests;
