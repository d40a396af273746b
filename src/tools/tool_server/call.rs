//! A call of code in the kernel: its server resolved, decided about, sent, and what code is about to get noted.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::{CallAnswer, ErrorKind};
use super::body::RefusedBody;
use crate::approval::{Action, ELICITATION, ExpectedResult, Gate, OpenCall, Permit, ToolAnnotations};
use crate::connections::mcp_client::{ListKind, ReceivedResult};
use crate::ground::budget::apart;
use crate::ground::text::describe;
use crate::tools::actions::ActionSaver;
use crate::tools::recording::{AnswerWitness, CallTape, TapedCall};
use crate::tools::servers::{self, ConnectionPool, PermittedRequest, PoolRequest, RegisteredServer};

/// The longest name of a server or a tool, in bytes. Names appear in errors and approval requests, and are
/// compared with others.
const NAME_BYTES: usize = 1024;

/// The tool name for approving and recording that a resource is read: MCP's method.
pub(super) const READ_RESOURCE: &str = "resources/read";

/// The same for getting a prompt.
pub(super) const GET_PROMPT: &str = "prompts/get";

/// The common state of all routes of code.
#[derive(Clone)]
pub(super) struct SharedRoutes {
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) gate: Arc<Gate>,
    pub(super) tape: CallTape,
    /// Saves actions; `None` where none are kept.
    pub(super) actions: Option<Arc<dyn ActionSaver>>,
}

/// A tool call of code in the kernel.
///
/// It has no field for server parameters: the kernel never chooses what runs on the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolCall<Arguments = Map<String, Value>> {
    pub(super) server_name: String,
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) tool_args: Arguments,
    /// The number that calls have in common which code makes side by side, if it says so. It serves recordings alone.
    #[serde(default)]
    pub(super) burst: Option<u64>,
}

impl ToolCall {
    /// A call that is made by itself.
    pub(super) fn new(server_name: String, tool_name: String, tool_args: Map<String, Value>) -> Self {
        Self { server_name, tool_name, tool_args, burst: None }
    }
}

pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), RefusedBody> {
    if name.len() > NAME_BYTES { Err(RefusedBody::Long { what, limit: NAME_BYTES }) } else { Ok(()) }
}

/// The server named `server_name`, or an error answer.
pub(super) async fn resolve(
    shared: &SharedRoutes,
    server_name: &str,
    tool_name: &str,
    request: PoolRequest,
) -> Result<Arc<RegisteredServer>, CallAnswer> {
    if request == PoolRequest::Tool && is_method(tool_name) {
        let reason = "it has the name of a request of MCP";
        return Err(CallAnswer::failed(format!("`{server_name}.{tool_name}` cannot be called: {reason}")));
    }
    let server =
        shared.pool.resolve(server_name).await.map_err(|error| CallAnswer::failed(describe(&error)))?;
    if request == PoolRequest::Tool && server.for_apps.contains(tool_name) {
        let reason = "it is for the server's own user interface, and not for models";
        return Err(CallAnswer::failed(format!("`{server_name}.{tool_name}` cannot be called: {reason}")));
    }
    Ok(server)
}

/// Whether a tool's name is that of another action in approval requests, policies and answers: code could show the user a
/// form or a page in the name of a server.
fn is_method(tool_name: &str) -> bool {
    let lists = [ListKind::Resources, ListKind::ResourceTemplates, ListKind::Prompts].map(ListKind::method);
    [ELICITATION, READ_RESOURCE, GET_PROMPT].into_iter().chain(lists).any(|method| method == tool_name)
}

