//! The JSON-RPC messages between a tool server and its approval client; pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::approval::{Action, Target, ToolAnnotations, UserAnswer, UserReply};

/// Codes of JSON-RPC 2.0, section 5.1, and one of our own from the range that is left to servers.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const NOT_OPEN: i32 = -32001;

/// An approval request, as `params` of the method `approve`. Arguments may be large, so they are borrowed for
/// writing.
#[derive(Debug, Serialize, Deserialize)]
struct ApproveParams<Text, Arguments> {
    server_name: Text,
    tool_name: Text,
    tool_args: Arguments,
    target: Target,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<ToolAnnotations>,
}

type AskedQuestion = ApproveParams<String, Map<String, Value>>;

/// The member `jsonrpc` of every message.
#[derive(Debug, Deserialize)]
enum JsonRpcVersion {
    #[serde(rename = "2.0")]
    Two,
}

/// A message that cannot be used, with its id if that could be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WireFault {
    id: Option<String>,
    code: i32,
    message: String,
}

/// A message from a tool server to its approval client.
#[derive(Debug, PartialEq)]
pub(crate) enum ServerMessage {
    /// An approval request.
    Question { id: String, action: Box<Action> },
    /// This approval request has been withdrawn.
    Withdrawn { id: String },
    /// The server could not use one of our messages.
    Error { message: String },
}

impl WireFault {
    /// An answer to an approval request that is not open: unknown, answered, or withdrawn.
    pub(crate) fn not_open(id: String) -> Self {
        Self { id: Some(id), code: NOT_OPEN, message: "no open question has this id".to_owned() }
    }

    /// A message that is not text.
    pub(crate) fn not_text() -> Self {
        Self { id: None, code: INVALID_REQUEST, message: "messages must be text".to_owned() }
    }

    fn unreadable(error: &serde_json::Error) -> Self {
        let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
        Self { id: None, code, message: error.to_string() }
    }

    /// The JSON-RPC error for the other side.
    pub(crate) fn to_message(&self) -> String {
        let error = json!({"code": self.code, "message": self.message});
        json!({"jsonrpc": "2.0", "error": error, "id": self.id}).to_string()
    }
}

/// The approval request for `action`.
pub(crate) fn question(id: &str, action: &Action) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct ApproveCall<'a> {
        jsonrpc: &'static str,
        method: &'static str,
        params: ApproveParams<&'a str, &'a Map<String, Value>>,
        id: &'a str,
    }
    let params = ApproveParams {
        server_name: action.server_name.as_str(),
        tool_name: action.tool_name.as_str(),
        tool_args: &action.tool_args,
        target: action.target.clone(),
        annotations: action.annotations,
    };
    serde_json::to_string(&ApproveCall { jsonrpc: "2.0", method: "approve", params, id })
}

/// The notification that an approval request has been withdrawn.
pub(crate) fn withdrawn(id: &str) -> String {
    json!({"jsonrpc": "2.0", "method": "withdrawn", "params": {"id": id}}).to_string()
}

/// The answer to an approval request.
pub(crate) fn answer(id: &str, UserReply { answer, content, .. }: UserReply) -> String {
    let result = match answer {
        UserAnswer::Once => content.map_or(json!(true), Value::Object),
        // Grants are given where the gate is.
        UserAnswer::No | UserAnswer::Grant => json!(false),
        UserAnswer::Session => json!("session"),
        UserAnswer::Always => json!("always"),
    };
    json!({"jsonrpc": "2.0", "result": result, "id": id}).to_string()
}

/// Reads an answer and the id of its request. An error in place of a result means no; an object is what a user has filled
/// in.
pub(crate) fn read_answer(text: &str) -> Result<(String, UserReply), WireFault> {
    #[derive(Deserialize)]
    struct ApproveResponse {
        #[serde(rename = "jsonrpc")]
        _version: JsonRpcVersion,
        id: String,
        result: Option<Value>,
        error: Option<Value>,
    }
    let response: ApproveResponse =
        serde_json::from_str(text).map_err(|error| WireFault::unreadable(&error))?;
    let answer = match (response.result, response.error) {
        (Some(Value::Object(content)), None) => {
            return Ok((response.id, UserReply::filled(content)));
        }
        (Some(Value::Bool(true)), None) => UserAnswer::Once,
        (Some(Value::Bool(false)), None) | (None, Some(_)) => UserAnswer::No,
        (Some(Value::String(word)), None) if word == "session" => UserAnswer::Session,
        (Some(Value::String(word)), None) if word == "always" => UserAnswer::Always,
        _ => {
            let message = r#"`result` must be true, false, "session", "always" or an object"#.to_owned();
            return Err(WireFault { id: Some(response.id), code: INVALID_REQUEST, message });
        }
    };
    Ok((response.id, answer.into()))
}

/// Reads a message of a tool server.
pub(crate) fn read_server_message(text: &str) -> Result<ServerMessage, WireFault> {
    #[derive(Deserialize)]
    struct WireMessage {
        #[serde(rename = "jsonrpc")]
        _version: JsonRpcVersion,
        method: Option<String>,
        params: Option<Value>,
        id: Option<String>,
        error: Option<Complaint>,
    }
    #[derive(Deserialize)]
    struct Complaint {
        message: String,
    }
    #[derive(Deserialize)]
    struct Withdrawal {
        id: String,
    }
    let message: WireMessage = serde_json::from_str(text).map_err(|error| WireFault::unreadable(&error))?;
    let params = message.params.unwrap_or_default();
    let wrong = |id: Option<String>, error: serde_json::Error| WireFault {
        id,
        code: INVALID_PARAMS,
        message: error.to_string(),
    };
    match (message.method.as_deref(), message.id, message.error) {
        (Some("approve"), Some(id), None) => match serde_json::from_value::<AskedQuestion>(params) {
            Ok(question) => Ok(ServerMessage::Question { id, action: Box::new(Action::from(question)) }),
            Err(error) => Err(wrong(Some(id), error)),
        },
        (Some("withdrawn"), None, None) => match serde_json::from_value(params) {
            Ok(Withdrawal { id }) => Ok(ServerMessage::Withdrawn { id }),
            Err(error) => Err(wrong(None, error)),
        },
        (None, _, Some(Complaint { message })) => Ok(ServerMessage::Error { message }),
        (method, id, _) => {
            let message = format!("no method {:?} with these members", method.unwrap_or_default());
            Err(WireFault { id, code: METHOD_NOT_FOUND, message })
        }
    }
}

