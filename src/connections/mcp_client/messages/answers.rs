//! Expected answers. Large ones bypass rmcp, which would hold several copies of them.
//!
//! A request carries a [`AnswerPlace`] with it. A large answer is put there unparsed, with its memory lease,
//! and rmcp gets an empty one instead; the sender of the request reads it from there. An unreadable answer
//! fails its request.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use memchr::memmem;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, GetExtensions, JsonRpcError, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::handshake::{FirstRequest, Handshake};
use super::incoming::{IncomingMessage, JsonDocument, plain};
use super::lenient::{self, LenientResult};
use super::result_kind::ResultKind;
use crate::ground::budget::Lease;

/// Answers up to this weight are parsed by rmcp, which takes several times as much memory.
const SMALL_BYTES: usize = 1024 * 1024;

/// The same for lists of tools of which calls repeat arguments in headers: rmcp makes these headers.
const LISTED_BYTES: usize = 8 * 1024 * 1024;
/// The key in the schemas of such arguments (SEP-2243).
const HEADER_KEY: &[u8] = b"x-mcp-header";

/// The number of answers to requests of a server that may wait until it reads them. At the limit, no more of its
/// messages are read.
const UNREAD_ANSWERS: usize = 64;

/// The answers that are expected on one connection, and ours that its server has not read yet. Clones share them.
#[derive(Clone)]
pub(crate) struct ExpectedAnswers {
    places: Arc<Mutex<HashMap<RequestId, Weak<Inner>>>>,
    unread: Arc<Semaphore>,
    handshake: Handshake,
}

/// Receives an answer that rmcp does not get. Dropping it drops the answer.
#[derive(Clone)]
pub(crate) struct AnswerPlace(Arc<Inner>);

struct Inner {
    kind: ResultKind,
    answer: Mutex<Option<ArrivedAnswer>>,
}

/// An arrived answer.
pub(crate) enum ArrivedAnswer {
    /// The answer is here; rmcp has an empty one.
    Here(JsonDocument),
    /// rmcp has the answer; its weight and its memory lease.
    WithRmcp { weight: usize, lease: Lease },
    /// It cannot be read, for this reason.
    Refused(String),
}

/// An answer to a request.
#[derive(Deserialize)]
pub(crate) struct AnswerEnvelope<T> {
    pub(crate) result: Option<T>,
    pub(crate) error: Option<ErrorData>,
}

impl Default for ExpectedAnswers {
    fn default() -> Self {
        Self {
            places: Arc::default(),
            unread: Arc::new(Semaphore::new(UNREAD_ANSWERS)),
            handshake: Handshake::default(),
        }
    }
}

impl ExpectedAnswers {
    /// Waits until the server has read enough of our answers. A task that reads its messages calls this before each. One
    /// that also sends must not: it would wait for itself.
    pub(crate) async fn settle(&self) {
        // An error means that it is closed, which it never is.
        self.unread.acquire().await.ok();
    }

