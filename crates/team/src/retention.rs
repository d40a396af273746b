//! Applies the retention of the configuration, when the server starts and each day.

use std::sync::Arc;

use crate::config::{DAY, RetentionSettings};
use crate::describe;
use crate::users::{SessionStarter, TeamAccount, UserAccounts};

/// Removes the records of users, and what those who have gone have left, as the configuration says.
pub(crate) struct RetentionTask {
    pub(crate) accounts: Arc<UserAccounts>,
    pub(crate) starter: Arc<SessionStarter>,
    pub(crate) settings: RetentionSettings,
}

impl RetentionTask {
    /// Removes what is old, now and each day. What cannot be removed is logged, and tried again the next day.
    pub(crate) async fn apply_daily(self) {
        loop {
            self.apply().await;
            tokio::time::sleep(DAY).await;
        }
    }

    async fn apply(&self) {
        self.blocking("control groups", |accounts| {
            accounts.remove_empty_groups().map_err(|error| describe(&error))
        })
        .await;
        self.blocking("what users have left", |accounts| {
            accounts.remove_left().map_err(|error| error.to_string())
        })
        .await;
        let accounts = match self.accounts.list() {
            Ok(accounts) => accounts,
            Err(error) => return tracing::error!(error = %describe(&error), "nothing old is removed"),
        };
        if let Some(kept) = self.settings.audit {
            for TeamAccount { key, .. } in accounts {
                self.blocking("an audit log", move |accounts| {
                    let removed = accounts.remove_old_logs(&key, kept);
                    let removed = removed.map_err(|error| format!("{key}: {error}"))?;
                    if removed > 0 {
                        tracing::info!(user = %key, removed, "old files of an audit log are removed");
                    }
                    Ok(())
                })
                .await;
            }
        }
        self.remove_gone().await;
    }

    /// Removes what users have left who have not been seen for a time, and have no session.
    async fn remove_gone(&self) {
        let Some(kept) = self.settings.users else { return };
        let gone = match self.accounts.gone(kept) {
            Ok(gone) => gone,
            Err(error) => return tracing::error!(error = %describe(&error), "nothing of users is removed"),
        };
        for user in gone {
            match self.has_sessions(&user).await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::info!(user = %user.key, "a user who has not been seen for long has sessions");
                    continue;
                }
                Err(why) => {
                    tracing::warn!(user = %user.key, %why, "it is not known whether a user has sessions");
                    continue;
                }
            }
            self.blocking("what a user has left", move |accounts| {
                let removed = accounts.remove_belongings(&user.key, kept);
                if removed.map_err(|error| format!("{}: {error}", user.key))? {
                    tracing::info!(user = %user.key, "all but the audit log of a user is removed");
                }
                Ok(())
            })
            .await;
        }
    }

    async fn has_sessions(&self, user: &TeamAccount) -> Result<bool, String> {
        let place = self.accounts.place_of(user).map_err(|error| describe(&error))?;
        let output = self.starter.admin_command(&place, &["--json"]).output().await;
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let sessions: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(!sessions.is_empty())
    }

    /// Does something on a thread that may wait for the disk; its failure is logged.
    async fn blocking(
        &self,
        what: &'static str,
        work: impl FnOnce(&UserAccounts) -> Result<(), String> + Send + 'static,
    ) {
        let accounts = Arc::clone(&self.accounts);
        let done = tokio::task::spawn_blocking(move || work(&accounts)).await;
        if let Err(why) = done.map_err(|error| error.to_string()).flatten() {
            tracing::warn!(%why, "{what} could not be removed");
        }
    }
}
