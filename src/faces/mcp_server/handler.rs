//! Handles the requests of a client: rmcp's face of the server.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam, CustomRequest,
    CustomResult, ErrorCode, GetSkillRequestParams, GetSkillResult, GetTaskParams, GetTaskResult,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::arrivals::ArrivalTurn;
use super::ledger::{CallId, bug};
use super::server::McpServer;
use super::tools::definitions;
use super::{client_sandbox, execute, icons, instructions, methods, reply, resources, views, wait};

/// The handler for rmcp, of one connection with a client. The server is shared, since tools may outlive the request that
/// called them.
#[derive(Clone)]
pub(super) struct ConnectionHandler {
    pub(super) server: Arc<McpServer>,
    pub(super) connection: ClientConnection,
}

/// A connection with a client.
#[derive(Clone)]
pub(super) struct ClientConnection {
    /// Greater than that of every connection before.
    pub(super) number: u64,
    /// Cancelled when it ends: the client waits for no answers any more.
    pub(super) closed: CancellationToken,
    /// Cancelled when the session ends, in which what the client has begun goes on without it; `None` if nothing does.
    pub(super) outlived_by: Option<CancellationToken>,
    /// The calls that have not been answered.
    pub(super) calls: TaskTracker,
}

impl ServerHandler for ConnectionHandler {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .with_title("ipybox")
            .with_icons(icons::server());
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_tasks()
            .enable_skills()
            .build();
        capabilities.experimental = self.server.obeys_client.then(client_sandbox::capability);
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(instructions::of(self.server.session(), &self.server.sessions.config().site))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools =
            definitions(self.server.has_long_cells, &self.server.sessions.config().site.kernel_names());
        let has_views = self.server.has_views && views::are_shown_by(&context);
        Ok(ListToolsResult::with_all_items(if has_views {
            views::add_to(tools, &[execute::NAME, wait::NAME])
        } else {
            tools
        }))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        resources::list(self.server.session(), &self.server.skills, &self.server.shelf, request)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = resources::read(self.server.session(), &self.server.skills, &request.uri, &context);
        answer_panics(read).await.map(Into::into)
    }

    async fn list_skills(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(self.server.skills.list())
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.server.skills.get(&request.uri)
    }

    /// Answers unknown methods, and requests whose parameters have the wrong form.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if let Some(params) = methods::params_of(&request.method) {
            let message = format!("`params` of `{}` must be {params}", request.method);
            return Err(ErrorData::invalid_params(message, None));
        }
        let message = format!("there is no method `{}`", request.method);
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _open = self.connection.calls.token();
        self.server.attached.note_client(context.client_info().as_ref());
        if request.name == views::NAME && self.server.has_views {
            // No model sees its answer, so that news would be lost with it; and it waits for no cell.
            drop(ArrivalTurn::of(&context.extensions));
            let arguments = request.arguments.unwrap_or_default();
            let places = self.server.session().places();
            return answer_panics(async {
                Ok(views::read(places, &arguments).await.unwrap_or_else(reply::failure))
            })
            .await
            .map(Into::into);
        }
        self.call(request, context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.server.ledger.task(&request.task_id, self.connection.number).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.server.ledger.update_task(&request.task_id, &request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.server.ledger.cancel_task(&request.task_id)
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        if let Some(id) = notification.request_id {
            self.server.ledger.cancelled(&CallId { connection: self.connection.number, id });
        }
    }
}

/// Turns a panic into an error response: without it the client would wait for ever.
pub(super) async fn answer_panics<T>(
    answer: impl Future<Output = Result<T, ErrorData>>,
) -> Result<T, ErrorData> {
    // The panic hook has logged what happened.
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| Err(bug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let answer: Result<(), _> = answer_panics(async { panic!("on purpose") }).await;
        assert!(answer.unwrap_err().message.contains("panic"));
    }
}