    /// To be held until the server has read an answer of ours. `None` beyond the limit: what was read meanwhile is
    /// answered too.
    pub(crate) fn unread(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.unread).try_acquire_owned().ok()
    }

    /// The handshake, whose answers are read here too.
    pub(crate) fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// Records that an answer to `message` is expected, if it is a request with an [`AnswerPlace`], or the first one.
    pub(crate) fn expect(&self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        self.handshake.expect(&request.id, &request.request);
        let Some(place) = request.request.extensions().get::<AnswerPlace>() else { return };
        let mut places = self.places.lock();
        // Calls that were cancelled are never answered.
        places.retain(|_, place| place.strong_count() > 0);
        places.insert(request.id.clone(), Arc::downgrade(&place.0));
    }

    /// The form of `message` for rmcp; `None` for an unknown message.
    pub(crate) fn admit(&self, message: IncomingMessage) -> Option<RxJsonRpcMessage<RoleClient>> {
        match (message.id(), message.is_answer()) {
            (Some(_), true) if is_log(&message) => None,
            (Some(id), true) => match self.handshake.asked() {
                Some((asked, first)) if asked == id => Some(self.admit_first(id, &first, message)),
                // Nothing else has been asked yet.
                Some(_) => None,
                None => Some(self.admit_answer(id, message)),
            },
            (Some(_), false) => admit_request(message),
            (None, _) => {
                let small = message.text.ok().filter(|document| document.weight <= SMALL_BYTES)?;
                parse(&small).ok()
            }
        }
    }

    /// The answer to the first request.
    fn admit_first(
        &self,
        id: RequestId,
        first: &FirstRequest,
        message: IncomingMessage,
    ) -> RxJsonRpcMessage<RoleClient> {
        self.handshake.is_answered();
        let read = match &message.text {
            Ok(document) if document.weight <= SMALL_BYTES => read_first(&id, first, document),
            Ok(_) => Err("it is too large".to_owned()),
            Err(excess) => Err(excess.to_string()),
        };
        read.unwrap_or_else(|reason| {
            let reason = format!("the server's answer cannot be read: {reason}");
            self.handshake.fails(reason.clone());
            JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None), Some(id))
        })
    }

    fn admit_answer(&self, id: RequestId, message: IncomingMessage) -> RxJsonRpcMessage<RoleClient> {
        let place = self.places.lock().remove(&id).and_then(|place| place.upgrade());
        let document = match message.text {
            Ok(document) => document,
            Err(excess) => return fail(id, place, format!("the server's answer is refused: {excess}")),
        };
        match place {
            Some(place) if document.weight > SMALL_BYTES && !has_headers(place.kind, &document) => {
                let empty = JsonRpcMessage::response(place.kind.empty(), id);
                place.put(ArrivedAnswer::Here(document));
                empty
            }
            None if document.weight > SMALL_BYTES => {
                fail(id, None, "the server's answer is too large".to_owned())
            }
            place => match parse_answer(&document) {
                // rmcp takes it for another result, or for none.
                Ok(JsonRpcMessage::Response(response))
                    if let Some(place) =
                        place.as_ref().filter(|place| !place.kind.fits(&response.result)) =>
                {
                    place.put(ArrivedAnswer::Here(document));
                    JsonRpcMessage::response(place.kind.empty(), id)
                }
                Ok(message) => {
                    let JsonDocument { weight, lease, .. } = document;
                    if let Some(place) = place {
                        place.put(ArrivedAnswer::WithRmcp { weight, lease });
                    }
                    message
                }
                Err(error) => fail(id, place, format!("the server's answer is no MCP message: {error}")),
            },
        }
    }
}

impl IncomingMessage {
    /// The error that it is, if it names no request. It may have another form than errors of JSON-RPC.
    pub(crate) fn error_without_id(&self) -> Option<JsonRpcError> {
        if self.id().is_some() || !self.is_answer() {
            return None;
        }
        let document = self.text.as_ref().ok().filter(|document| document.weight <= SMALL_BYTES)?;
        match document.read_fixed() {
            Ok(RxJsonRpcMessage::<RoleClient>::Error(error)) => Some(error),
            _ => None,
        }
    }
}

impl AnswerPlace {
    pub(crate) fn new(kind: ResultKind) -> Self {
        Self(Arc::new(Inner { kind, answer: Mutex::default() }))
    }

    /// Takes the answer; `None` if none has arrived.
    pub(crate) fn take(&self) -> Option<ArrivedAnswer> {
        self.0.answer.lock().take()
    }
}

impl Inner {
    fn put(&self, arrived: ArrivedAnswer) {
        *self.answer.lock() = Some(arrived);
    }
}