impl From<AskedQuestion> for Action {
    fn from(question: AskedQuestion) -> Self {
        let ApproveParams { server_name, tool_name, tool_args, target, annotations } = question;
        Self { annotations, ..Self::new(server_name, tool_name, tool_args, target) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action() -> Action {
        Action::new(
            "files".to_owned(),
            "read".to_owned(),
            Map::from_iter([("path".to_owned(), json!("/x"))]),
            Target::Command("server --flag".to_owned()),
        )
    }

    #[test]
    fn a_question_is_written_as_documented() {
        insta::assert_snapshot!(question("7", &action()).unwrap(), @r#"{"jsonrpc":"2.0","method":"approve","params":{"server_name":"files","tool_name":"read","tool_args":{"path":"/x"},"target":{"command":"server --flag"}},"id":"7"}"#);
        insta::assert_snapshot!(withdrawn("7"), @r#"{"jsonrpc":"2.0","method":"withdrawn","params":{"id":"7"}}"#);
    }

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let mut action = action();
        action.annotations = Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() });
        for target in
            [Target::Command("x".to_owned()), Target::Url("y".to_owned()), Target::Kernel, Target::Host]
        {
            action.target = target;
            let message = read_server_message(&question("7", &action).unwrap()).unwrap();
            assert_eq!(
                message,
                ServerMessage::Question { id: "7".to_owned(), action: Box::new(action.clone()) }
            );
        }
        assert_eq!(
            read_server_message(&withdrawn("7")).unwrap(),
            ServerMessage::Withdrawn { id: "7".to_owned() }
        );
        let fault = WireFault::not_open("7".to_owned()).to_message();
        assert!(matches!(read_server_message(&fault).unwrap(), ServerMessage::Error { .. }));
    }

    #[test]
    fn what_the_client_does_not_understand_is_no_question() {
        for text in [
            "",
            "[]",
            r#"{"jsonrpc":"2.0","method":"approve","params":{},"id":"7"}"#,
            r#"{"jsonrpc":"2.0","method":"approve","params":{"server_name":"a","tool_name":"b","tool_args":{},"target":{"new":"kind"}},"id":"7"}"#,
            r#"{"jsonrpc":"2.0","method":"other","id":"7"}"#,
            r#"{"jsonrpc":"2.0","method":"withdrawn","params":5}"#,
        ] {
            read_server_message(text).unwrap_err();
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        for given in [UserAnswer::Once, UserAnswer::Session, UserAnswer::Always, UserAnswer::No] {
            let given = UserReply::from(given);
            assert_eq!(read_answer(&answer("7", given.clone())).unwrap(), ("7".to_owned(), given));
        }
        let filled = UserReply::filled(Map::from_iter([("a".to_owned(), json!(1))]));
        assert_eq!(read_answer(&answer("7", filled.clone())).unwrap(), ("7".to_owned(), filled));
        let error = r#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"},"id":"7"}"#;
        let no = UserReply::from(UserAnswer::No);
        assert_eq!(read_answer(error).unwrap(), ("7".to_owned(), no));
    }

    fn check_fault(text: &str, code: i32, id: Option<&str>) {
        let fault = read_answer(text).unwrap_err();
        assert_eq!((fault.code, fault.id.as_deref()), (code, id), "{text}: {}", fault.message);
    }

    #[test]
    fn nothing_else_is_an_answer() {
        check_fault("", PARSE_ERROR, None);
        check_fault("{", PARSE_ERROR, None);
        check_fault("true", INVALID_REQUEST, None);
        check_fault(r#"{"result":true,"id":"7"}"#, INVALID_REQUEST, None);
        check_fault(r#"{"jsonrpc":"1.0","result":true,"id":"7"}"#, INVALID_REQUEST, None);
        check_fault(r#"{"jsonrpc":"2.0","result":true}"#, INVALID_REQUEST, None);
        check_fault(r#"{"jsonrpc":"2.0","result":true,"id":7}"#, INVALID_REQUEST, None);
        check_fault(r#"{"jsonrpc":"2.0","id":"7"}"#, INVALID_REQUEST, Some("7"));
        check_fault(r#"{"jsonrpc":"2.0","result":null,"id":"7"}"#, INVALID_REQUEST, Some("7"));
        check_fault(r#"{"jsonrpc":"2.0","result":1,"id":"7"}"#, INVALID_REQUEST, Some("7"));
        check_fault(r#"{"jsonrpc":"2.0","result":"true","id":"7"}"#, INVALID_REQUEST, Some("7"));
        check_fault(r#"{"jsonrpc":"2.0","result":true,"error":{},"id":"7"}"#, INVALID_REQUEST, Some("7"));
        check_fault(r#"{"jsonrpc":"2.0","result":false,"result":true,"id":"7"}"#, INVALID_REQUEST, None);
    }
}
