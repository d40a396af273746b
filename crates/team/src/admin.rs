//! Operators look at the users of a server, and do things for them, beside the server, which need not run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::actions::{KeptActions, TeamAction};
use crate::config::TeamConfig;
use crate::users::{AccountError, SessionStarter, TeamAccount, UserAccounts, UserSystem};

/// The users of a server, for its operator.
pub struct TeamAdmin {
    accounts: UserAccounts,
    starter: SessionStarter,
    actions: KeptActions,
}

/// Why something could not be done for a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The list of users cannot be read.
    #[error(transparent)]
    Accounts(#[from] AccountError),
    /// There is no such user.
    #[error("find the user `{name}`: {}", known(users))]
    Unknown {
        /// The name or key.
        name: String,
        /// The keys of those that there are.
        users: Vec<String>,
    },
    /// There is no such published action.
    #[error("find the published action `{0}`: `ipybox team actions list` lists them")]
    NoAction(String),
    /// The published actions cannot be read, or changed.
    #[error("use the published actions")]
    Actions(#[from] std::io::Error),
    /// A command in the name of a user has failed.
    #[error("do it in the name of `{key}`: {why}")]
    Sessions {
        /// The user's key.
        key: String,
        /// Why.
        why: String,
    },
}

/// No control groups: a command for a user is short.
const NO_SYSTEM: UserSystem = UserSystem {
    make_groups: |_, _, _| Ok(Vec::new()),
    remove_groups: |_| {},
    remove_tree: |_| Err(std::io::ErrorKind::Unsupported.into()),
};

fn known(users: &[String]) -> String {
    match users {
        [] => "nobody has come yet".to_owned(),
        users => format!("there are `{}`", users.join("`, `")),
    }
}

impl TeamAdmin {
    /// The users of the server with this configuration. `program` is `ipybox`.
    ///
    /// # Errors
    /// The list of users cannot be read.
    pub fn open(config: &TeamConfig, program: PathBuf) -> Result<Self, AdminError> {
        let accounts = UserAccounts::open(&config.server.state_dir, &config.users, NO_SYSTEM)?;
        Ok(Self {
            actions: KeptActions::in_directory(accounts.actions()),
            accounts,
            starter: SessionStarter::new(program, config.sessions.clone(), config.packages.clone()),
        })
    }

    /// All users who have come, the first one first.
    ///
    /// # Errors
    /// Their list cannot be read.
    pub fn users(&self) -> Result<Vec<TeamAccount>, AdminError> {
        Ok(self.accounts.list()?)
    }

    /// The user with this key, or the only one with this name or subject.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn user(&self, name: &str) -> Result<TeamAccount, AdminError> {
        let users = self.users()?;
        let matches = |user: &&TeamAccount| user.key == name || user.name == name || user.subject == name;
        let found: Vec<&TeamAccount> = users.iter().filter(matches).collect();
        match found[..] {
            [user] => Ok(user.clone()),
            _ => {
                let keys = users.iter().map(|user| format!("{} ({})", user.key, user.name)).collect();
                Err(AdminError::Unknown { name: name.to_owned(), users: keys })
            }
        }
    }

    /// The published actions, by name.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn actions(&self) -> Result<Vec<TeamAction>, AdminError> {
        Ok(self.actions.all()?)
    }

    /// The published action with this name, and all that was published.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn action(&self, name: &str) -> Result<(TeamAction, Value), AdminError> {
        let known = self.actions()?.into_iter().find(|action| action.name == name);
        let known = known.ok_or_else(|| AdminError::NoAction(name.to_owned()))?;
        let published = self.actions.action(&known.name, known.version)?;
        Ok((known, Value::Object(published)))
    }

    /// Removes a published action with all its versions.
    ///
    /// # Errors
    /// There is none, or it cannot be removed.
    pub fn remove_action(&self, name: &str) -> Result<(), AdminError> {
        let (known, _) = self.action(name)?;
        Ok(self.actions.remove(&known.name)?)
    }

    /// The sessions of a user, as `ipybox sessions --json` has them.
    ///
    /// # Errors
    /// They cannot be asked.
    pub async fn sessions(&self, user: &TeamAccount) -> Result<Vec<Value>, AdminError> {
        let text = self.run(user, &["--json"]).await?;
        serde_json::from_slice(&text).map_err(|error| failed(user, error.to_string()))
    }

    /// Ends sessions of a user: those with these ids, or all that no client has. Returns the ids of those that have ended; what
    /// has ended by itself is not among them.
    ///
    /// # Errors
    /// One of them does not end.
    pub async fn end(&self, user: &TeamAccount, ids: &[String]) -> Result<Vec<Value>, AdminError> {
        let mut action = vec!["--json", "end"];
        let known = if ids.is_empty() { Vec::new() } else { self.sessions(user).await? };
        let is_there = |id: &&String| known.iter().any(|session| session["id"] == id.as_str());
        let there: Vec<&str> = ids.iter().filter(is_there).map(String::as_str).collect();
        match (ids, &there[..]) {
            ([], _) => action.push("--all"),
            (_, []) => return Ok(Vec::new()),
            (_, there) => action.extend(there),
        }
        let text = self.run(user, &action).await?;
        serde_json::from_slice(&text).map_err(|error| failed(user, error.to_string()))
    }

    /// Prints the audit log of a user as events of OCSF, one a line, on stdout, with these flags of `ipybox audit`. Returns whether
    /// its chain is whole; the first break is named on stderr.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn audit(&self, user: &TeamAccount, flags: &[String]) -> Result<bool, AdminError> {
        let place = self.accounts.place_of(user)?;
        let files = log_files(&place.audit_log());
        if files.is_empty() {
            return Ok(true);
        }
        let actor =
            json!({"uid": user.subject, "name": user.name, "domain": user.issuer, "uid_alt": user.key});
        let flags = [flags, &["--user".to_owned(), actor.to_string()]].concat();
        let status = self.starter.audit_command(&place, &files, &flags).status().await;
        let status = status.map_err(|error| failed(user, error.to_string()))?;
        Ok(status.success())
    }

    async fn run(&self, user: &TeamAccount, action: &[&str]) -> Result<Vec<u8>, AdminError> {
        let place = self.accounts.place_of(user)?;
        let output = self.starter.admin_command(&place, action).output().await;
        let output = output.map_err(|error| failed(user, error.to_string()))?;
        if !output.status.success() {
            return Err(failed(user, String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Ok(output.stdout)
    }
}

fn failed(user: &TeamAccount, why: String) -> AdminError {
    AdminError::Sessions { key: user.key.clone(), why }
}

/// The files of a log that are there, the oldest first.
fn log_files(log: &Path) -> Vec<PathBuf> {
    let numbered = |number: u32| {
        let mut name = OsString::from(log);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let is_there = |file: &PathBuf| file.symlink_metadata().is_ok();
    // Retention may have removed any number of the oldest ones.
    let mut files: Vec<PathBuf> = (1..).map(numbered).take_while(is_there).collect();
    files.reverse();
    files.extend(Some(log.to_owned()).filter(is_there));
    files
}