/// Decides about a call, and makes it if it is permitted.
pub(super) async fn answer(
    shared: &SharedRoutes,
    server: Arc<RegisteredServer>,
    call: ToolCall,
    request: PoolRequest,
) -> CallAnswer {
    let is_read = request != PoolRequest::Tool
        || server.annotations.get(&call.tool_name).is_some_and(|hints| hints.read_only == Some(true));
    let ToolCall { server_name, tool_name, tool_args, burst } = &call;
    let witness = match shared.tape.begin(server_name, tool_name, tool_args, *burst, is_read) {
        TapedCall::Made(witness) => witness,
        TapedCall::Known(answer) => return CallAnswer::Known(answer),
        TapedCall::Refused(message) => return CallAnswer::failed(message),
    };
    let (answer, by) = match shared.gate.decide_for_code(action(&server, call, request)).await {
        Ok((permit, on_record)) => {
            let by = permit.by();
            (perform(shared, &server, permit, on_record, request).await, by)
        }
        Err(denied) => (CallAnswer::from(denied.clone()), denied.by()),
    };
    witnessed(witness, answer, by).await
}

/// The answer, once it is recorded or compared.
pub(super) async fn witnessed(witness: AnswerWitness, answer: CallAnswer, by: &'static str) -> CallAnswer {
    if witness.is_nobody() {
        return answer;
    }
    let weight = answer.weight();
    if weight > witness.most_bytes() {
        witness.left_out(weight, by);
        return answer;
    }
    let recording = apart(weight, move || {
        let decision = if answer.is_denied() { "denied" } else { "accepted" };
        witness.answered(answer.to_json(), decision, by);
        answer
    });
    recording.await.unwrap_or_else(|error| CallAnswer::failed(error.to_string()))
}

/// The action that is decided about.
pub(super) fn action(server: &RegisteredServer, call: ToolCall, request: PoolRequest) -> Action {
    let ToolCall { server_name, tool_name, tool_args, .. } = call;
    let annotations = match request {
        PoolRequest::Tool => server.annotations.get(&tool_name).copied(),
        PoolRequest::Resource | PoolRequest::List(_) | PoolRequest::Prompt => {
            Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() })
        }
    };
    let definition = Some(server.fingerprint_of(&tool_name));
    let changes = server.definitions.get(&tool_name).and_then(|definition| definition.changes.clone());
    let action = Action::new(server_name, tool_name, tool_args, server.target());
    Action { definition, changes, annotations, ..action }
}

/// Sends a permitted call to its server.
pub(super) async fn perform(
    shared: &SharedRoutes,
    server: &Arc<RegisteredServer>,
    mut permit: Permit,
    mut on_record: OpenCall,
    request: PoolRequest,
) -> CallAnswer {
    let permit = &mut permit;
    let record = &mut on_record;
    let sending = PermittedRequest { server, permit, on_record: record, kind: request, gate: &shared.gate };
    let answered = shared.pool.request(sending).await;
    let expected = permit.take_expected();
    match answered {
        // Its end is recorded already.
        Err(servers::Error::Denied(denied)) => CallAnswer::from(denied),
        Ok(received) => {
            on_record.result(|| match request {
                // The structured result has the roles only.
                PoolRequest::Prompt => received.output.to_string().into(),
                _ => received.output.value(),
            });
            match expected {
                Some(expected) => entered(expected, received).await,
                None => CallAnswer::Received(received),
            }
        }
        Err(error) => {
            let message = describe(&error);
            on_record.error(&message);
            if let Some(expected) = expected {
                // What a server says of an error, or prints before it ends, is its data too.
                expected.enter(|to| to.write_str(&message));
            }
            let kind = if error.is_answer() { ErrorKind::Tool } else { ErrorKind::Unreached };
            CallAnswer::Error { kind, message }
        }
    }
}

/// The answer, once it is entered what code is about to get.
async fn entered(expected: ExpectedResult, received: ReceivedResult) -> CallAnswer {
    let entering = apart(received.weight, move || {
        expected.enter(|to| received.output.write_texts(to));
        received
    });
    match entering.await {
        Ok(received) => CallAnswer::Received(received),
        Err(error) => CallAnswer::failed(error.to_string()),
    }
}
