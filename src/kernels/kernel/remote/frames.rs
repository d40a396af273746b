//! Messages as Jupyter servers send them over a WebSocket.
//!
//! Servers since Jupyter Server 2.0 support the subprotocol that [`MessageParts`] are encoded for. For older ones,
//! and Enterprise Gateway, a message is an object in JSON, or a binary message that holds one if it has
//! buffers ([both](https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html)).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};

use super::super::Error;
use super::parts::{KernelChannel, MessageParts, malformed};
use crate::ground::budget::MESSAGE_BYTES;

/// The settings of the WebSocket. Text comes in pieces of 64 Ki characters; images are whole.
pub(super) fn websocket() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES)).max_frame_size(Some(MESSAGE_BYTES))
}

/// A message in JSON.
#[derive(Deserialize, Serialize)]
struct JsonFrame<'a> {
    channel: KernelChannel,
    #[serde(borrow)]
    header: &'a RawValue,
    #[serde(borrow)]
    parent_header: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A request as a frame.
pub(super) fn encode(parts: &MessageParts, is_binary: bool) -> Result<Frame, Error> {
    if is_binary {
        return Ok(Frame::Binary(parts.encode()));
    }
    let raw = |part: &'_ [u8]| -> Result<Box<RawValue>, Error> {
        serde_json::from_slice(part).map_err(Error::Message)
    };
    let [header, parent, metadata, content] =
        [parts.header(), parts.parent(), parts.metadata(), parts.content()].map(raw);
    let header = header?;
    let parent = parent?;
    let metadata = metadata?;
    let content = content?;
    let message = JsonFrame {
        channel: parts.channel,
        header: &header,
        parent_header: Some(&parent),
        metadata: Some(&metadata),
        content: &content,
    };
    let text = serde_json::to_string(&message).map_err(Error::Message)?;
    Ok(Frame::Text(Utf8Bytes::from(text)))
}

/// The message in a frame; `None` for control frames of the WebSocket.
pub(super) fn decode(frame: Frame, is_binary: bool) -> Option<Result<MessageParts, Error>> {
    match frame {
        Frame::Binary(bytes) if is_binary => Some(MessageParts::decode(&bytes)),
        Frame::Binary(bytes) => Some(with_buffers(&bytes).and_then(in_json)),
        Frame::Text(text) => Some(in_json(text.as_bytes())),
        Frame::Ping(_) | Frame::Pong(_) | Frame::Close(_) | Frame::Frame(_) => None,
    }
}

fn in_json(text: &[u8]) -> Result<MessageParts, Error> {
    let message: JsonFrame<'_> = serde_json::from_slice(text).map_err(Error::Message)?;
    let part = |value: Option<&RawValue>| match value.map(RawValue::get) {
        None | Some("null") => Bytes::from_static(b"{}"),
        Some(text) => Bytes::copy_from_slice(text.as_bytes()),
    };
    let parts = [Some(message.header), message.parent_header, message.metadata, Some(message.content)];
    MessageParts::new(message.channel, parts.map(part).to_vec())
}

/// The JSON of a message with buffers (our messages have none): the number of parts and their offsets, as
/// big-endian numbers of 32 bits, then the parts, of which the JSON is the first.
fn with_buffers(bytes: &[u8]) -> Result<&[u8], Error> {
    let number = |index: usize| -> Option<usize> {
        let bytes = bytes.get(4 * index..4 * index + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?) as usize)
    };
    let json = || {
        let count = number(0)?;
        let start = number(1)?;
        let end = if count > 1 { number(2)? } else { bytes.len() };
        bytes.get(start..end)
    };
    json().ok_or_else(|| malformed("a binary message with wrong offsets"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn request() -> MessageParts {
        MessageParts::request(KernelChannel::Control, "interrupt_request", &json!({"a": "ü"})).1
    }

    #[test]
    fn requests_survive_both_ways() {
        for is_binary in [true, false] {
            let frame = encode(&request(), is_binary).unwrap();
            assert_eq!(matches!(frame, Frame::Binary(_)), is_binary);
            let back = decode(frame, is_binary).unwrap().unwrap();
            assert_eq!(back.content(), r#"{"a":"ü"}"#.as_bytes());
            assert_eq!(back.channel, KernelChannel::Control);
        }
    }

    #[test]
    fn a_message_with_buffers_is_read() {
        let json = br#"{"channel":"iopub","header":{},"parent_header":null,"content":{}}"#;
        let mut bytes = Vec::new();
        for number in [2, 12, 12 + json.len()] {
            bytes.extend(u32::try_from(number).unwrap().to_be_bytes());
        }
        bytes.extend(json);
        bytes.extend(b"a buffer");
        let parts = decode(Frame::Binary(bytes.into()), false).unwrap().unwrap();
        assert_eq!((parts.channel, parts.parent()), (KernelChannel::Iopub, &b"{}"[..]));
    }

    #[test]
    fn what_is_the_websockets_own_is_no_message() {
        assert!(decode(Frame::Ping(Bytes::new()), true).is_none());
        assert!(decode(Frame::Close(None), false).is_none());
    }

    proptest! {
        #[test]
        fn garbage_is_survived(bytes: Vec<u8>, numbers: [u8; 3]) {
            let mut likely: Vec<u8> = numbers.into_iter().flat_map(|number| u32::from(number).to_be_bytes()).collect();
            likely.extend(&bytes);
            for bytes in [bytes, likely] {
                for is_binary in [true, false] {
                    drop(decode(Frame::Binary(bytes.clone().into()), is_binary));
                }
                if let Ok(text) = String::from_utf8(bytes) {
                    drop(decode(Frame::Text(text.into()), true));
                }
            }
        }
    }
}
