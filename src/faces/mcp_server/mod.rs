//! The MCP server: four tools, and a fifth for cells that take long.
//!
//! It translates between MCP and a session; one file per tool.

mod answer_news;
mod arrivals;
mod asking;
mod attached;
mod calls;
mod execute;
mod icons;
mod install;
mod instructions;
mod ledger;
mod line_transport;
mod methods;
mod pictures;
mod progress;
mod questions;
mod queue;
mod receipt;
mod register;
mod reply;
mod reset;
mod resource_address;
mod resources;
mod serving;
mod sessions;
mod skills;
mod stdio;
mod traced_handler;
mod uploads;
mod views;
mod wait;

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CancelledNotificationParam,
    CustomRequest, CustomResult, ErrorCode, GetSkillRequestParams, GetSkillResult, GetTaskParams,
    GetTaskResult, Implementation, JsonObject, ListResourceTemplatesResult, ListResourcesResult,
    ListSkillsResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize as _;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::answer_news::OnceNews;
use self::arrivals::{Arrival, ArrivalTurn};
use self::asking::AskingTurns;
use self::attached::Attached;
use self::calls::queue_of;
use self::ledger::{
    CallId, CallLedger, OutgoingAnswer, UndeliveredReason, UnderWay, UnfetchedAnswer, bug, name_of, text_of,
};
use self::progress::ProgressNotifier;
pub(crate) use self::receipt::receipt;
use self::resources::Shelf;
pub use self::serving::Error;
pub(crate) use self::serving::{Codes, Serving};
use self::sessions::ClientSessions;
use self::skills::Skills;
pub(crate) use self::stdio::end_on_signals;
pub use self::stdio::serve_stdio;
pub use crate::approval::Answer as PromptAnswer;
use crate::approval::Approver;
use crate::config::{Config, Images, ResourceLinks};
pub use crate::faces::people::{CellAuthor, Heard, Said, named_rows};
use crate::ground::telemetry::RequestLink;
use crate::kernels::output::Unread;
use crate::session::Session;

/// The MCP server's state, shared by its tools and by the clients that come one after the other.
pub(crate) struct McpServer {
    sessions: ClientSessions,
    /// The people at prompts of `ipybox attach`.
    attached: Attached,
    /// The calls of clients, and the answers that may not have reached them.
    ledger: Arc<CallLedger>,
    asking_turns: AskingTurns,
    /// The news at the beginning of the next answers.
    news: OnceNews,
    /// The form of images in a cell's reply.
    images: Images,
    /// Which clients get links to resources.
    resource_links: ResourceLinks,
    /// The resources that answers have named.
    shelf: Shelf,
    /// The skills for every client.
    skills: Skills,
    /// Whether requests can stop waiting for their cells.
    has_long_cells: bool,
    /// Whether clients that can show views get them.
    has_views: bool,
    /// The connections with clients, for spans.
    link: RequestLink,
}

/// The handler for rmcp, of one connection with a client. The server is shared, since tools may outlive the request that
/// called them.
#[derive(Clone)]
pub(crate) struct Handler {
    server: Arc<McpServer>,
    connection: ClientConnection,
}

/// A connection with a client.
#[derive(Clone)]
pub(crate) struct ClientConnection {
    /// Greater than that of every connection before.
    number: u64,
    /// Cancelled when it ends: the client waits for no answers any more.
    closed: CancellationToken,
    /// Cancelled when the session ends, in which what the client has begun goes on without it; `None` if nothing does.
    outlived_by: Option<CancellationToken>,
    /// The calls that have not been answered.
    calls: TaskTracker,
}

/// The context of a call, beside its arguments.
struct Call {
    /// Cancelled when the client no longer wants the answer.
    cancelled: CancellationToken,
    /// Sends progress notifications, if the client wants them.
    progress: Option<ProgressNotifier>,
    /// Passed on to the next call as soon as this one is in the session's queue.
    turn: ArrivalTurn,
    /// Decides about what the tool does.
    approver: Approver,
    /// Gets what a cell prints, if a request may stop waiting for it.
    unread: Option<Arc<Unread>>,
    /// Whether the answer has links to resources.
    has_links: bool,
    /// Whether the client shows views.
    has_views: bool,
}

impl McpServer {
    fn new(session: Arc<Session>, config: &Config) -> Self {
        Self {
            attached: Attached::new(Arc::clone(session.audience()), config.approval.timeout),
            sessions: ClientSessions::new(session, config),
            ledger: Arc::default(),
            asking_turns: AskingTurns::default(),
            news: OnceNews::default(),
            images: config.images,
            resource_links: config.resource_links,
            shelf: Shelf::default(),
            skills: Skills::new(config),
            has_long_cells: config.has_long_cells,
            has_views: config.has_views,
            link: RequestLink::to_client(),
        }
    }

    /// The client's own session.
    fn session(&self) -> &Arc<Session> {
        &self.sessions.own().session
    }

    /// Adds news, and earlier answers that may not have reached the client, to an answer.
    async fn deliver(
        &self,
        request: &CallToolRequestParams,
        call: &CallId,
        arrived: Instant,
        result: CallToolResult,
    ) -> CallToolResult {
        let queue = queue_of(request);
        if let Some(queue) = &queue {
            self.ledger.settle(call, queue, arrived).await;
        }
        self.ledger.keep_unfetched(self.session()).await;
        self.news.add_all(self.attached.news());
        let news = self.news.take(queue.is_some()).await;
        let name = name_of(&request.name, request.arguments.as_ref());
        let answer = OutgoingAnswer { call: name, result, news, is_recall: execute::is_recall(request) };
        self.ledger.answer(call, answer, self.session()).await
    }

