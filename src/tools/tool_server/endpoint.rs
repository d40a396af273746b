//! The tool server of a session: in the session's process, for calls of its kernel only.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::access::{self, ServerTokens, TokenRole};
use super::call::SharedRoutes;
use super::file_routes::{self, FileAnswers};
use super::listener::ToolListener;
use super::{Error, checkpoint_routes, routes};
use crate::approval::Gate;
use crate::kernels::checkpoint::Checkpoint;
use crate::tools::actions::ActionSaver;
use crate::tools::recording::CallTape;
use crate::tools::servers::ConnectionPool;

/// A running tool server for one kernel at a time.
pub(crate) struct ToolEndpoint {
    /// `None` until it listens: in a sandbox, until that has handed out a socket.
    listener: Mutex<Option<ToolListener>>,
    router: Router,
    /// The routes without access control, for calls that did not come over the network.
    calls: Router,
    keys: Arc<ServerTokens>,
    checkpoint: Option<Arc<Checkpoint>>,
}

impl ToolEndpoint {
    /// A tool server that does not listen yet; its calls pass `tape`. It takes the kernel's variables for the `checkpoint`, if there is one, and
    /// saves `actions`.
    pub(crate) fn new(
        pool: Arc<ConnectionPool>,
        gate: Arc<Gate>,
        checkpoint: Option<Arc<Checkpoint>>,
        tape: CallTape,
        actions: Option<Arc<dyn ActionSaver>>,
    ) -> Self {
        let keys = Arc::new(ServerTokens::of_callers());
        let shared = SharedRoutes { pool, gate: Arc::clone(&gate), tape, actions };
        let mut routes = routes::router(shared);
        if let Some(checkpoint) = &checkpoint {
            routes = routes.merge(checkpoint_routes::router(Arc::clone(checkpoint), Arc::clone(&gate)));
        }
        let router = access::guarded(routes.clone(), Arc::clone(&keys), TokenRole::Caller);
        Self { listener: Mutex::default(), router, calls: routes, keys, checkpoint }
    }

    /// The same for a kernel that gets the workspace's files by `answers`.
    pub(crate) fn with_files(self, answers: FileAnswers) -> Self {
        let files = file_routes::router(answers);
        let router = access::guarded(files.clone(), Arc::clone(&self.keys), TokenRole::Caller);
        Self { router: self.router.merge(router), calls: self.calls.merge(files), ..self }
    }

    /// Starts to listen on `host`, which must be a loopback address, and on `port`, or a free one if it is 0.
    pub(crate) async fn listen(&self, host: &str, port: u16) -> Result<(), Error> {
        let listener = ToolListener::start(host, port, self.router.clone(), CancellationToken::new()).await?;
        self.replace(Some(listener)).await;
        Ok(())
    }

    /// Listens on a socket in a sandbox instead of an earlier one.
    pub(crate) async fn listen_on(&self, listener: std::net::TcpListener) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let listener = ToolListener::serve(listener, self.router.clone(), CancellationToken::new())?;
        self.replace(Some(listener)).await;
        Ok(())
    }

    /// Answers a call that came over the connection of a remote kernel.
    pub(crate) async fn answer(&self, path: &str, body: String) -> (u16, Bytes) {
        let request =
            Request::post(path).header(header::CONTENT_TYPE, "application/json").body(Body::from(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return (StatusCode::BAD_REQUEST.as_u16(), error.to_string().into()),
        };
        let Ok(response) = self.calls.clone().oneshot(request).await;
        let status = response.status();
        match to_bytes(response.into_body(), usize::MAX).await {
            Ok(bytes) => (status.as_u16(), bytes),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR.as_u16(), error.to_string().into()),
        }
    }

    async fn replace(&self, listener: Option<ToolListener>) {
        let earlier = {
            let mut place = self.listener.lock();
            std::mem::replace(&mut *place, listener)
        };
        if let Some(earlier) = earlier {
            earlier.stop().await;
        }
    }

    /// The checkpoint in which the kernel's variables are saved, if they are.
    pub(crate) fn checkpoint(&self) -> Option<&Arc<Checkpoint>> {
        self.checkpoint.as_ref()
    }

    /// Its address, as the kernel sees it.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let listener = self.listener.lock();
        listener.as_ref().map(ToolListener::address)
    }

    /// Makes a new token for a new kernel; the earlier one is invalid from now on.
    pub(crate) fn renew_token(&self) -> String {
        self.keys.renew_caller()
    }

    /// Stops listening.
    pub(crate) async fn stop(&self) {
        self.replace(None).await;
    }
}
