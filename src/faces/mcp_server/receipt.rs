//! Whether a client has read all that it was sent. MCP has no receipt for an answer, but the process that passes bytes on to
//! a kept session sees at the end of its client whether anything is unread.

use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::model::{ClientNotification, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use serde_json::json;

/// The method of the notification.
const METHOD: &str = "notifications/ipybox/read";

/// The last message of a client that has ended in order: how much it has read, in bytes.
pub(crate) fn receipt(bytes: u64) -> String {
    let message = json!({"jsonrpc": "2.0", "method": METHOD, "params": {"bytes": bytes}});
    format!("{message}\n")
}

/// The amount that a client was sent, and the part of it that is known to be read, in bytes.
#[derive(Default)]
pub(super) struct ReadReceipt {
    sent: AtomicU64,
    read: AtomicU64,
}

impl ReadReceipt {
    /// Notes what is about to be sent.
    pub(super) fn send(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes what a message says about reading; false if it says nothing about it.
    pub(super) fn understand(&self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        let JsonRpcMessage::Notification(message) = message else { return false };
        let ClientNotification::CustomNotification(message) = &message.notification else { return false };
        if message.method != METHOD {
            return false;
        }
        let bytes = message.params.as_ref().and_then(|params| params.get("bytes")?.as_u64());
        self.read.store(bytes.unwrap_or(0), Ordering::Relaxed);
        true
    }

    /// Whether all was read.
    pub(super) fn is_complete(&self) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        sent > 0 && sent == self.read.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_to_be_read() {
        let read = |bytes| serde_json::from_str(&receipt(bytes)).unwrap();
        let receipt = ReadReceipt::default();
        assert!(receipt.understand(&read(0)) && !receipt.is_complete());
        receipt.send(5);
        assert!(receipt.understand(&read(5)) && receipt.is_complete());
        receipt.send(1);
        assert!(!receipt.is_complete());
        let other = r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#;
        assert!(!receipt.understand(&serde_json::from_str(other).unwrap()));
    }
}
