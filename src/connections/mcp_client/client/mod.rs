//! Our client information for servers, and our answers to their requests.

// Roots are deprecated in the newest revision of the protocol; refusing them still needs their types.
#![expect(deprecated)]

mod elicitation;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability, Implementation,
    ListRootsResult, ProgressNotificationParam, ProtocolVersion, RequestMetaObject, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};

pub(crate) use self::elicitation::{ElicitationQuestion, NotAnswered, UserAsker};
use crate::connections::mcp_client::requests::traced_server::TracedServer;
use crate::ground::telemetry::Context;

/// The number of questions that a server may ask while it works on calls: a user who is asked without end agrees to anything.
const MOST_QUESTIONS: usize = 20;

/// The client half: pings are answered, and questions for the user passed on if there is one; everything else that a
/// server may ask is refused.
///
/// Sampling and roots are not among the declared capabilities, so a server that requests them anyway gets the
/// protocol's error for it. Most servers pass its text on as the error of the tool that asked, so the text has to help
/// the caller of the tool.
#[derive(Clone)]
pub(super) struct ClientSide {
    pub(super) name: Arc<str>,
    /// Asks the user; `None` if there is nobody to ask.
    pub(super) asker: Option<Arc<dyn UserAsker>>,
    pub(super) state: Arc<ClientState>,
    /// Whether the server is on this machine.
    pub(super) is_local: bool,
    pub(super) traced: TracedServer,
    /// The revision of the protocol that the server is asked for.
    pub(super) revision: ProtocolVersion,
}

/// State that the client and the connection share.
#[derive(Default)]
pub(super) struct ClientState {
    /// The number of our requests that the server works on.
    requests: AtomicUsize,
    /// The number of questions that it has asked since it worked on none.
    questions: AtomicUsize,
    /// Whether the server has said that its tools have changed.
    pub(super) has_changed: AtomicBool,
}

impl ClientState {
    /// A request of ours begins, which lasts as long as the result lives.
    pub(super) fn begin(&self) -> WorkingRequest<'_> {
        if self.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            self.questions.store(0, Ordering::Relaxed);
        }
        WorkingRequest(self)
    }
}

/// A request of ours that the server works on.
pub(super) struct WorkingRequest<'a>(&'a ClientState);

impl Drop for WorkingRequest<'_> {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClientSide {
    /// Asks the user on behalf of the server.
    pub(super) async fn elicit(&self, request: ElicitRequestParams) -> Result<ElicitResult, ErrorData> {
        let Some(asker) = &self.asker else {
            return Err(not_offered(
                "elicitation/create",
                "ipybox does not ask users on behalf of servers (elicitation). Give all that the tool needs as arguments",
            ));
        };
        if self.state.requests.load(Ordering::Relaxed) == 0 {
            return Err(not_offered(
                "elicitation/create",
                "a server asks the user while it works on a call, and at no other time",
            ));
        }
        if self.state.questions.fetch_add(1, Ordering::Relaxed) >= MOST_QUESTIONS {
            return Err(not_offered(
                "elicitation/create",
                "the server has asked too many questions in one call",
            ));
        }
        elicitation::ask(&self.name, request, self.is_local, &**asker).await
    }

    pub(super) fn no_sampling() -> ErrorData {
        not_offered(
            "sampling/createMessage",
            "ipybox lends servers no language model (sampling). Use a tool that needs none, or a server that has one of \
             its own by a key in its `env`",
        )
    }

    pub(super) fn no_roots() -> ErrorData {
        not_offered(
            "roots/list",
            "ipybox offers servers no directories (roots). Give them in the server's `args` or `env` when it is registered",
        )
    }
}

impl ClientHandler for ClientSide {
    fn get_info(&self) -> ClientConfig {
        let mut implementation = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        implementation.title = Some("ipybox".to_owned());
        let mut capabilities = ClientCapabilities::default();
        if self.asker.is_some() {
            let mut elicitation = ElicitationCapability::default();
            elicitation.form = Some(FormElicitationCapability::default());
            elicitation.url = Some(UrlElicitationCapability::default());
            capabilities.elicitation = Some(elicitation);
        }
        // rmcp's default is a revision that has no `initialize`; old servers may reject it.
        let mut config =
            ClientConfig::new(capabilities, implementation).with_protocol_version(self.revision.clone());
        // It is asked for in the handshake.
        let mut meta = RequestMetaObject::new();
        Context::current().write_to(&mut meta.0.0);
        config.meta = Some(meta).filter(|meta| !meta.0.0.is_empty());
        config
    }

    async fn create_message(
        &self,
        _request: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(Self::no_sampling())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.elicit(request).await
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(Self::no_roots())
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        if let Some(asker) = self.asker.as_ref().filter(|_| self.state.requests.load(Ordering::Relaxed) > 0) {
            asker.show_progress(&self.name, &elicitation::progress(&progress));
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.state.has_changed.store(true, Ordering::Relaxed);
    }
}

fn not_offered(method: &str, advice: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("`{method}` is refused: {advice}"), None)
}
