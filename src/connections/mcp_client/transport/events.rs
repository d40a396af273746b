//! Server-sent events, read with the memory limit of a message.
//!
//! The crate `sse-stream` buffers a whole event before its length can be checked.

use bytes::{Buf as _, Bytes};
use futures::{Stream, StreamExt as _, stream};

use crate::connections::mcp_client::messages::{IncomingMessage, IncompleteMessage, MARK, READ_BYTES};

/// The longest line that holds no data; names and ids are short. The rest of it is dropped.
const LINE_BYTES: usize = 8 * 1024;
const DATA: &[u8] = b"data:";

/// An event.
#[derive(Default)]
pub(super) struct StreamEvent {
    pub(crate) kind: Option<String>,
    pub(crate) id: Option<String>,
    /// In milliseconds.
    pub(super) retry: Option<u64>,
    pub(crate) data: Option<IncomingMessage>,
}

/// Why a stream of events has ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenStream {
    #[error("{0}")]
    Bytes(String),
    #[error("an event has more than {READ_BYTES} bytes")]
    Endless,
}

/// Parses events from chunks of bytes.
#[derive(Default)]
struct EventReader {
    event: StreamEvent,
    data: IncompleteMessage,
    has_data: bool,
    /// The line so far, without its data.
    line: Vec<u8>,
    /// Whether the line holds data.
    is_data: bool,
    /// Whether the line's data have begun: a space before them does not belong to them.
    has_begun: bool,
    was_return: bool,
}

impl StreamEvent {
    /// Whether it contains a JSON-RPC message.
    pub(super) fn is_message(&self) -> bool {
        matches!(self.kind.as_deref(), None | Some("" | "message"))
    }
}

/// The events in `bytes`.
pub(crate) fn events<E: std::error::Error + 'static>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + Unpin,
) -> impl Stream<Item = Result<StreamEvent, BrokenStream>> + Send {
    let state = (bytes, Bytes::new(), EventReader::default());
    stream::unfold(Some(state), |state| async move {
        let (mut bytes, mut piece, mut reader) = state?;
        loop {
            if let Some(event) = reader.read(&mut piece).await {
                return Some((Ok(event), Some((bytes, piece, reader))));
            }
            if reader.data.is_endless() {
                return Some((Err(BrokenStream::Endless), None));
            }
            match bytes.next().await {
                Some(Ok(next)) => piece = next,
                Some(Err(error)) => {
                    return Some((Err(BrokenStream::Bytes(crate::ground::text::describe(&error))), None));
                }
                None => return None,
            }
        }
    })
}

impl EventReader {
    /// Reads from `piece`: all of it, or up to the end of an event.
    async fn read(&mut self, piece: &mut Bytes) -> Option<StreamEvent> {
        while piece.has_remaining() {
            if std::mem::take(&mut self.was_return) && piece[0] == b'\n' {
                piece.advance(1);
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', piece);
            let line = piece.split_to(end.unwrap_or(piece.len()));
            self.read_line(&line).await;
            if end.is_some() {
                self.was_return = piece[0] == b'\r';
                piece.advance(1);
                if let Some(event) = self.end_line() {
                    return Some(event);
                }
            }
        }
        None
    }

    /// A part of a line, or the whole of it.
    async fn read_line(&mut self, mut part: &[u8]) {
        while !self.is_data && self.line.len() < DATA.len() && !part.is_empty() {
            self.line.push(part[0]);
            part = &part[1..];
            // It may begin a stream, and no line has a reason to begin so.
            if self.line == MARK {
                self.line.clear();
            }
            if self.line == DATA {
                self.is_data = true;
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b"\n").await;
                }
            }
        }
        if part.is_empty() {
            return;
        }
        if !self.is_data {
            let room = LINE_BYTES.saturating_sub(self.line.len()).min(part.len());
            self.line.extend_from_slice(&part[..room]);
            return;
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.data.push(part.strip_prefix(b" ").filter(|_| is_first).unwrap_or(part)).await;
    }

    /// The event, if the line was blank, which ends one.
    fn end_line(&mut self) -> Option<StreamEvent> {
        let line = std::mem::take(&mut self.line);
        self.has_begun = false;
        if std::mem::take(&mut self.is_data) {
            return None;
        }
        if line.is_empty() {
            let data = std::mem::take(&mut self.has_data).then(|| self.data.take());
            let event = StreamEvent { data, ..std::mem::take(&mut self.event) };
            let is_empty = event.data.is_none() && event.id.is_none() && event.retry.is_none();
            return (!is_empty).then_some(event);
        }
        let line = String::from_utf8_lossy(&line);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.event.kind = Some(value.to_owned()),
            "id" => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            // A comment, or an unknown field.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::budget::{BudgetExcess, MESSAGE_BYTES};

    /// The events of `text`, each as its kind, id and data, read from pieces of `size` bytes.
    async fn read(text: &str, size: usize) -> Vec<(String, String, String)> {
        let pieces =
            text.as_bytes().chunks(size).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)));
        let events = events(stream::iter(Vec::from_iter(pieces)));
        let shown = events.map(|event| {
            let StreamEvent { kind, id, data, .. } = event.unwrap();
            let data = data.map(|message| String::from_utf8(message.text.unwrap().text).unwrap());
            (kind.unwrap_or_default(), id.unwrap_or_default(), data.unwrap_or("-".to_owned()))
        });
        shown.collect().await
    }

    async fn check(text: &str, expected: &[(&str, &str, &str)]) {
        for size in [1, 3, 1000] {
            let found = read(text, size).await;
            let found: Vec<_> =
                found.iter().map(|(kind, id, data)| (kind.as_str(), id.as_str(), data.as_str())).collect();
            assert_eq!(found, expected, "{text:?} in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn events_end_at_blank_lines() {
        check("data: x\n\n", &[("", "", "x")]).await;
        check("\u{feff}data: x\n\n", &[("", "", "x")]).await;
        check("data:x\r\ndata:  y\r\n\r\n", &[("", "", "x\n y")]).await;
        check("event: endpoint\rdata: /m\r\r", &[("endpoint", "", "/m")]).await;
        check(": hello\n\nid: 7\nretry: 5\n\ndata\n\n", &[("", "7", "-")]).await;
        check("event: ping\n\ndata: 1\nid: 2\n\ndata: 3\n\n", &[("", "2", "1"), ("", "", "3")]).await;
        check("data: not ended\n", &[]).await;
        check("data:\n\n", &[("", "", "")]).await;
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_kept() {
        let _turn = crate::connections::mcp_client::tests::LARGE.lock().await;
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let many = MESSAGE_BYTES / piece.len() + 1;
        let pieces = std::iter::once(Bytes::from("data: {\"id\":7,\"result\":\""))
            .chain(std::iter::repeat_n(piece.clone(), many))
            .chain([Bytes::from("\n\n")]);
        let long: Vec<_> = events(stream::iter(pieces.map(Ok::<_, std::io::Error>))).collect().await;
        let message = long.into_iter().next().unwrap().unwrap().data.unwrap();
        assert_eq!(message.id(), Some(rmcp::model::NumberOrString::Number(7)));
        assert_eq!(message.text.err(), Some(BudgetExcess::Long));
        let endless = std::iter::once(Bytes::from("data: ")).chain(std::iter::repeat(piece));
        let mut endless = Box::pin(events(stream::iter(endless.map(Ok::<_, std::io::Error>))));
        assert!(matches!(endless.next().await, Some(Err(BrokenStream::Endless))));
        assert!(endless.next().await.is_none());
    }
}
