//! Converts rmcp's errors to our own.

use std::error::Error as StdError;

use reqwest::StatusCode;
use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::connections::mcp_client::failure::http_failure::{self, AccessRefusal, HttpError, RequestFailure};
use crate::connections::mcp_client::transport::SseFailure;
use crate::ground::text::visible::line;

/// The longest address of a page, in bytes: browsers and clients take hardly longer ones.
pub(crate) const URL_BYTES: usize = 4 * 1024;

/// The code of an error that says which pages the user has to visit before the request (MCP, URL mode elicitation).
const URL_ELICITATION_REQUIRED: i32 = -32042;

/// The longest `data` of an error that is shown, in bytes. A longer one is left out, since a part of a secret would not be
/// recognised.
const DATA_BYTES: usize = 4 * 1024;

/// Why a request got no result.
#[derive(Debug)]
pub(crate) enum McpFailure {
    /// The server answered with a JSON-RPC error.
    Answered { code: i32, message: String },
    /// The connection is gone.
    Closed,
    /// The server could not be reached, or no longer knows our session: it has not seen the request.
    NotDelivered { reason: String },
    /// The connection broke while the request was under way.
    Broken { reason: String },
    /// The server refuses the credentials of the request, which it has not seen.
    Refused(AccessRefusal),
    /// The server answered with a status of HTTP that is no success; the connection may live on.
    BadStatus { code: StatusCode, reason: String },
    /// The server answered with something that is not MCP; the connection may live on.
    Unusable { reason: String },
}

impl From<ServiceError> for McpFailure {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => answered(error),
            ServiceError::TransportSend(error) => Self::from_transport(&error),
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => Self::Closed,
            ServiceError::UnexpectedResponse => {
                Self::Unusable { reason: "the server's answer has an unknown form".to_owned() }
            }
            other => Self::Unusable { reason: other.to_string() },
        }
    }
}

impl From<ClientInitializeError> for McpFailure {
    fn from(error: ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::JsonRpcError(error) => answered(error),
            ClientInitializeError::TransportError { error, .. } => Self::from_transport(&error),
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => Self::Closed,
            ClientInitializeError::ExpectedInitResult(_) | ClientInitializeError::ExpectedInitResponse(_) => {
                Self::Unusable { reason: "the server's answer has an unknown form".to_owned() }
            }
            other => Self::Unusable { reason: other.to_string() },
        }
    }
}

impl From<&SseFailure> for McpFailure {
    fn from(error: &SseFailure) -> Self {
        match error {
            SseFailure::Request(failure) => failure.into(),
            _ => Self::Unusable { reason: error.to_string() },
        }
    }
}

impl From<&RequestFailure> for McpFailure {
    fn from(failure: &RequestFailure) -> Self {
        let reason = failure.to_string();
        match failure {
            RequestFailure::Refused(refusal) => Self::Refused(refusal.clone()),
            RequestFailure::LostSession(_) => Self::NotDelivered { reason },
            RequestFailure::Request(error) if error.is_connect() => Self::NotDelivered { reason },
            RequestFailure::Request(_) => Self::Broken { reason },
            RequestFailure::Status(status) => Self::BadStatus { code: status.code, reason },
        }
    }
}

impl From<&HttpError> for McpFailure {
    fn from(error: &HttpError) -> Self {
        let reason = http_failure::explain(error);
        match error {
            StreamableHttpError::Client(failure) => failure.into(),
            StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
                Self::NotDelivered { reason }
            }
            StreamableHttpError::Sse(_)
            | StreamableHttpError::Io(_)
            | StreamableHttpError::UnexpectedEndOfStream
            | StreamableHttpError::SessionRecoveryTimeout
            | StreamableHttpError::TokioJoinError(_) => Self::Broken { reason },
            StreamableHttpError::TransportChannelClosed => Self::Closed,
            _ => Self::Unusable { reason },
        }
    }
}

impl McpFailure {
    /// The server's words, as far as it has answered.
    pub(crate) fn answer(&self) -> Option<&str> {
        match self {
            Self::Answered { message: answer, .. }
            | Self::BadStatus { reason: answer, .. }
            | Self::Unusable { reason: answer } => Some(answer),
            Self::Closed | Self::NotDelivered { .. } | Self::Broken { .. } | Self::Refused(_) => None,
        }
    }

