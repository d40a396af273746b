//! Decisions away from the terminal: questions that wait in sessions, and the people who answer them on a page.
//!
//! ```text
//! sessions ═ socket ═ board ─→ page ═ HTTP, with a login ═ browsers
//!                       │ ├──→ webhook
//!                       │ └──→ record of decisions
//!                       └────→ published actions
//! ```
//!
//! A session connects, says by its token whose it is, and asks; so nothing is lost when the server is killed. What it asks is
//! shown and not understood, but for actions that are to be published. Only a browser that has logged in answers.

mod board;
mod browsers;
mod hearing;
mod page;
mod question;
mod record;
mod routes;
mod web;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use tokio::io::DuplexStream;

use self::board::QuestionBoard;
pub(crate) use self::hearing::{ApprovalHearing, AskingSession};
use self::record::DecisionRecord;
pub(crate) use self::routes::{APPROVALS_PATH, ApprovalSite};
use self::webhook::ApprovalWebhook;
pub use self::webhook::WebhookError;
use crate::actions::{ActionCheck, TeamActions};
use crate::config::{ApprovalTable, TeamConfig};
use crate::login::UserAuthenticator;
use crate::users::UserAccounts;

/// The page of questions, which another crate has: a face for one person, who is known.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ApprovalPages {
    parts: fn(bool) -> Router,
    guarded: fn(&str, Router) -> Router,
    person: fn(DuplexStream) -> Router,
}

impl ApprovalPages {
    /// `parts` answers with the page, also to those who have not logged in; it leads to an identity provider, if one can log in
    /// there. `guarded` lets requests of the page with this origin
    /// through. `person` answers the requests of one person, for whom sessions speak on
    /// the stream.
    pub fn new(
        parts: fn(bool) -> Router,
        guarded: fn(&str, Router) -> Router,
        person: fn(DuplexStream) -> Router,
    ) -> Self {
        Self { parts, guarded, person }
    }
}

/// The side of the sessions, and that of browsers.
pub(crate) struct TeamApprovals {
    pub(crate) hearing: ApprovalHearing,
    pub(crate) site: Arc<ApprovalSite>,
}

/// The parts of the server that decisions need.
pub(crate) struct ApprovalParts {
    pub(crate) accounts: Arc<UserAccounts>,
    pub(crate) authenticator: Arc<UserAuthenticator>,
    pub(crate) client: reqwest::Client,
    pub(crate) pages: ApprovalPages,
    pub(crate) check_action: ActionCheck,
}

/// Why questions cannot be decided about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalSetupError {
    /// The files cannot be used.
    #[error("keep decisions in `{}`", path.display())]
    Files {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The webhook cannot be used.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
}

impl TeamApprovals {
    /// Has a board for questions, and a page and a record for answers.
    pub(crate) fn open(
        config: &TeamConfig,
        table: &ApprovalTable,
        parts: ApprovalParts,
    ) -> Result<Self, ApprovalSetupError> {
        let ApprovalParts { accounts, authenticator, client, pages, check_action } = parts;
        let path = accounts.approvals();
        let failed = |source| ApprovalSetupError::Files { path: path.clone(), source };
        let record = DecisionRecord::open(&path.join("decisions.jsonl")).map_err(failed)?;
        let is_allowed = |question: &str, digest: &str| {
            record.find(question).is_some_and(|decision| decision.is_allowed && decision.digest == digest)
        };
        let actions = config.actions.clone();
        let actions = actions.map(|table| TeamActions::open(&accounts, table, check_action, is_allowed));
        let actions = actions.transpose().map_err(failed)?;
        let board = Arc::new(QuestionBoard::new(record, actions));
        let origin = config.login.resource.url().origin().ascii_serialization();
        let webhook = match &table.webhook {
            Some(webhook) => Some(Arc::new(ApprovalWebhook::open(webhook, client, &origin)?)),
            None => None,
        };
        let site = Arc::new(ApprovalSite::new(Arc::clone(&board), authenticator, pages, origin));
        Ok(Self { hearing: ApprovalHearing { board, webhook }, site })
    }
}
