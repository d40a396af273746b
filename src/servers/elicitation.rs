//! Questions of servers reach the user as approval requests do.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::approval::{Action, Denied, ELICITATION, Gate, Target};
use crate::mcp_client::{Asker, NotAnswered, Question};

/// Asks by a gate: the user of the current cell.
pub(crate) struct ByGate(pub(crate) Arc<Gate>);

impl Asker for ByGate {
    fn ask<'a>(
        &'a self,
        name: &'a str,
        question: Question,
    ) -> BoxFuture<'a, Result<Map<String, Value>, NotAnswered>> {
        Box::pin(async move {
            let target = match &question {
                Question::Page { url, .. } => Target::Url(url.clone()),
                Question::Form { .. } => Target::Host,
            };
            let action = Action {
                server_name: name.to_owned(),
                tool_name: ELICITATION.to_owned(),
                tool_args: question.arguments(),
                target,
                definition: None,
                annotations: None,
            };
            let is_page = matches!(question, Question::Page { .. });
            self.0.elicit(action, is_page).await.map_err(|denied| match denied {
                Denied::Rejected { .. } => NotAnswered::Declined,
                Denied::Expired { .. } => NotAnswered::Silent,
                denied => NotAnswered::Nobody(denied.to_string()),
            })
        })
    }
}
