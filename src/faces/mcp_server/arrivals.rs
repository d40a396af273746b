//! Records what only the transport knows: the order in which requests arrived, and the end of the input.
//!
//! Handlers run as tasks of their own, so that two calls sent one after the other may start in either
//! order. Each request gets a turn when it is read, and waits for the turn before it.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rmcp::model::{ClientRequest, Extensions, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A transport that attaches a turn to each tool call and notices the end of the input.
pub(super) struct ArrivalTransport<T> {
    transport: T,
    /// Resolves when the newest turn has been passed on.
    last: Option<oneshot::Receiver<()>>,
    /// The number of calls that have arrived.
    calls: u64,
    closed: CancellationToken,
}

/// A call's position in the order of arrival. Dropping it passes the turn on.
#[derive(Default)]
pub(super) struct ArrivalTurn {
    before: Option<oneshot::Receiver<()>>,
    _after: Option<oneshot::Sender<()>>,
}

/// When a call arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallArrival {
    /// Greater than that of every earlier call.
    pub(super) number: u64,
    pub(super) at: Instant,
}

impl CallArrival {
    /// The arrival of the request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self { number: 0, at: Instant::now() })
    }
}

/// Request extensions must be `Clone`; a turn is taken out once.
#[derive(Clone)]
struct TurnStamp(Arc<Mutex<Option<ArrivalTurn>>>);

impl<T> ArrivalTransport<T> {
    /// Wraps `transport`; cancels `closed` at the end of its input.
    pub(super) fn new(transport: T, closed: CancellationToken) -> Self {
        Self { transport, last: None, calls: 0, closed }
    }

    fn next_turn(&mut self) -> ArrivalTurn {
        let (after, receiver) = oneshot::channel();
        ArrivalTurn { before: self.last.replace(receiver), _after: Some(after) }
    }
}

impl ArrivalTurn {
    /// The turn of the request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        let stamp = extensions.get::<TurnStamp>();
        let turn = stamp.and_then(|stamp| stamp.0.lock().take());
        turn.unwrap_or_default()
    }

    /// Waits until every request that arrived earlier has passed on its turn.
    pub(super) async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            // Passing a turn on is dropping its sender, which is received as an error.
            before.await.ok();
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for ArrivalTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let Some(mut message) = self.transport.receive().await else {
            self.closed.cancel();
            return None;
        };
        if let JsonRpcMessage::Request(request) = &mut message
            && let ClientRequest::CallToolRequest(call) = &mut request.request
        {
            let turn = self.next_turn();
            self.calls += 1;
            call.extensions.insert(CallArrival { number: self.calls, at: Instant::now() });
            call.extensions.insert(TurnStamp(Arc::new(Mutex::new(Some(turn)))));
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_in_the_order_in_which_they_were_given() {
        let mut arrivals = ArrivalTransport::new((), CancellationToken::new());
        let [mut first, mut second] = std::array::from_fn(|_| arrivals.next_turn());
        first.come().await;
        let mut waiting = std::pin::pin!(second.come());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await;
    }

    #[tokio::test]
    async fn a_turn_that_is_dropped_without_waiting_is_passed_on() {
        let mut arrivals = ArrivalTransport::new((), CancellationToken::new());
        let [first, second, mut third] = std::array::from_fn(|_| arrivals.next_turn());
        drop((first, second));
        third.come().await;
    }
}
