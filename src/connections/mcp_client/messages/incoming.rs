//! An incoming message of a server: weighed piece by piece, and kept unless it is too large.

use rmcp::model::{NumberOrString, RequestId};

use super::repair::repaired;
use crate::ground::budget::{ANSWERS, BudgetExcess, JsonScan, Lease, take_turns};

/// The number of bytes of a too long message that are read and dropped before its end is given up.
pub(crate) const READ_BYTES: usize = 256 * 1024 * 1024;
/// An incomplete message.
pub(crate) struct IncompleteMessage {
    scan: JsonScan,
    text: Vec<u8>,
    lease: Lease,
    excess: Option<BudgetExcess>,
}

/// A complete message.
pub(crate) struct IncomingMessage {
    pub(super) scan: JsonScan,
    /// Its text with its memory lease, or why it is not kept.
    pub(crate) text: Result<JsonDocument, BudgetExcess>,
}

/// A text, and the memory lease for it and its parsed form.
#[derive(Debug)]
pub(crate) struct JsonDocument {
    pub(crate) text: Vec<u8>,
    pub(crate) weight: usize,
    pub(crate) lease: Lease,
}

impl Default for IncompleteMessage {
    fn default() -> Self {
        Self { scan: JsonScan::default(), text: Vec::new(), lease: ANSWERS.lease(), excess: None }
    }
}

impl IncompleteMessage {
    /// Adds the next piece. Waits a while if there is no memory for it.
    pub(crate) async fn push(&mut self, piece: &[u8]) {
        let before = self.scan.bytes();
        self.scan.read(piece);
        take_turns(before, self.scan.bytes()).await;
        if self.excess.is_none() {
            self.excess = match self.scan.excess() {
                None => self.lease.grow_in_time(self.scan.weight()).await.err(),
                excess => excess,
            };
        }
        match self.excess {
            None => self.text.extend_from_slice(piece),
            Some(_) => (self.text, self.lease) = (Vec::new(), ANSWERS.lease()),
        }
    }

    /// Whether the message is too long to wait for its end.
    pub(crate) fn is_endless(&self) -> bool {
        self.scan.bytes() > READ_BYTES
    }

    /// Takes the complete message; the next piece begins another one.
    pub(crate) fn take(&mut self) -> IncomingMessage {
        let Self { scan, text, lease, excess } = std::mem::take(self);
        let weight = scan.weight();
        let document = JsonDocument { text: repaired(text), weight, lease };
        IncomingMessage { scan, text: excess.map_or(Ok(document), Err) }
    }
}

impl IncomingMessage {
    /// The id of the request that it answers, or that it is. One without end is none.
    pub(crate) fn id(&self) -> Option<RequestId> {
        serde_json::from_slice(self.scan.id()).ok().map(plain)
    }

    /// Whether it answers a request. Some servers write all members that messages can have.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.scan.method(), b"" | b"null" | br#""""#)
    }
}

/// Some servers return our numeric ids as strings.
pub(crate) fn plain(id: RequestId) -> RequestId {
    match &id {
        NumberOrString::String(text) => text.parse().map_or(id, NumberOrString::Number),
        NumberOrString::Number(_) => id,
    }
}
