//! Inputs that servers need before they answer a request (MCP 2026-07-28, multi round-trip requests): the request is made again,
//! with that. Servers of earlier revisions ask while they work on it.

use std::time::Duration;

use rmcp::model::{
    ClientRequest, ErrorData, InputRequest, InputRequests, InputRequiredResult, InputResponses,
};
use tokio::time::sleep;

use crate::connections::mcp_client::client::ClientSide;

/// The times that one request is made again.
const MOST_ROUNDS: u32 = 30;
/// The pause before a request is made again for which the server needs no input: the first one, and the longest. Each is twice
/// as long as the one before.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// The rounds of one request.
#[derive(Default)]
pub(super) struct InputRounds {
    count: u32,
    without_input: u32,
}

impl InputRounds {
    /// Gives `request` what the server needs, once it is time to make it again. An error says why there is no such input.
    pub(super) async fn supply(
        &mut self,
        client: &ClientSide,
        needed: InputRequiredResult,
        request: &mut ClientRequest,
    ) -> Result<(), String> {
        self.count += 1;
        if self.count > MOST_ROUNDS {
            return Err(format!(
                "the server has not answered, but wanted the request again {MOST_ROUNDS} times"
            ));
        }
        let InputRequiredResult { input_requests, request_state, .. } = needed;
        let requests = input_requests.unwrap_or_default();
        if requests.is_empty() {
            let doubled = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(self.without_input));
            self.without_input += 1;
            sleep(doubled.min(LONGEST_DELAY)).await;
        } else {
            self.without_input = 0;
        }
        let responses = respond(client, requests).await.map_err(|error| error.message.into_owned())?;
        let responses = Some(responses).filter(|responses| !responses.is_empty());
        match request {
            ClientRequest::CallToolRequest(request) => {
                (request.params.input_responses, request.params.request_state) = (responses, request_state);
            }
            ClientRequest::ReadResourceRequest(request) => {
                (request.params.input_responses, request.params.request_state) = (responses, request_state);
            }
            ClientRequest::GetPromptRequest(request) => {
                (request.params.input_responses, request.params.request_state) = (responses, request_state);
            }
            _ => return Err("the server asks for input where the protocol has none".to_owned()),
        }
        Ok(())
    }
}

/// Answers one after the other: a user reads one question at a time.
async fn respond(client: &ClientSide, requests: InputRequests) -> Result<InputResponses, ErrorData> {
    let mut responses = InputResponses::new();
    for (key, request) in requests {
        let response = match request {
            InputRequest::Elicitation(request) => serde_json::to_value(client.elicit(request.params).await?)
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?,
            InputRequest::CreateMessage(_) => return Err(ClientSide::no_sampling()),
            InputRequest::ListRoots(_) => return Err(ClientSide::no_roots()),
            _ => return Err(ErrorData::invalid_params("the server asks for input of an unknown kind", None)),
        };
        responses.insert(key, response);
    }
    Ok(responses)
}
