//! Wraps each transport for rmcp: records which requests wait for an answer, and which answers the server has yet to
//! read, and drops what comes too early.

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, ServerRequest};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use crate::connections::mcp_client::messages::ExpectedAnswers;

/// A transport whose server's messages are read only as fast as the server reads our answers.
pub(crate) struct ThrottledTransport<T> {
    transport: T,
    answers: ExpectedAnswers,
    /// Whether the server has answered anything.
    has_answered: bool,
}

impl<T> ThrottledTransport<T> {
    pub(crate) fn new(transport: T, answers: ExpectedAnswers) -> Self {
        Self { transport, answers, has_answered: false }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ThrottledTransport<T> {
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
        loop {
            let message = self.transport.receive().await?;
            self.has_answered |= matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
            // Of what comes before the answer to `initialize`, rmcp uses pings alone. The rest it would log, with secrets.
            if self.has_answered || is_ping(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}

fn is_ping(message: &RxJsonRpcMessage<RoleClient>) -> bool {
    matches!(message, JsonRpcMessage::Request(request) if matches!(request.request, ServerRequest::PingRequest(_)))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use serde_json::{Value, json};

    use super::*;

    struct Given(VecDeque<Value>);

    impl Transport<RoleClient> for Given {
        type Error = Infallible;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            self.0.pop_front().map(|message| serde_json::from_value(message).unwrap())
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn only_pings_come_before_the_first_answer() {
        let message = |rest: Value| {
            let mut message = json!({"jsonrpc": "2.0"});
            message.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            message
        };
        let log = message(
            json!({"method": "notifications/message", "params": {"level": "info", "data": "TOKEN=hunter2"}}),
        );
        let ping = message(json!({"id": "a", "method": "ping"}));
        let roots = message(json!({"id": "b", "method": "roots/list"}));
        let answer = message(json!({"id": 0, "result": {}}));
        let given = [&log, &roots, &ping, &answer, &log, &roots].map(Value::clone);
        let mut throttle = ThrottledTransport::new(Given(given.into()), ExpectedAnswers::default());
        let mut received = Vec::new();
        while let Some(message) = throttle.receive().await {
            received.push(serde_json::to_value(message).unwrap()["id"].clone());
        }
        assert_eq!(received, [json!("a"), json!(0), json!(null), json!("b")]);
    }
}
