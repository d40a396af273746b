//! Wraps each transport for rmcp: records which requests wait for an answer, and limits the answers that a
//! server leaves unread.

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Semaphore;

use super::answers::Answers;

/// How many answers to requests of a server may wait until it reads them. At the limit, no more of its
/// messages are read.
const UNREAD_ANSWERS: usize = 64;

/// A transport that reads a server's messages only as fast as the server reads our answers.
pub(super) struct Throttle<T> {
    transport: T,
    answers: Answers,
    unread: Arc<Semaphore>,
}

impl<T> Throttle<T> {
    pub(super) fn new(transport: T, answers: Answers) -> Self {
        Self { transport, answers, unread: Arc::new(Semaphore::new(UNREAD_ANSWERS)) }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Throttle<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.answers.expect(&message);
        let is_answer = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        // At most one more for each task that answers already: then `receive` waits.
        let place = is_answer.then(|| Arc::clone(&self.unread).try_acquire_owned());
        let sending = self.transport.send(message);
        async move {
            let sent = sending.await;
            drop(place);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // An error means that it is closed, which it never is.
        self.unread.acquire().await.ok();
        self.transport.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}
