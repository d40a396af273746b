//! Questions that a client was sent in an answer, and its responses to them.

use std::collections::{BTreeMap, VecDeque};

use rmcp::model::{ElicitRequest, ElicitResult, InputRequest, InputRequests, InputResponses};

use super::sheet::{Given, Sheet};
use crate::approval::ApprovalRequest;

/// The questions, each with a name that nobody guesses.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct SentSheets(BTreeMap<String, Sheet>);

impl SentSheets {
    /// Adds approval requests as they are asked together.
    pub(in crate::faces::mcp_server) fn add(&mut self, mut requests: VecDeque<ApprovalRequest>) {
        self.0.extend(std::iter::from_fn(|| Some((unguessable(), Sheet::next(&mut requests)?))));
    }

    /// Whether no question waits for its answer. Those for which every answer would be too late are dropped.
    pub(in crate::faces::mcp_server) fn are_over(&mut self) -> bool {
        self.0.retain(|_, sheet| !sheet.is_closed());
        self.0.is_empty()
    }

    /// The forms that ask. Their approval timeouts begin, or begin anew. `round` is as for [`Sheet::form`].
    pub(in crate::faces::mcp_server) fn forms(&self, round: Option<u32>) -> Result<InputRequests, String> {
        let form = |(name, sheet): (&String, &Sheet)| {
            let form = sheet.form(round)?;
            sheet.hand_out();
            Ok((name.clone(), InputRequest::Elicitation(ElicitRequest::new(form))))
        };
        self.0.iter().map(form).collect()
    }

    /// Answers the questions that have a response and leaves the others.
    pub(in crate::faces::mcp_server) fn answer(&mut self, responses: Option<&InputResponses>) {
        for (name, response) in responses.into_iter().flatten() {
            // Unknown names are ignored.
            let Some(sheet) = self.0.remove(name) else { continue };
            match serde_json::from_value::<ElicitResult>(response.clone()) {
                Ok(result) => {
                    if let Given::Unclear(sheet) = sheet.give(&result) {
                        self.0.insert(unguessable(), sheet);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the MCP client answered a question with something else");
                    sheet.reject();
                }
            }
        }
    }

    /// Takes the questions back, to be asked by another way.
    pub(in crate::faces::mcp_server) fn take_back(
        &mut self,
    ) -> impl Iterator<Item = ApprovalRequest> + use<> {
        let sheets = std::mem::take(&mut self.0);
        sheets.into_values().flat_map(Sheet::into_requests).inspect(ApprovalRequest::take_back)
    }
}

/// A name that nobody guesses.
pub(in crate::faces::mcp_server) fn unguessable() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
