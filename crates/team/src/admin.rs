//! Operators look at the users of a server, and do things for them, beside the server, which need not run.

use std::path::PathBuf;

use serde_json::Value;

use crate::config::TeamConfig;
use crate::users::{AccountError, SessionStarter, TeamAccount, UserAccounts};

/// The users of a server, for its operator.
pub struct TeamAdmin {
    accounts: UserAccounts,
    starter: SessionStarter,
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
    /// The sessions of a user cannot be asked.
    #[error("ask for the sessions of `{key}`: {why}")]
    Sessions {
        /// The user's key.
        key: String,
        /// Why.
        why: String,
    },
}

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
        let accounts = UserAccounts::open(&config.server.state_dir, &config.users, |_, _, _| Ok(Vec::new()))?;
        Ok(Self { accounts, starter: SessionStarter::new(program, config.sessions.clone()) })
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

    /// The sessions of a user, as `ipybox sessions --json` has them.
    ///
    /// # Errors
    /// They cannot be asked.
    pub async fn sessions(&self, user: &TeamAccount) -> Result<Vec<Value>, AdminError> {
        let text = self.run(user, &["--json"]).await?;
        serde_json::from_slice(&text).map_err(|error| failed(user, error.to_string()))
    }

    /// Ends sessions of a user: those with these ids, or all that no client has. Returns the ids of those that have ended.
    ///
    /// # Errors
    /// One of them does not end.
    pub async fn end(&self, user: &TeamAccount, ids: &[String]) -> Result<Vec<Value>, AdminError> {
        let mut action = vec!["--json", "end"];
        if ids.is_empty() {
            action.push("--all");
        }
        action.extend(ids.iter().map(String::as_str));
        let text = self.run(user, &action).await?;
        serde_json::from_slice(&text).map_err(|error| failed(user, error.to_string()))
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
