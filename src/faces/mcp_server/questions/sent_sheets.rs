//! Questions that a client was sent in an answer, and its responses to them.

use std::collections::{BTreeMap, VecDeque};

use rmcp::model::{ElicitRequest, ElicitResult, InputRequest, InputRequests, InputResponses};

use super::sheet::{GivenAnswers, QuestionSheet};
use crate::approval::ApprovalRequest;

/// The questions, each with a name that nobody guesses.
#[derive(Default)]
pub(in crate::faces::mcp_server) struct SentSheets(BTreeMap<String, QuestionSheet>);

impl SentSheets {
    /// Adds approval requests as they are asked together, of a client that `opens_pages` or not.
    pub(in crate::faces::mcp_server) fn add(
        &mut self,
        mut requests: VecDeque<ApprovalRequest>,
        opens_pages: bool,
    ) {
        self.0.extend(std::iter::from_fn(|| {
            let mut sheet = QuestionSheet::next(&mut requests)?;
            if !opens_pages {
                sheet.name_pages();
            }
            Some((unguessable(), sheet))
        }));
    }

    /// Whether no question waits for its answer. Those for which every answer would be too late are dropped.
    pub(in crate::faces::mcp_server) fn are_over(&mut self) -> bool {
        self.0.retain(|_, sheet| !sheet.is_closed());
        self.0.is_empty()
    }

    /// The forms that ask. Their approval timeouts begin, or begin anew. `round` is as for [`QuestionSheet::form`].
    pub(in crate::faces::mcp_server) fn forms(&self, round: Option<u32>) -> Result<InputRequests, String> {
        let form = |(name, sheet): (&String, &QuestionSheet)| {
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
                    if let GivenAnswers::Unclear(sheet) = sheet.give(&result) {
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
        sheets.into_values().flat_map(QuestionSheet::into_requests).inspect(ApprovalRequest::take_back)
    }
}

/// A name that nobody guesses.
pub(in crate::faces::mcp_server) fn unguessable() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
