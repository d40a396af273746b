#![doc = include_str!("../README.md")]

mod actions;
mod admin;
mod approvals;
mod check;
mod config;
mod front;
mod hub;
mod kernels;
pub mod login;
mod retention;
mod sandboxes;
mod server;
mod sessions;
mod socket;
mod storage;
mod upstream;
mod users;

use std::error::Error;

pub use self::actions::{ActionCheck, ActionTable, CheckedAction, TeamAction};
pub use self::admin::{AdminError, TeamAdmin};
pub use self::approvals::{ApprovalPages, ApprovalSetupError, WebhookError};
pub use self::check::TeamFinding;
pub use self::config::{
    ApprovalTable, ConfigError, PackageSettings, RetentionSettings, ServerSettings, SessionSettings,
    TeamApproval, TeamConfig, TeamSandbox, TlsFiles, UserSettings, WebhookTable,
};
pub use self::front::ListenError;
pub use self::hub::HubSetupError;
pub use self::kernels::{KernelTable, NamedPool};
pub use self::sandboxes::{
    ClaimReport, ClaimerSettings, KeptClaim, KnownClaim, OpenClaimer, SandboxClaimer, SandboxOwner,
    SandboxPlace, SandboxSetupError, TakenSandbox,
};
pub use self::server::{ServeError, TeamServer};
pub use self::upstream::{AuthorizationTable, ExchangeTable, UpstreamTable};
pub use self::users::{AccountError, MakeGroups, TeamAccount, UserLimits, UserSystem, become_user};

/// An error with its causes, in one line.
pub(crate) fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
