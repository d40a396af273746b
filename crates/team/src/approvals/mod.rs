//! Decisions away from the terminal: questions that wait in sessions, and the people who answer them on a page.
//!
//! ```text
//! sessions ═ socket ═ board ─→ page ═ HTTP, with a login ═ browsers
//!                       │ └──→ webhook
//!                       └────→ record of decisions
//! ```
//!
//! A session connects, says by its token whose it is, and asks; so nothing is lost when the server is killed. What it asks is
//! shown and not understood. Only a browser that has logged in answers.

mod board;
mod browsers;
mod page;
mod question;
mod record;
mod routes;
mod socket;
mod tokens;
mod web;
mod webhook;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use tokio::io::DuplexStream;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use self::board::QuestionBoard;
use self::record::DecisionRecord;
pub(crate) use self::routes::ApprovalSite;
use self::socket::ApprovalSocket;
pub(crate) use self::tokens::SessionTokens;
use self::webhook::ApprovalWebhook;
pub use self::webhook::WebhookError;
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

/// The files by which sessions reach the server for decisions.
pub(crate) struct ApprovalFiles {
    directory: PathBuf,
}

impl ApprovalFiles {
    pub(crate) fn of(accounts: &UserAccounts) -> Self {
        Self { directory: accounts.approvals() }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub(crate) fn tokens(&self) -> std::io::Result<SessionTokens> {
        SessionTokens::open(&self.directory.join("secret"))
    }

    fn decisions(&self) -> PathBuf {
        self.directory.join("decisions.jsonl")
    }
}

/// The side of the sessions, and that of browsers.
pub(crate) struct TeamApprovals {
    socket: Arc<ApprovalSocket>,
    listener: UnixListener,
    pub(crate) site: Arc<ApprovalSite>,
}

/// The parts of the server that decisions need.
pub(crate) struct ApprovalParts {
    pub(crate) accounts: Arc<UserAccounts>,
    pub(crate) authenticator: Arc<UserAuthenticator>,
    pub(crate) tokens: Arc<SessionTokens>,
    pub(crate) client: reqwest::Client,
    pub(crate) pages: ApprovalPages,
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
    /// Listens for sessions.
    pub(crate) fn open(
        config: &TeamConfig,
        table: &ApprovalTable,
        parts: ApprovalParts,
    ) -> Result<Self, ApprovalSetupError> {
        let ApprovalParts { accounts, authenticator, tokens, client, pages } = parts;
        let files = ApprovalFiles::of(&accounts);
        let failed = |source| ApprovalSetupError::Files { path: files.directory.clone(), source };
        let record = DecisionRecord::open(&files.decisions()).map_err(failed)?;
        let listener = socket::listen(Path::new(&files.socket())).map_err(failed)?;
        let board = Arc::new(QuestionBoard::new(record));
        let origin = config.login.resource.url().origin().ascii_serialization();
        let webhook = match &table.webhook {
            Some(webhook) => Some(Arc::new(ApprovalWebhook::open(webhook, client, &origin)?)),
            None => None,
        };
        let site = Arc::new(ApprovalSite::new(Arc::clone(&board), authenticator, pages, origin));
        let socket = Arc::new(ApprovalSocket { board, tokens, accounts, webhook });
        Ok(Self { socket, listener, site })
    }

    /// Hears sessions until `stop` is cancelled.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        self.socket.serve(self.listener, stop).await;
    }
}
