//! Requests to a server, with an [`AnswerPlace`] for an answer that is too large for rmcp.

mod mcp_failure;
pub(super) mod traced_server;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolResponse, CallToolResult, CancelledNotificationParam, ClientRequest, GetExtensions,
    GetPromptResponse, GetPromptResult, InputRequiredResult, ReadResourceResponse, ReadResourceResult,
    RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

pub(super) use self::mcp_failure::{McpFailure, URL_BYTES};
use self::traced_server::TracedServer;
use crate::connections::mcp_client::messages::lenient::LenientResult;
use crate::connections::mcp_client::messages::{
    AnswerEnvelope, AnswerPlace, ArrivedAnswer, JsonDocument, ResultKind,
};
use crate::ground::budget::{ANSWERS, Lease, apart};
use crate::ground::telemetry::Operation;

/// An answer that a request may have.
pub(super) trait ExpectedAnswer: Sized + Send + 'static {
    /// The form that a large answer has.
    type Large: DeserializeOwned + Into<Self> + Send + 'static;

    /// The kind of its result.
    const KIND: ResultKind;

    /// Converts rmcp's parsed result.
    fn from_result(result: ServerResult) -> Option<Self>;

    /// The server's needs before it can answer, if this is no answer yet.
    fn input_required(&self) -> Option<InputRequiredResult> {
        None
    }
}

/// An answer, its weight, and its memory lease.
pub(super) struct AnsweredRequest<T> {
    pub(super) answer: T,
    pub(super) weight: usize,
    pub(super) lease: Lease,
    /// The request, until the answer is read.
    pub(super) operation: Operation,
}

/// The answers to requests for which a server may need input first, and other answers to one of them.
macro_rules! response {
    ($response:ident, $result:ident, $kind:ident $(, $other:ident: $variant:ident)*) => {
        impl ExpectedAnswer for $response {
            type Large = $result;

            const KIND: ResultKind = ResultKind::$kind;

            fn from_result(result: ServerResult) -> Option<Self> {
                match result {
                    ServerResult::$result(result) => Some(Self::Complete(result)),
                    ServerResult::InputRequiredResult(needed) => Some(Self::InputRequired(needed)),
                    $(ServerResult::$other(result) => Some(Self::$variant(result)),)*
                    _ => None,
                }
            }

            fn input_required(&self) -> Option<InputRequiredResult> {
                match self {
                    Self::InputRequired(needed) => Some(needed.clone()),
                    _ => None,
                }
            }
        }
    };
}

response!(CallToolResponse, CallToolResult, Call, CreateTaskResult: Task);
response!(ReadResourceResponse, ReadResourceResult, Resource);
response!(GetPromptResponse, GetPromptResult, Prompt);

/// Makes `request` and waits for its answer. Dropping the future cancels the request at the server.
pub(super) async fn request<T: ExpectedAnswer>(
    peer: &Peer<RoleClient>,
    traced: &TracedServer,
    mut request: ClientRequest,
) -> Result<AnsweredRequest<T>, McpFailure> {
    let mut operation = traced.begin(peer, &mut request);
    match answered(peer, request, &operation).await {
        Ok((answer, weight, lease)) => {
            operation.succeeds();
            Ok(AnsweredRequest { answer, weight, lease, operation })
        }
        Err(failure) => {
            traced_server::failed(&mut operation, &failure);
            Err(failure)
        }
    }
}

async fn answered<T: ExpectedAnswer>(
    peer: &Peer<RoleClient>,
    mut request: ClientRequest,
    operation: &Operation,
) -> Result<(T, usize, Lease), McpFailure> {
    let place = AnswerPlace::new(T::KIND);
    request.extensions_mut().insert(place.clone());
    let handle = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    operation.has_id(|| handle.id.to_string());
    let mut abandoned = Abandoned { peer, id: Some(handle.id.clone()) };
    let result = handle.await_response().await;
    abandoned.id = None;
    let (weight, lease) = match place.take() {
        Some(ArrivedAnswer::Here(document)) => return read(document).await,
        Some(ArrivedAnswer::Refused(reason)) => return Err(McpFailure::Unusable { reason }),
        Some(ArrivedAnswer::WithRmcp { weight, lease }) => (weight, lease),
        // The transport has failed, or received no valid answer.
        None => (0, ANSWERS.lease()),
    };
    let answer = T::from_result(result?).ok_or(ServiceError::UnexpectedResponse)?;
    Ok((answer, weight, lease))
}

async fn read<T: ExpectedAnswer>(document: JsonDocument) -> Result<(T, usize, Lease), McpFailure> {
    let weight = document.weight;
    let unusable =
        |why: String| McpFailure::Unusable { reason: format!("the server's answer cannot be read: {why}") };
    let reading = apart(weight, move || {
        let read = document.read::<T::Large>(T::KIND);
        (read, document.lease)
    });
    let (read, lease) = reading.await.map_err(|error| unusable(error.to_string()))?;
    match read.map_err(|error| unusable(error.to_string()))? {
        AnswerEnvelope { error: Some(error), .. } => Err(ServiceError::McpError(error).into()),
        AnswerEnvelope { result: Some(LenientResult::Result(answer)), .. } => {
            Ok((answer.into(), weight, lease))
        }
        AnswerEnvelope { result: Some(LenientResult::InputRequired(needed)), .. } => {
            let answer = T::from_result(ServerResult::InputRequiredResult(needed));
            Ok((answer.ok_or(ServiceError::UnexpectedResponse)?, weight, lease))
        }
        AnswerEnvelope { .. } => Err(ServiceError::UnexpectedResponse.into()),
    }
}

/// Cancels a request if its caller drops it.
struct Abandoned<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        // Without a runtime there is no connection any more either.
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let peer = self.peer.clone();
        // A lost cancellation makes no difference to us.
        runtime.spawn(async move {
            let cancelled =
                CancelledNotificationParam::new(Some(id), Some("nobody waits for it any more".to_owned()));
            peer.notify_cancelled(cancelled).await.ok();
        });
    }
}
