//! Signals.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a program to end.
pub(super) struct EndSignals([Signal; 3]);

impl EndSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self([
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    pub(super) async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
