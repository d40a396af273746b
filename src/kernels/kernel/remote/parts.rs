//! Messages between a kernel and its client, with unparsed content.
//!
//! Over a WebSocket they are binary messages of the subprotocol
//! [`v1.kernel.websocket.jupyter.org`](https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html):
//! a table of offsets, the channel's name, and the parts of the message.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::message::{KernelMessage, MessageContent, parse};
use super::Error;

/// The WebSocket subprotocol that messages are encoded for.
pub(crate) const SUBPROTOCOL: &str = "v1.kernel.websocket.jupyter.org";

/// Header, parent header, metadata and content.
const PARTS_MIN: usize = 4;
const METADATA: usize = 2;
const OFFSET_BYTES: usize = size_of::<u64>();
/// Messages have few buffers.
const OFFSETS_MAX: usize = 1024;

/// The version of the messaging protocol that our requests follow.
const PROTOCOL_VERSION: &str = "5.3";

/// A channel of a kernel that its client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KernelChannel {
    Shell,
    Control,
    Iopub,
}

impl KernelChannel {
    fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Control => "control",
            Self::Iopub => "iopub",
        }
    }

    fn of_name(name: &[u8]) -> Option<Self> {
        [Self::Shell, Self::Control, Self::Iopub]
            .into_iter()
            .find(|channel| channel.name().as_bytes() == name)
    }
}

#[derive(Deserialize)]
struct PartsHeader {
    msg_type: String,
}

#[derive(Deserialize)]
struct ParentHeader {
    msg_id: Option<String>,
}

/// A message in its parts: header, parent header, metadata, content and buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageParts {
    pub(crate) channel: KernelChannel,
    parts: Vec<Bytes>,
}

impl MessageParts {
    /// The parts of a message that came over `channel`; an error if some are missing.
    pub(in crate::kernels::kernel) fn new(channel: KernelChannel, parts: Vec<Bytes>) -> Result<Self, Error> {
        if parts.len() < PARTS_MIN {
            return Err(malformed(format!(
                "a message of {} parts; it has at least {PARTS_MIN}",
                parts.len()
            )));
        }
        Ok(Self { channel, parts })
    }

    /// A request of any kind, and its id.
    pub(super) fn request(channel: KernelChannel, kind: &str, content: &Value) -> (String, Self) {
        let id = uuid::Uuid::new_v4().to_string();
        let header = json!({
            "msg_id": id,
            "msg_type": kind,
            "session": "ipybox",
            "username": "ipybox",
            "date": chrono::Utc::now().to_rfc3339(),
            "version": PROTOCOL_VERSION,
        });
        let parts = [header, json!({}), json!({}), content.clone()];
        (id, Self { channel, parts: parts.map(|part| Bytes::from(part.to_string())).to_vec() })
    }

    /// The same request once more. Kernels refuse a message that has the signature of an earlier one, so that it must differ.
    pub(super) fn again(&self, count: u32) -> Self {
        let mut parts = self.parts.clone();
        parts[METADATA] = Bytes::from(json!({ "ipybox_again": count }).to_string());
        Self { channel: self.channel, parts }
    }

    /// The parsed message.
    pub(in crate::kernels::kernel) fn message(&self) -> Result<KernelMessage, Error> {
        let header: PartsHeader = parse(self.header())?;
        let parent: ParentHeader = parse(self.parent())?;
        let content = MessageContent::read(&header.msg_type, self.metadata(), self.content())?;
        Ok(KernelMessage::new(parent.msg_id, content))
    }

    pub(super) fn header(&self) -> &[u8] {
        &self.parts[0]
    }

    pub(super) fn parent(&self) -> &[u8] {
        &self.parts[1]
    }

    pub(super) fn metadata(&self) -> &[u8] {
        &self.parts[METADATA]
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.parts[3]
    }

    /// As a binary message of a WebSocket.
    pub(crate) fn encode(&self) -> Bytes {
        let name = self.channel.name().as_bytes();
        // Where each section begins, and where the last one ends.
        let count = self.parts.len() + 2;
        let mut offset = OFFSET_BYTES * (count + 1);
        let sections = || std::iter::once(name).chain(self.parts.iter().map(AsRef::as_ref));
        let size = offset + sections().map(<[u8]>::len).sum::<usize>();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend((count as u64).to_le_bytes());
        bytes.extend((offset as u64).to_le_bytes());
        for section in sections() {
            offset += section.len();
            bytes.extend((offset as u64).to_le_bytes());
        }
        sections().for_each(|section| bytes.extend_from_slice(section));
        bytes.into()
    }

