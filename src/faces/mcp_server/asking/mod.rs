//! Asks the user, through the MCP client, whether something may run.
//!
//! Up to protocol revision 2025-11-25 the server sends `elicitation/create` while it works on a call. Since
//! 2026-07-28 it sends no requests: it answers the call with the questions, and the client calls again with
//! the answers. The work goes on meanwhile, in a task of its own.

mod asking_turn;
mod elicit;
pub(super) mod follow;
mod invite;
pub(super) mod rounds;
pub(super) mod tasks;
mod waiting;

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::ProtocolVersion;
use rmcp::service::RequestContext;

pub(super) use self::asking_turn::AskingTurns;
pub(super) use self::waiting::{LeaveTime, WaitingRequest};
use super::attached::AttachedPeople;
use super::ledger::{CallQuestions, ClientPages};
use crate::approval::{ApprovalQueue, Approver};

/// Whether the call of a request may become a task. In a handshake of earlier revisions the extension may be declared by
/// clients that know only the tasks of revision 2025-11-25, such as the Inspector.
pub(super) fn has_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// The way to ask the user of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskVia {
    /// By the request `elicitation/create`; whether its mode `url` may be used too.
    Elicitation { opens_pages: bool },
    /// By the response to the call: the client calls again with the answers. The same of its mode `url`.
    Rounds { opens_pages: bool },
    /// Not at all.
    None,
}

/// The refusal if the client cannot ask its user.
const CANNOT_ASK: &str = "the MCP client does not support elicitation\n\
     hint: the user can allow calls beforehand in a policy file (`--approval policy --approval-policy FILE`), or allow \
     all of them (`--approval auto`); `--approval-ui` serves a page where the user is asked; with `--keep-session`, whoever is at the prompt of \
     `ipybox attach` or the page of `ipybox ui` is";

impl AskVia {
    /// The way in which the client of this request can ask its user.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // In revisions without modes every elicitation is a form.
        let has_forms = elicitation.as_ref().is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        let opens_pages = elicitation.is_some_and(|modes| modes.url.is_some());
        match context.protocol_version() {
            _ if !has_forms => Self::None,
            Some(version) if version >= ProtocolVersion::V_2026_07_28 => Self::Rounds { opens_pages },
            _ => Self::Elicitation { opens_pages },
        }
    }

    /// The approver for such a request, and the receiver of its approval requests. Those of a client that cannot ask its
    /// user are for the people who are `attached`.
    pub(super) fn approver(self, attached: &AttachedPeople) -> (Approver, Option<CallQuestions>) {
        match self {
            Self::None => (attached.approver(CANNOT_ASK), None),
            Self::Elicitation { opens_pages } | Self::Rounds { opens_pages } => {
                let pages = ClientPages { opens: opens_pages, approval: attached.page().cloned() };
                let (queue, receiver) = ApprovalQueue::of_dialogs(Arc::clone(attached.queue()));
                (Approver::User(Arc::clone(&queue)), Some(CallQuestions { queue, receiver, pages }))
            }
        }
    }
}