    /// The same as the end of a handshake, with a hint.
    pub(crate) fn of_handshake(mut self) -> Self {
        if let Self::Answered { code, message } = &mut self
            && matches!(
                ErrorCode(*code),
                ErrorCode::METHOD_NOT_FOUND | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            )
        {
            message.push_str(
                "\nhint: ipybox speaks revisions 2024-11-05 to 2026-07-28 of MCP with servers; is there a version or an option \
                 of the server that does, too?",
            );
        }
        self
    }

    fn from_transport(error: &DynamicTransportError) -> Self {
        let error: &(dyn StdError + 'static) = error.error.as_ref();
        if let Some(error) = error.downcast_ref::<HttpError>() {
            error.into()
        } else if let Some(error) = error.downcast_ref::<SseFailure>() {
            error.into()
        } else {
            // A pipe to a stdio server: it breaks only when the server is gone.
            Self::Closed
        }
    }
}

/// An error of the server, with its details. The pages that a user has to visit first are a part of what it says.
fn answered(error: ErrorData) -> McpFailure {
    let mut message = error.message.into_owned();
    if error.code.0 == URL_ELICITATION_REQUIRED {
        let pages = error.data.as_ref().and_then(|data| data["elicitations"].as_array());
        for page in pages.into_iter().flatten() {
            let url = page["url"].as_str().unwrap_or_default();
            let why = page["message"].as_str().unwrap_or_default();
            if is_nameable(url) {
                message.push_str(&format!("\nthe user has to visit {}: {}", line(url), line(why)));
            }
        }
        message.push_str("\nhint: let the user do that, and call again");
    } else if let Some(data) = error.data.filter(|data| !data.is_null()) {
        let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        if data.len() <= DATA_BYTES && !message.contains(&data) {
            message.push_str(&format!("\n{data}"));
        }
    }
    McpFailure::Answered { code: error.code.0, message }
}

/// Whether a text may send the user to the page.
fn is_nameable(url: &str) -> bool {
    url.len() <= URL_BYTES
        && url::Url::parse(url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && !crate::ground::web::has_user(&url))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_of_an_error_are_a_part_of_what_it_says() {
        for (data, expected) in [
            (json!(null), "no"),
            (json!("no"), "no"),
            (json!("`x` is missing"), "no\n`x` is missing"),
            (json!({"field": "x"}), "no\n{\"field\":\"x\"}"),
            (json!("x".repeat(DATA_BYTES + 1)), "no"),
        ] {
            let error = json!({"code": -32602, "message": "no", "data": data});
            let McpFailure::Answered { message, .. } = answered(serde_json::from_value(error).unwrap())
            else {
                panic!("it is an answer")
            };
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn a_server_that_does_not_know_initialize_gets_a_hint() {
        for (code, expected) in [(-32601, true), (-32022, true), (-32000, false)] {
            let error = serde_json::from_value(json!({"code": code, "message": "no"})).unwrap();
            let failure = McpFailure::from(ClientInitializeError::JsonRpcError(error)).of_handshake();
            let McpFailure::Answered { message, .. } = failure else { panic!("it is an answer") };
            assert_eq!(message.contains("hint: ipybox speaks revisions"), expected, "{code}");
        }
    }

    #[test]
    fn pages_that_a_user_has_to_visit_are_named() {
        let error = json!({"code": -32042, "message": "log in first", "data": {"elicitations": [
            {"mode": "url", "url": "https://a.example/x?y=1", "message": "Connect A", "elicitationId": "1"},
            {"mode": "url", "url": "javascript:alert(1)", "message": "B"}, 5,
            {"mode": "url", "url": "https://bank.example@evil.example/", "message": "C"}]}});
        let McpFailure::Answered { code, message } = answered(serde_json::from_value(error).unwrap()) else {
            panic!("it is an answer");
        };
        let expected = "log in first\nthe user has to visit https://a.example/x?y=1: Connect A\n\
                        hint: let the user do that, and call again";
        assert_eq!((code, message.as_str()), (-32042, expected));
    }
}