    /// From a binary message of a WebSocket. Its content is untrusted.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let count = number(bytes, 0).ok_or_else(|| malformed("a message without offsets"))?;
        if !(PARTS_MIN + 2..=OFFSETS_MAX).contains(&count) {
            return Err(malformed(format!("a message of {count} offsets")));
        }
        let offsets: Option<Vec<usize>> = (1..=count).map(|index| number(bytes, index)).collect();
        let offsets = offsets.ok_or_else(|| malformed("a message that ends in its offsets"))?;
        let sections: Option<Vec<Bytes>> = offsets
            .windows(2)
            .map(|window| {
                (window[0] <= window[1] && window[1] <= bytes.len())
                    .then(|| bytes.slice(window[0]..window[1]))
            })
            .collect();
        let mut sections = sections.ok_or_else(|| malformed("a message with wrong offsets"))?;
        let name = sections.remove(0);
        let channel = KernelChannel::of_name(&name).ok_or_else(|| {
            malformed(format!("a message of the channel {:?}", String::from_utf8_lossy(&name)))
        })?;
        Self::new(channel, sections)
    }
}

fn number(bytes: &[u8], index: usize) -> Option<usize> {
    let start = index.checked_mul(OFFSET_BYTES)?;
    let number = bytes.get(start..)?.first_chunk()?;
    usize::try_from(u64::from_le_bytes(*number)).ok()
}

pub(super) fn malformed(what: impl Into<String>) -> Error {
    Error::Malformed(what.into().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(channel: KernelChannel, parts: &[&'static str]) -> MessageParts {
        MessageParts::new(channel, parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect())
            .unwrap()
    }

    /// These parts as encoded by Jupyter Server.
    #[test]
    fn messages_are_laid_out_as_jupyter_server_does() {
        let encoded = parts(KernelChannel::Shell, &["{}", "", "{\"a\":1}", "xyz"]).encode();
        let numbers: Vec<usize> = (0..7).map(|index| number(&encoded, index).unwrap()).collect();
        assert_eq!(numbers, [6, 56, 61, 63, 63, 70, 73]);
        assert_eq!(&encoded[56..], b"shell{}{\"a\":1}xyz");
    }

    #[test]
    fn what_is_encoded_can_be_decoded() {
        for channel in [KernelChannel::Shell, KernelChannel::Control, KernelChannel::Iopub] {
            let message = parts(channel, &["1", "", "3", "4", "a buffer", ""]);
            assert_eq!(MessageParts::decode(&message.encode()).unwrap(), message);
        }
    }

    #[test]
    fn an_empty_parent_header_is_no_parent() {
        let message = parts(KernelChannel::Iopub, &[r#"{"msg_type":"status"}"#, "{}", "{}", "{}"]);
        assert!(message.message().is_err());
        let message = parts(KernelChannel::Iopub, &[r#"{"msg_type":"comm_open"}"#, "{}", "{}", "{}"]);
        assert!(message.message().unwrap().parent.is_none());
    }

    #[test]
    fn a_request_that_is_sent_again_is_another_message_with_the_same_header() {
        let (_, first) = MessageParts::request(KernelChannel::Shell, "execute_request", &json!({"code": ""}));
        let (second, third) = (first.again(1), first.again(2));
        assert!(first != second && second != third);
        assert_eq!((first.header(), first.content()), (third.header(), third.content()));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let whole = parts(KernelChannel::Iopub, &["{}", "{}", "{}", "{}"]).encode();
        for end in 0..whole.len() {
            assert!(MessageParts::decode(&whole.slice(..end)).is_err(), "{end}");
        }
        let mut stdin = whole.to_vec();
        stdin[56..61].copy_from_slice(b"stdin");
        assert!(MessageParts::decode(&stdin.into()).is_err());
        let mut many = whole.to_vec();
        many[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(MessageParts::decode(&many.into()).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_survived(bytes: Vec<u8>, count in 0..9u64, offsets: [u8; 9]) {
            drop(MessageParts::decode(&bytes.clone().into()));
            let mut likely = count.to_le_bytes().to_vec();
            likely.extend(offsets.iter().flat_map(|&offset| u64::from(offset).to_le_bytes()));
            likely.extend(bytes);
            drop(MessageParts::decode(&likely.into()));
        }
    }
}
