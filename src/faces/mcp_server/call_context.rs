//! The context of a call of a tool.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::arrivals::ArrivalTurn;
use super::progress::ProgressNotifier;
use crate::approval::Approver;
use crate::kernels::output::UnreadText;
use crate::session::ToldPermissions;

/// The context of a call, beside its arguments.
pub(super) struct CallContext {
    /// Cancelled when the client no longer wants the answer.
    pub(super) cancelled: CancellationToken,
    /// Sends progress notifications, if the client wants them.
    pub(super) progress: Option<ProgressNotifier>,
    /// Passed on to the next call as soon as this one is in the session's queue.
    pub(super) turn: ArrivalTurn,
    /// Decides about what the tool does.
    pub(super) approver: Approver,
    /// The permissions of the client.
    pub(super) permissions: ToldPermissions,
    /// The number of its cell, if its agent can know it.
    pub(super) cell: Option<u64>,
    /// Gets what a cell prints, if a request may stop waiting for it.
    pub(super) unread: Option<Arc<UnreadText>>,
    /// Whether the answer has links to resources.
    pub(super) has_links: bool,
    /// Whether the client shows views.
    pub(super) has_views: bool,
}