    /// Keeps an answer whose client is gone, for the next one.
    async fn keep(&self, request: &CallToolRequestParams, result: &CallToolResult) {
        let answer = UnfetchedAnswer {
            call: name_of(&request.name, request.arguments.as_ref()),
            text: text_of(result),
            why: UndeliveredReason::ClientGone,
            after: Duration::ZERO,
        };
        self.ledger.keep(answer, self.session()).await;
    }

    async fn dispatch(
        self: Arc<Self>,
        name: &str,
        arguments: JsonObject,
        call: Call,
    ) -> Result<CallToolResult, ErrorData> {
        let called = match name {
            execute::NAME => execute::call(&self, arguments, call).await,
            register::NAME => register::call(&self, arguments, call).await,
            install::NAME => install::call(&self, arguments, call).await,
            reset::NAME => reset::call(&self, arguments, call).await,
            _ => {
                let names: Vec<_> =
                    definitions(self.has_long_cells).into_iter().map(|tool| tool.name).collect();
                let names = names.join("`, `");
                let message = format!("there is no tool `{name}`; there are `{names}`");
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        Ok(called.unwrap_or_else(reply::failure))
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .with_title("ipybox")
            .with_icons(icons::server());
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_resources()
                .enable_tasks()
                .enable_skills()
                .build(),
        )
        .with_server_info(implementation)
        .with_instructions(instructions::of(self.server.session(), &self.server.sessions.config().site))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = definitions(self.server.has_long_cells);
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
        resources::list(&self.server, request)
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
        answer_panics(resources::read(&self.server, &request.uri, &context)).await.map(Into::into)
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
                Ok(views::read(places, arguments).await.unwrap_or_else(reply::failure))
            })
            .await
            .map(Into::into);
        }
        let call = CallId { connection: self.connection.number, id: context.id.clone() };
        let arrived = Arrival::of(&context.extensions).at;
        self.server.ledger.arrive(&call, UnderWay::new(queue_of(&request), &context));
        self.server.ask_kernel_if_due().await;
        let answer = async {
            match &request.request_state {
                Some(state) => self.resume(state, &request, &context).await,
                None => self.begin(&request, &context).await,
            }
        };
        match answer_panics(answer).await {
            Ok(CallToolResponse::Complete(result))
                if self.connection.outlived_by.is_some() && self.connection.closed.is_cancelled() =>
            {
                self.server.ledger.forget(&call);
                self.server.keep(&request, &result).await;
                Err(ErrorData::internal_error("the client is gone", None))
            }
            Ok(CallToolResponse::Complete(result)) => {
                Ok(self.server.deliver(&request, &call, arrived, result).await.into())
            }
            other => {
                self.server.ledger.forget(&call);
                other
            }
        }
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

fn definitions(has_long_cells: bool) -> Vec<Tool> {
    let wait = has_long_cells.then(wait::definition);
    let execute = execute::definition(has_long_cells);
    [execute, register::definition(), install::definition(), reset::definition()]
        .into_iter()
        .chain(wait)
        .map(|tool| {
            let icons = icons::tool(&tool.name);
            tool.with_icons(icons)
        })
        .collect()
}

/// The schema of a tool's arguments, written as a JSON literal.
fn schema(literal: serde_json::Value) -> Arc<JsonObject> {
    match literal {
        serde_json::Value::Object(schema) => Arc::new(schema),
        other => unreachable!("a schema is an object, not {other}"),
    }
}

/// Reads a tool's arguments. The error is a text for the model, which can correct them.
fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, String> {
    serde_path_to_error::deserialize(serde_json::Value::Object(arguments)).map_err(|error| {
        let place = match error.path().to_string() {
            path if path == "." => Cow::Borrowed("the arguments"),
            path => Cow::Owned(format!("the argument `{path}`")),
        };
        format!("{place} cannot be used: {}", error.inner())
    })
}

/// A number among the arguments, as some models and clients write it too: as a text.
fn number<'de, D: Deserializer<'de>>(arguments: D) -> Result<Option<f64>, D::Error> {
    match serde_json::Value::deserialize(arguments)? {
        serde_json::Value::Null => Ok(None),
        value => {
            number_in(&value).map(Some).ok_or_else(|| D::Error::custom(format!("{value} is not a number")))
        }
    }
}

fn number_in(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Turns a panic into an error response: without it the client would wait for ever.
async fn answer_panics<T>(answer: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    // The panic hook has logged what happened.
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| Err(bug()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let answer: Result<(), _> = answer_panics(async { panic!("on purpose") }).await;
        assert!(answer.unwrap_err().message.contains("panic"));
    }

    #[test]
    fn every_tool_describes_itself_to_models_and_users() {
        for tool in definitions(true) {
            assert!(tool.description.is_some_and(|text| text.len() > 80), "{}", tool.name);
            assert!(tool.title.is_some() && tool.annotations.is_some(), "{}", tool.name);
            for (name, schema) in tool.input_schema["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{}.{name}", tool.name);
            }
        }
    }

    #[test]
    fn arguments_are_refused_by_name() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its shape matters")]
        struct Arguments {
            count: u32,
        }
        let check = |arguments: serde_json::Value, expected: &str| {
            let serde_json::Value::Object(arguments) = arguments else { panic!("an object") };
            let refusal = parse::<Arguments>(arguments).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        };
        check(json!({"count": "x"}), "the argument `count` cannot be used: invalid type");
        check(json!({}), "missing field `count`");
        check(json!({"count": 1, "cout": 2}), "unknown field `cout`");
    }
}
