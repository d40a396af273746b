//! JSON-RPC messages as lines, in both directions.
//!
//! A request that cannot be parsed gets an error response, with its id if that can be read, so that no client
//! waits for ever.

use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::StreamExt as _;
use rmcp::model::{ClientRequest, GetMeta as _, JsonRpcMessage, ProtocolVersion};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio_util::codec::{Decoder, FramedRead};

use super::receipt::ReadReceipt;
use crate::ground::text::replace_lone_surrogates;

/// The longest message accepted from the client.
const MAX_MESSAGE_BYTES: usize = 256 * 1024 * 1024;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

const INITIALIZE: &str = "`params` of `initialize` must be an object with a string `protocolVersion`, an object \
    `capabilities`, and an object `clientInfo` with strings `name` and `version`";
const BEGIN: &str = "the session has not begun: send `initialize` first. A request of revision 2026-07-28, which has none, \
    needs `io.modelcontextprotocol/protocolVersion` and `io.modelcontextprotocol/clientCapabilities` in its `_meta`";

/// A transport that reads and writes lines of JSON.
pub(super) struct LineTransport<R, W> {
    input: FramedRead<R, LineDecoder>,
    output: Arc<Mutex<W>>,
    receipt: Arc<ReadReceipt>,
    /// An error response still to be written. Kept, because `receive` may be cancelled at any await.
    refusal: Option<Value>,
    has_begun: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    pub(super) fn new(input: R, output: W, receipt: Arc<ReadReceipt>) -> Self {
        let input = FramedRead::new(input, LineDecoder::default());
        Self { input, output: Arc::new(Mutex::new(output)), receipt, refusal: None, has_begun: false }
    }

