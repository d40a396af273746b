//! The tools: their definitions, and their calls with arguments that are read.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, JsonObject, Tool};

use super::arguments::parse;
use super::call_context::CallContext;
use super::execute::CellArguments;
use super::install::InstallArguments;
use super::register::RegisterArguments;
use super::reset::ResetArguments;
use super::server::McpServer;
use super::{execute, icons, install, register, reply, reset, wait};

/// A call of a tool. Its arguments are those of the request, read once.
pub(super) enum RequestedTool {
    Execute(CellArguments),
    Register(RegisterArguments),
    Install(InstallArguments),
    Reset(ResetArguments),
}

/// Why there is no call.
pub(super) enum CallRefusal {
    /// The arguments cannot be used. The text is for the model, which can correct them.
    Arguments(String),
    /// There is no such tool.
    Tool(ErrorData),
}

impl RequestedTool {
    /// Reads the arguments of a tool.
    pub(super) fn read(
        name: &str,
        arguments: &JsonObject,
        has_long_cells: bool,
    ) -> Result<Self, CallRefusal> {
        let call = match name {
            execute::NAME => CellArguments::read(arguments, has_long_cells).map(Self::Execute),
            register::NAME => parse(arguments).map(Self::Register),
            install::NAME => parse(arguments).map(Self::Install),
            reset::NAME => parse(arguments).map(Self::Reset),
            _ => {
                let names: Vec<_> =
                    definitions(has_long_cells, &[]).into_iter().map(|tool| tool.name).collect();
                let names = names.join("`, `");
                let message = format!("there is no tool `{name}`; there are `{names}`");
                return Err(CallRefusal::Tool(ErrorData::invalid_params(message, None)));
            }
        };
        call.map_err(CallRefusal::Arguments)
    }

    /// The cell that it runs, if requests can stop waiting for it.
    pub(super) fn long_cell(&self, has_long_cells: bool) -> Option<&CellArguments> {
        match self {
            Self::Execute(cell) => Some(cell).filter(|_| has_long_cells),
            _ => None,
        }
    }

    /// Does what the tool does.
    pub(super) async fn run(self, server: Arc<McpServer>, context: CallContext) -> CallToolResult {
        let called = match self {
            Self::Execute(arguments) => execute::call(&server, arguments, context).await,
            Self::Register(arguments) => Ok(register::call(&server, arguments, context).await),
            Self::Install(arguments) => Ok(install::call(&server, arguments, context).await),
            Self::Reset(arguments) => reset::call(&server, arguments, context).await,
        };
        called.unwrap_or_else(reply::failure)
    }
}

impl From<CallRefusal> for Result<CallToolResult, ErrorData> {
    fn from(refusal: CallRefusal) -> Self {
        match refusal {
            CallRefusal::Arguments(text) => Ok(reply::failure(text)),
            CallRefusal::Tool(error) => Err(error),
        }
    }
}

/// The tools that models see. New sessions choose kernels of these pools.
pub(super) fn definitions(has_long_cells: bool, pools: &[&str]) -> Vec<Tool> {
    let wait = has_long_cells.then(wait::definition);
    let execute = execute::definition(has_long_cells, pools);
    [execute, register::definition(), install::definition(), reset::definition(has_long_cells)]
        .into_iter()
        .chain(wait)
        .map(|tool| {
            let icons = icons::tool(&tool.name);
            tool.with_icons(icons)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_describes_itself_to_models_and_users() {
        for tool in definitions(true, &[]) {
            assert!(tool.description.is_some_and(|text| text.len() > 80), "{}", tool.name);
            assert!(tool.title.is_some() && tool.annotations.is_some(), "{}", tool.name);
            for (name, schema) in tool.input_schema["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{}.{name}", tool.name);
            }
        }
    }
}
