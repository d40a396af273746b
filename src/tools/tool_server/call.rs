//! A call of code in the kernel: its server resolved, decided about, sent, and what code is about to get noted.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::Answer;
use super::body::Refused;
use crate::approval::{Action, ELICITATION, Expected, Gate, OpenCall, Permit, ToolAnnotations};
use crate::connections::mcp_client::{ListKind, Received};
use crate::ground::budget::apart;
use crate::ground::text::describe;
use crate::tools::servers::{self, Pool, Registered, Request, Sending};

/// The longest name of a server or a tool, in bytes. Names appear in errors and approval requests, and are
/// compared with others.
const NAME_BYTES: usize = 1024;

/// The tool name for approving and recording that a resource is read: MCP's method.
pub(super) const READ_RESOURCE: &str = "resources/read";

/// The same for getting a prompt.
pub(super) const GET_PROMPT: &str = "prompts/get";

/// What all routes of code share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) pool: Arc<Pool>,
    pub(super) gate: Arc<Gate>,
}

/// A tool call of code in the kernel.
///
/// It has no field for server parameters: the kernel never chooses what runs on the host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call<Arguments = Map<String, Value>> {
    pub(super) server_name: String,
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) tool_args: Arguments,
}

pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), Refused> {
    if name.len() > NAME_BYTES { Err(Refused::Long { what, limit: NAME_BYTES }) } else { Ok(()) }
}

/// The server named `server_name`, or an error answer.
pub(super) async fn resolve(
    shared: &Shared,
    server_name: &str,
    tool_name: &str,
    request: Request,
) -> Result<Arc<Registered>, Answer> {
    if request == Request::Tool && is_method(tool_name) {
        let reason = "it has the name of a request of MCP";
        return Err(Answer::failed(format!("`{server_name}.{tool_name}` cannot be called: {reason}")));
    }
    let server = shared.pool.resolve(server_name).await.map_err(|error| Answer::failed(describe(&error)))?;
    if request == Request::Tool && server.for_apps.contains(tool_name) {
        let reason = "it is for the server's own user interface, and not for models";
        return Err(Answer::failed(format!("`{server_name}.{tool_name}` cannot be called: {reason}")));
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
pub(super) async fn answer(shared: &Shared, server: Arc<Registered>, call: Call, request: Request) -> Answer {
    match shared.gate.decide_for_code(action(&server, call, request)).await {
        Ok((permit, on_record)) => perform(shared, &server, permit, on_record, request).await,
        Err(denied) => Answer::from(denied),
    }
}

/// What is decided about.
pub(super) fn action(server: &Registered, call: Call, request: Request) -> Action {
    let Call { server_name, tool_name, tool_args } = call;
    let annotations = match request {
        Request::Tool => server.annotations.get(&tool_name).copied(),
        Request::Resource | Request::List(_) | Request::Prompt => {
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
    shared: &Shared,
    server: &Arc<Registered>,
    mut permit: Permit,
    mut on_record: OpenCall,
    request: Request,
) -> Answer {
    let (permit, record) = (&mut permit, &mut on_record);
    let sending = Sending { server, permit, on_record: record, kind: request, gate: &shared.gate };
    let answered = shared.pool.request(sending).await;
    let expected = permit.take_expected();
    match answered {
        // Its end is recorded already.
        Err(servers::Error::Denied(denied)) => Answer::from(denied),
        Ok(received) => {
            on_record.result(|| match request {
                // The structured result has the roles only.
                Request::Prompt => received.output.to_string().into(),
                _ => received.output.value(),
            });
            match expected {
                Some(expected) => entered(expected, received).await,
                None => Answer::Received(received),
            }
        }
        Err(error) => {
            let message = describe(&error);
            on_record.error(&message);
            if let Some(expected) = expected {
                // What a server says of an error, or prints before it ends, is its data too.
                expected.enter(|to| to.write_str(&message));
            }
            Answer::failed(message)
        }
    }
}

/// The answer, once it is entered what code is about to get.
async fn entered(expected: Expected, received: Received) -> Answer {
    let entering = apart(received.weight, move || {
        expected.enter(|to| received.output.write_texts(to));
        received
    });
    match entering.await {
        Ok(received) => Answer::Received(received),
        Err(error) => Answer::failed(error.to_string()),
    }
}