impl JsonDocument {
    /// Reads it as an answer with a result of this kind, or with what the server needs for one.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        kind: ResultKind,
    ) -> Result<AnswerEnvelope<LenientResult<T>>, serde_json::Error> {
        if let Ok(AnswerEnvelope { result, error }) = serde_json::from_slice(&self.text) {
            return Ok(AnswerEnvelope { result: result.map(LenientResult::Result), error });
        }
        let AnswerEnvelope { result, error } = self.read_fixed::<AnswerEnvelope<Value>>()?;
        Ok(AnswerEnvelope { result: result.map(|result| lenient::read(kind, result)).transpose()?, error })
    }

    /// Reads it as an answer that gets the form of JSON-RPC first.
    fn read_fixed<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let mut answer = serde_json::from_slice(&self.text)?;
        lenient::fix_answer(&mut answer);
        serde_json::from_value(answer)
    }
}

/// Says whether it is a line of a log, which may have an id too. Servers that leave out the version of JSON-RPC still have a
/// result or an error.
fn is_log(message: &IncomingMessage) -> bool {
    const OF_LOGS: [&str; 8] =
        ["level", "levelname", "severity", "msg", "time", "timestamp", "@timestamp", "logger"];
    let Ok(document) = message.text.as_ref() else { return false };
    if document.weight > SMALL_BYTES || document.text.starts_with(br#"{"jsonrpc":"#) {
        return false;
    }
    serde_json::from_slice::<HashMap<String, IgnoredAny>>(&document.text).is_ok_and(|members| {
        let has = |name: &str| members.contains_key(name);
        !has("jsonrpc") && (!(has("result") || has("error")) || OF_LOGS.into_iter().any(has))
    })
}

/// Reads the answer to the first request, in which the server may leave out a lot. The error says why it is none.
fn read_first(
    id: &RequestId,
    first: &FirstRequest,
    document: &JsonDocument,
) -> Result<RxJsonRpcMessage<RoleClient>, String> {
    let mut answer: Value = serde_json::from_slice(&document.text).map_err(|error| error.to_string())?;
    lenient::fix_answer(&mut answer);
    let has_error = answer.get("error").is_some();
    match answer.get_mut("result") {
        Some(result) => first.fix(result)?,
        None if has_error => {}
        None => return Err("it has neither a result nor an error".to_owned()),
    }
    answer["id"] = json!(id);
    serde_json::from_value(answer).map_err(|error| error.to_string())
}

/// Whether rmcp has to know this list of tools, and may.
fn has_headers(kind: ResultKind, document: &JsonDocument) -> bool {
    matches!(kind, ResultKind::Tools)
        && document.weight <= LISTED_BYTES
        && memmem::find(&document.text, HEADER_KEY).is_some()
}

/// Fails the request `id`, with the reason if it has a place for it.
fn fail(id: RequestId, place: Option<Arc<Inner>>, reason: String) -> RxJsonRpcMessage<RoleClient> {
    tracing::warn!(%id, reason, "an MCP server's answer cannot be used");
    if let Some(place) = place {
        place.put(ArrivedAnswer::Refused(reason.clone()));
    }
    JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None), Some(id))
}

/// A request of a server. All but pings are refused, so large parameters are not parsed.
fn admit_request(message: IncomingMessage) -> Option<RxJsonRpcMessage<RoleClient>> {
    match message.text {
        Ok(document) if document.weight <= SMALL_BYTES => parse(&document).ok(),
        _ => {
            let member = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
            let id = member(message.scan.id())?;
            let method = member(message.scan.method())?;
            serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "method": method})).ok()
        }
    }
}

fn parse_answer(document: &JsonDocument) -> Result<RxJsonRpcMessage<RoleClient>, serde_json::Error> {
    let mut message = parse(document).or_else(|_| document.read_fixed())?;
    match &mut message {
        JsonRpcMessage::Response(response) => response.id = plain(response.id.clone()),
        JsonRpcMessage::Error(error) => error.id = error.id.take().map(plain),
        _ => {}
    }
    Ok(message)
}

fn parse(document: &JsonDocument) -> Result<RxJsonRpcMessage<RoleClient>, serde_json::Error> {
    serde_json::from_slice(&document.text)
}
