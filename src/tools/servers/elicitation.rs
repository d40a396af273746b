//! Questions of servers reach the user as approval requests do.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::approval::{Action, DenialReason, ELICITATION, Gate, Target};
use crate::connections::mcp_client::{ElicitationQuestion, NotAnswered, UserAsker};
use crate::tools::recording::CallTape;

/// Asks by a gate: the user of the current cell.
pub(crate) struct ByGate {
    pub(crate) gate: Arc<Gate>,
    /// Gets how far servers are with calls.
    pub(crate) progress: watch::Sender<String>,
    /// Records the answers.
    pub(crate) tape: CallTape,
}

impl UserAsker for ByGate {
    fn show_progress(&self, name: &str, progress: &str) {
        self.progress.send_replace(format!("MCP server `{name}`: {progress}"));
    }

    fn ask<'a>(
        &'a self,
        name: &'a str,
        question: ElicitationQuestion,
    ) -> BoxFuture<'a, Result<Map<String, Value>, NotAnswered>> {
        Box::pin(async move {
            let target = match &question {
                ElicitationQuestion::Page { url, .. } => Target::Url(url.clone()),
                ElicitationQuestion::Form { .. } => Target::Host,
            };
            let arguments = question.arguments();
            let action = Action::new(name.to_owned(), ELICITATION.to_owned(), arguments.clone(), target);
            let answer = self.gate.elicit(action).await;
            self.tape.user_answers(name, arguments, answer.as_ref().ok());
            answer.map_err(|denied| match denied {
                DenialReason::Rejected { .. } => NotAnswered::Declined,
                DenialReason::Expired { .. } => NotAnswered::Silent,
                denied => NotAnswered::Nobody(denied.to_string()),
            })
        })
    }
}
