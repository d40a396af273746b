//! Messages to servers as JSON. Large arguments are written off the runtime's threads.

use std::io;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::TxJsonRpcMessage;

use crate::ground::budget::{apart, members_weight};

pub(crate) async fn encode(message: TxJsonRpcMessage<RoleClient>) -> io::Result<Vec<u8>> {
    let weight = weight(&message);
    apart(weight, move || serde_json::to_vec(&message)).await?.map_err(io::Error::from)
}

fn weight(message: &TxJsonRpcMessage<RoleClient>) -> usize {
    let JsonRpcMessage::Request(request) = message else { return 0 };
    match &request.request {
        ClientRequest::CallToolRequest(call) => call.params.arguments.as_ref().map_or(0, members_weight),
        _ => 0,
    }
}
