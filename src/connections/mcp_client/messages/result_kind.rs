//! The kinds of results that requests have.

use rmcp::model::{
    CallToolResult, GetPromptResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, ReadResourceResult, ServerResult,
};

/// The kind of result that a request expects.
#[derive(Clone, Copy)]
pub(crate) enum ResultKind {
    Call,
    Resource,
    Prompt,
    Tools,
    Resources,
    ResourceTemplates,
    Prompts,
}

impl ResultKind {
    /// Whether a result is of this kind, or another one that such a request may have.
    pub(crate) fn fits(self, result: &ServerResult) -> bool {
        match (self, result) {
            (Self::Call | Self::Resource | Self::Prompt, ServerResult::InputRequiredResult(_))
            | (Self::Call, ServerResult::CreateTaskResult(_)) => true,
            _ => std::mem::discriminant(&self.empty()) == std::mem::discriminant(result),
        }
    }

    /// The result that rmcp gets in the place of one that it does not get.
    pub(crate) fn empty(self) -> ServerResult {
        match self {
            Self::Call => ServerResult::CallToolResult(CallToolResult::success(Vec::new())),
            Self::Resource => ServerResult::ReadResourceResult(ReadResourceResult::new(Vec::new())),
            Self::Prompt => ServerResult::GetPromptResult(GetPromptResult::default()),
            Self::Tools => ServerResult::ListToolsResult(ListToolsResult::default()),
            Self::Resources => ServerResult::ListResourcesResult(ListResourcesResult::default()),
            Self::ResourceTemplates => {
                ServerResult::ListResourceTemplatesResult(ListResourceTemplatesResult::default())
            }
            Self::Prompts => ServerResult::ListPromptsResult(ListPromptsResult::default()),
        }
    }
}
