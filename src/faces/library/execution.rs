//! Running code: a stream of events, ending with its result.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use super::error::result_of;
use super::numbered_session::NumberedSession;
use super::{Code, CodeExecutionError, CodeExecutionResult};
use crate::approval::{ApprovalQueue, ApprovalRequest, Approver};
use crate::ground::text::cell_id;
use crate::session::{Cell, CellRequester, Error, Outcome};

/// The number of unread chunks of output that are queued before the kernel has to wait.
const CHUNKS_CAPACITY: usize = 64;

/// An event of running code.
#[derive(Debug)]
#[non_exhaustive]
pub enum CodeExecutionEvent {
    /// The code calls a tool and waits for approval.
    ApprovalRequest(ApprovalRequest),
    /// The code has produced output. Only with [`Code::with_chunks`].
    Chunk(CodeExecutionChunk),
    /// The code has run to its end. Nothing follows.
    Result(CodeExecutionResult),
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodeExecutionChunk {
    /// The text, with terminal control characters as the code wrote them.
    pub text: String,
}

/// The outcome of a cell, which is queued on the first poll.
type PendingOutcome = Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send + Sync>>;

/// Running code: a [`Stream`] of [`CodeExecutionEvent`]s that ends with the result or the error.
///
/// It does nothing before it is polled. Dropping it cancels the code: at once if it is queued, by an
/// interrupt if it runs. It may be polled slowly, but then approval requests wait, and code that prints much
/// waits until its chunks are read.
#[must_use = "code does not run before its stream is polled"]
pub struct CodeExecution {
    requests: mpsc::Receiver<ApprovalRequest>,
    chunks: Option<mpsc::Receiver<String>>,
    outcome: Option<PendingOutcome>,
    /// The number of the code in its session.
    cell: u64,
    finished: Option<Result<CodeExecutionResult, CodeExecutionError>>,
    _cancel_on_drop: DropGuard,
}

impl CodeExecution {
    /// Code whose tool calls need approval.
    pub(super) fn asking(session: &NumberedSession, code: Code) -> Self {
        let (queue, requests) = ApprovalQueue::new();
        Self::new(session, code, Approver::User(queue), requests)
    }

    /// Code whose tool calls run, unless the policy denies them.
    pub(super) fn consented(session: &NumberedSession, code: Code) -> Self {
        // The sender is dropped: no request will arrive.
        let (_, requests) = ApprovalQueue::new();
        Self::new(session, code, Approver::Consent, requests)
    }

    fn new(
        session: &NumberedSession,
        code: Code,
        approver: Approver,
        requests: mpsc::Receiver<ApprovalRequest>,
    ) -> Self {
        let cancel = session.cell_token();
        let (sender, chunks) = if code.has_chunks {
            let (sender, receiver) = mpsc::channel(CHUNKS_CAPACITY);
            (Some(sender), Some(receiver))
        } else {
            (None, None)
        };
        let cell_cancel = cancel.clone();
        let number = session.next_cell();
        let session = Arc::clone(session);
        let outcome = async move {
            let cell = Cell {
                code: code.source,
                timeout: code.timeout,
                max_output_chars: code.max_output_chars,
                cancel: cell_cancel,
                chunks: sender,
                unread: None,
                approver,
                client: None,
                has_views: false,
                author: CellRequester::Agent,
                id: Some(number),
            };
            session.execute(cell).await.outcome().await
        };
        Self {
            requests,
            chunks,
            outcome: Some(Box::pin(outcome)),
            cell: number,
            finished: None,
            _cancel_on_drop: cancel.drop_guard(),
        }
    }

    /// The result of code, without its events.
    pub(super) async fn end(mut self) -> Result<CodeExecutionResult, CodeExecutionError> {
        while let Some(event) = self.next().await {
            match event? {
                CodeExecutionEvent::Result(result) => return Ok(result),
                CodeExecutionEvent::ApprovalRequest(_) | CodeExecutionEvent::Chunk(_) => {}
            }
        }
        Err(CodeExecutionError::Unavailable("run the code: the execution ended without a result".into()))
    }

    /// The next event; `None` after the result or the error. Cancellation safe.
    pub async fn next(&mut self) -> Option<Result<CodeExecutionEvent, CodeExecutionError>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for CodeExecution {
    type Item = Result<CodeExecutionEvent, CodeExecutionError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while let Poll::Ready(Some(request)) = this.requests.poll_recv(context) {
            // A grant that was given meanwhile may have answered it, or its code waits no more.
            if this.finished.is_none() && !request.is_closed() {
                request.hand_out();
                return Poll::Ready(Some(Ok(CodeExecutionEvent::ApprovalRequest(request))));
            }
        }
        // Chunks first: the outcome does not overtake chunks that have arrived.
        if let Some(outcome) = &mut this.outcome
            && let Poll::Ready(outcome) = outcome.as_mut().poll(context)
        {
            this.outcome = None;
            let finished = outcome.map_err(CodeExecutionError::unavailable);
            this.finished = Some(finished.and_then(|outcome| result_of(outcome, cell_id(this.cell))));
        }
        if let Some(chunks) = &mut this.chunks
            && let Poll::Ready(Some(text)) = chunks.poll_recv(context)
        {
            return Poll::Ready(Some(Ok(CodeExecutionEvent::Chunk(CodeExecutionChunk { text }))));
        }
        match this.finished.take() {
            Some(finished) => Poll::Ready(Some(finished.map(CodeExecutionEvent::Result))),
            None if this.outcome.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for CodeExecution {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CodeExecution").finish_non_exhaustive()
    }
}
