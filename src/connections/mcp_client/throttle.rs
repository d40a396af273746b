//! Wraps each transport for rmcp: records which requests wait for an answer, and which answers the server has yet to
//! read.

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::answers::Answers;

/// A transport whose server's messages are read only as fast as the server reads our answers.
pub(super) struct Throttle<T> {
    transport: T,
    answers: Answers,
}

impl<T> Throttle<T> {
    pub(super) fn new(transport: T, answers: Answers) -> Self {
        Self { transport, answers }
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
        let unread = is_answer.then(|| self.answers.unread());
        let sending = self.transport.send(message);
        async move {
            let sent = sending.await;
            drop(unread);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.transport.receive().await
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}
