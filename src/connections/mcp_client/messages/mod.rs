//! Messages to and from servers: read within limits, and repaired where they are not what MCP says.

mod answers;
mod handshake;
mod incoming;
pub(super) mod lenient;
mod odd_content;
mod odd_members;
pub(super) mod outgoing;
mod repair;
mod result_kind;

pub(super) use self::answers::{AnswerEnvelope, AnswerPlace, ArrivedAnswer, ExpectedAnswers};
pub(super) use self::handshake::Handshake;
pub(super) use self::incoming::{IncomingMessage, IncompleteMessage, JsonDocument, READ_BYTES};
pub(super) use self::odd_content::ROLES;
pub(super) use self::repair::MARK;
pub(super) use self::result_kind::ResultKind;