    /// Decides about a message before the session has begun: rmcp would end at the first that is no request.
    fn begin(&mut self, message: Box<RxJsonRpcMessage<RoleServer>>) -> Understood {
        let JsonRpcMessage::Request(sent) = message.as_ref() else {
            tracing::warn!("ignored a message of the client, whose session has not begun");
            return Understood::Nothing;
        };
        let refusal = match &sent.request {
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => {
                return Understood::Message(message);
            }
            ClientRequest::CustomRequest(request) if request.method == "initialize" => Some(INITIALIZE),
            ClientRequest::InitializeRequest(_) => None,
            request
                if request.get_meta().missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty() =>
            {
                None
            }
            _ => Some(BEGIN),
        };
        self.has_begun = refusal.is_none();
        match refusal {
            None => Understood::Message(message),
            Some(reason) => {
                Understood::Refused { id: json!(sent.id), code: INVALID_PARAMS, reason: reason.to_owned() }
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let output = Arc::clone(&self.output);
        let receipt = Arc::clone(&self.receipt);
        async move { write(&output, &receipt, &message).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusal) = &self.refusal {
                write(&self.output, &self.receipt, refusal).await.ok()?;
                self.refusal = None;
            }
            let line = match self.input.next().await? {
                Ok(line) => line,
                Err(error) => {
                    tracing::error!(%error, "the client's messages cannot be read any more");
                    return None;
                }
            };
            let understood = match line.map_or_else(too_long, |line| understand(&line)) {
                Understood::Message(message) if !self.has_begun => self.begin(message),
                understood => understood,
            };
            match understood {
                Understood::Message(message) => {
                    if !self.receipt.understand(&message) {
                        return Some(*message);
                    }
                }
                Understood::Nothing => {}
                Understood::Refused { id, code, reason } => {
                    tracing::warn!(%id, %reason, "refused a message of the client");
                    self.refusal =
                        Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": reason}}));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.output.lock().await.shutdown().await
    }
}

async fn write<W: AsyncWrite + Unpin>(
    output: &Mutex<W>,
    receipt: &ReadReceipt,
    message: &impl serde::Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    receipt.send(line.len());
    output.write_all(&line).await?;
    output.flush().await
}

/// A parsed line.
enum Understood {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// Blank, or an unknown notification or response, which gets no answer.
    Nothing,
    Refused {
        id: Value,
        code: i32,
        reason: String,
    },
}

fn too_long() -> Understood {
    let reason = format!("the message is longer than {MAX_MESSAGE_BYTES} bytes");
    Understood::Refused { id: Value::Null, code: INVALID_REQUEST, reason }
}

fn understand(line: &[u8]) -> Understood {
    if line.trim_ascii().is_empty() {
        return Understood::Nothing;
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Understood::Message(Box::new(message));
    }
    let mut text = String::from_utf8_lossy(line).into_owned().into_bytes();
    replace_lone_surrogates(&mut text);
    let error = match serde_json::from_slice(&text) {
        Ok(message) => return Understood::Message(Box::new(message)),
        Err(error) => error,
    };
    let (id, code, reason) = match serde_json::from_slice::<Value>(&text) {
        Err(error) => (Value::Null, PARSE_ERROR, format!("the message is not JSON: {error}")),
        Ok(Value::Array(_)) => {
            (Value::Null, INVALID_REQUEST, "batches are not supported: send one message a line".to_owned())
        }
        Ok(message) => match message.get("id") {
            Some(id @ (Value::String(_) | Value::Number(_))) if message.get("method").is_some() => {
                (id.clone(), INVALID_REQUEST, format!("the message is not a JSON-RPC 2.0 request: {error}"))
            }
            _ if message.is_object() => {
                tracing::warn!(%error, "ignored a message of the client");
                return Understood::Nothing;
            }
            _ => (Value::Null, INVALID_REQUEST, "the message is not an object".to_owned()),
        },
    };
    Understood::Refused { id, code, reason }
}

/// Splits a stream of bytes into lines; `None` is a line that is too long.
#[derive(Default)]
struct LineDecoder {
    /// The place to look for the next newline: the bytes before have been searched.
    searched: usize,
    is_discarding: bool,
}

impl Decoder for LineDecoder {
    type Item = Option<Bytes>;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Self::Item>> {
        match buffer[self.searched..].iter().position(|&byte| byte == b'\n') {
            Some(offset) => {
                let line = buffer.split_to(self.searched + offset).freeze();
                buffer.advance(1);
                self.searched = 0;
                Ok(Some((!std::mem::take(&mut self.is_discarding)).then_some(line)))
            }
            None if buffer.len() > MAX_MESSAGE_BYTES || self.is_discarding => {
                buffer.clear();
                self.searched = 0;
                self.is_discarding = true;
                Ok(None)
            }
            None => {
                self.searched = buffer.len();
                Ok(None)
            }
        }
    }

    /// A last line without a newline is no message.
    fn decode_eof(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Self::Item>> {
        let line = self.decode(buffer)?;
        if line.is_none() {
            buffer.clear();
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(line: &str, expected_id: Value, expected_code: i32) {
        match understand(line.as_bytes()) {
            Understood::Refused { id, code, .. } => {
                assert_eq!((id, code), (expected_id, expected_code), "{line}")
            }
            Understood::Message(_) => panic!("{line} is a message"),
            Understood::Nothing => panic!("{line} is nothing"),
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused_by_its_id() {
        refused("nonsense", Value::Null, PARSE_ERROR);
        refused("[]", Value::Null, INVALID_REQUEST);
        refused("5", Value::Null, INVALID_REQUEST);
        refused(r#"{"id": 7, "method": "ping"}"#, json!(7), INVALID_REQUEST);
    }

    #[test]
    fn lines_are_taken_whole_and_in_pieces() {
        let mut decoder = LineDecoder::default();
        let mut buffer = BytesMut::from("one\ntw");
        assert_eq!(decoder.decode(&mut buffer).unwrap(), Some(Some(Bytes::from("one"))));
        assert_eq!(decoder.decode(&mut buffer).unwrap(), None);
        buffer.extend_from_slice(b"o\n\nlast");
        assert_eq!(decoder.decode(&mut buffer).unwrap(), Some(Some(Bytes::from("two"))));
        assert_eq!(decoder.decode(&mut buffer).unwrap(), Some(Some(Bytes::new())));
        assert_eq!(decoder.decode_eof(&mut buffer).unwrap(), None);
    }
}
