//! The commands that wait in a session's queue, with the receivers of their results.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::cell::{Cell, Outcome};
use super::exit::KernelExit;
use super::permissions::ToldPermissions;
use super::site::{BranchFailure, BranchedSite};
use super::undo::{UndoClaim, UndoResult};
use crate::ground::telemetry::Context;
use crate::kernels::kernel::{CodeInquiry, CodeInsight};
use crate::kernels::sandbox::ClientPermissions;
use crate::tools::tool_server::ToolEndpoint;

/// Receives a branch, or why there is none; an error if the session has no kernel.
pub(super) type BranchReceiver = oneshot::Sender<Result<Result<BranchedSite, BranchFailure>, Error>>;

/// A queued command.
pub(super) enum QueuedCommand {
    Execute {
        cell: Cell,
        generation: CancellationToken,
        /// The trace in which it was put into the queue.
        context: Context,
        reply: oneshot::Sender<Result<Outcome, Error>>,
    },
    Inquire {
        inquiry: CodeInquiry,
        reply: oneshot::Sender<Option<CodeInsight>>,
    },
    RefreshImports {
        changed: Option<String>,
    },
    /// Has kernels get no more than a client allows.
    Obey {
        client: Arc<ClientPermissions>,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Reset {
        client: ToldPermissions,
        reply: oneshot::Sender<Result<KernelExit, Error>>,
    },
    Undo {
        claim: Box<UndoClaim>,
        reply: oneshot::Sender<Result<UndoResult, Error>>,
    },
    Branch {
        /// The branch's.
        tool_server: Option<Arc<ToolEndpoint>>,
        reply: BranchReceiver,
    },
}
