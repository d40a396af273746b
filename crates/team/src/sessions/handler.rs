//! rmcp's side of the server: each request goes to the process that serves the session of its user.

use std::sync::{Arc, OnceLock};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::request::Parts;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelTaskRequest,
    ClientRequest, CustomRequest, CustomResult, DiscoverRequest, DiscoverResult, Extensions, GetSkillRequest,
    GetSkillRequestParams, GetSkillResult, GetTaskParams, GetTaskRequest, GetTaskResult, Implementation,
    InitializeRequestParams, InitializeResult, ListResourceTemplatesRequest, ListResourceTemplatesResult,
    ListResourcesRequest, ListResourcesResult, ListSkillsRequest, ListSkillsResult, ListToolsRequest,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, ServerResult, UpdateTaskParams,
    UpdateTaskRequest,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::directory::SessionDirectory;
use super::link::CallerEvent;
use super::user_session::UserSession;
use crate::front::RequestUser;

/// A handler of one session's requests, or of one request without a session.
pub(crate) struct TeamHandler {
    directory: Arc<SessionDirectory>,
    /// The session that the client has begun.
    session: OnceLock<Arc<UserSession>>,
}

impl TeamHandler {
    pub(crate) fn new(directory: Arc<SessionDirectory>) -> Self {
        Self { directory, session: OnceLock::new() }
    }

    fn session(&self, extensions: &Extensions) -> Result<Arc<UserSession>, ErrorData> {
        match self.session.get() {
            Some(session) => Ok(Arc::clone(session)),
            None => Ok(self.directory.shared(&request_user(extensions)?)),
        }
    }

    /// Passes a request on, and what comes before its answer back.
    async fn forward(
        &self,
        request: ClientRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let _open = self.directory.call_begins();
        let session = self.session(&context.extensions)?;
        let link = session.link().await?;
        let mut call = link.call(request, context).await?;
        // In this task, so that rmcp sends it on the stream of this request.
        let mut delivered = FuturesUnordered::new();
        loop {
            tokio::select! {
                event = call.next() => match event {
                    CallerEvent::Message(message) => delivered.push(message.deliver(&context.peer)),
                    CallerEvent::Answer(answer) => {
                        session.used();
                        return *answer;
                    }
                },
                Some(()) = delivered.next() => {}
                () = context.ct.cancelled() => {
                    return Err(ErrorData::invalid_request("the request was cancelled", None));
                }
            }
        }
    }
}

/// The user of a request, whom the front has put there.
fn request_user(extensions: &Extensions) -> Result<RequestUser, ErrorData> {
    let user = extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<RequestUser>());
    user.cloned().ok_or_else(|| ErrorData::internal_error("the request has no user", None))
}

fn unexpected() -> ErrorData {
    ErrorData::internal_error("the session gave an answer of another kind", None)
}

/// The answer of one kind in an answer of any.
macro_rules! expect {
    ($result:expr, $($variant:ident)|+) => {
        match $result {
            $(ServerResult::$variant(result) => Ok(result.into()),)+
            _ => Err(unexpected()),
        }
    };
}

impl ServerHandler for TeamHandler {
    /// The capabilities of any session of ours: rmcp refuses other methods.
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_tasks()
            .enable_skills()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ipybox", env!("CARGO_PKG_VERSION")))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let _open = self.directory.call_begins();
        let user = request_user(&context.extensions)?;
        context.peer.set_peer_info(request.clone());
        let begun = self.directory.begin(&user, request, context.peer.clone());
        let (session, result) = begun.await?;
        // rmcp initializes a session once.
        self.session.set(session).map_err(|_| ErrorData::invalid_request("the session has begun", None))?;
        Ok(result)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let request = DiscoverRequest::default();
        expect!(self.forward(request.into(), &context).await?, DiscoverResult)
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let request = ListToolsRequest { params, ..Default::default() };
        expect!(self.forward(request.into(), &context).await?, ListToolsResult)
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request = CallToolRequest::new(params);
        expect!(
            self.forward(request.into(), &context).await?,
            CallToolResult | CreateTaskResult | InputRequiredResult
        )
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let request = ListResourcesRequest { params, ..Default::default() };
        expect!(self.forward(request.into(), &context).await?, ListResourcesResult)
    }

    async fn list_resource_templates(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let request = ListResourceTemplatesRequest { params, ..Default::default() };
        expect!(self.forward(request.into(), &context).await?, ListResourceTemplatesResult)
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let request = ReadResourceRequest::new(params);
        expect!(self.forward(request.into(), &context).await?, ReadResourceResult | InputRequiredResult)
    }

    async fn list_skills(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        let request = ListSkillsRequest { params, ..Default::default() };
        expect!(self.forward(request.into(), &context).await?, ListSkillsResult)
    }

    async fn get_skill(
        &self,
        params: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let request = GetSkillRequest::new(params);
        expect!(self.forward(request.into(), &context).await?, GetSkillResult)
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let request = GetTaskRequest::new(params);
        expect!(self.forward(request.into(), &context).await?, GetTaskResult)
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.forward(UpdateTaskRequest::new(params).into(), &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.forward(CancelTaskRequest::new(params).into(), &context).await.map(drop)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        match self.forward(request.into(), &context).await? {
            ServerResult::CustomResult(result) => Ok(result),
            other => serde_json::to_value(other).map(CustomResult::new).map_err(|_| unexpected()),
        }
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        if let Some(session) = self.session.get() {
            session.roots_have_changed().await;
        }
    }
}
