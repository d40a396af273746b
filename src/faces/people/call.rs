//! A call that people decide about, with everything that they may want to see of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::{
    Action, OURSELVES, OriginInWords, REGISTER, Target, ToolAnnotations, origins_in_words, question_of_ours,
    read_in_words,
};

/// A call. Its texts are as code and servers have sent them: whoever shows them makes them visible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShownCall {
    /// The name of the MCP server; `ipybox` for what ipybox does itself.
    pub server: String,
    /// The name of the tool.
    pub tool: String,
    /// All arguments.
    pub arguments: Map<String, Value>,
    /// The part that carries out the call.
    pub behind: Target,
    /// The server's hints on the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<ToolAnnotations>,
    /// The server's change of the tool since it was allowed, as a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
    /// The purpose of the call and of those of its batch, as the code states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The origins of its data, as far as can be seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<OriginInWords>,
    /// The data that the session has had access to, in words: `untrusted data from web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
    /// The person in whose session it waits, if that is another one, with the reason for the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<String>,
}

impl ShownCall {
    /// Whether it is something that ipybox does itself.
    pub(crate) fn is_ours(&self) -> bool {
        self.server == OURSELVES
    }

    /// Whether an answer can label the data of the server: the call registers one.
    pub fn takes_label(&self) -> bool {
        self.is_ours() && self.tool == REGISTER
    }

    /// The question about what ipybox does itself; `None` if it is another call.
    pub(crate) fn question_of_ours(&self) -> Option<&'static str> {
        question_of_ours(&self.server, &self.tool)
    }

    /// The call that `action` is.
    pub(crate) fn of(action: &Action) -> Self {
        let known = action.known.as_deref();
        Self {
            server: action.server_name.clone(),
            tool: action.tool_name.clone(),
            arguments: action.tool_args.clone(),
            behind: action.target.clone(),
            hints: action.annotations,
            changes: action.changes.clone(),
            batch: action.batch.as_ref().map(|place| place.batch().title().to_owned()),
            origins: known.map(origins_in_words).unwrap_or_default(),
            read: known.and_then(read_in_words),
            asker: None,
        }
    }
}
