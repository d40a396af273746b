//! Servers that are being started, each by a task of its own.
//!
//! A start goes on when no caller waits any more: killing a program that downloads a server loses the
//! download, and may leave a broken cache behind. The next call for the same server joins the start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::mcp_client::connection::Connection;
use crate::connections::mcp_client::failure::Error;
use crate::connections::mcp_client::parameters::StdioParameters;
use crate::connections::mcp_client::transport::ServerOutput;

/// The starts of one [`Connector`](super::Connector). Dropping them ends what they have started, in the background.
#[derive(Default)]
pub(crate) struct ServerStarts {
    running: Mutex<Vec<Arc<ServerStart>>>,
    tasks: TaskTracker,
}

/// The start of one server.
pub(super) struct ServerStart {
    name: String,
    parameters: StdioParameters,
    account: ServerOutput,
    outcome: Mutex<Option<Result<Connection, Error>>>,
    /// Cancelled when there is an outcome.
    done: CancellationToken,
    /// Cancelled to end the server, and when a caller takes the outcome.
    stop: CancellationToken,
    /// Cancelled when a caller ends the start for all who wait for it.
    ended: CancellationToken,
    /// Whether a caller got the error that the start goes on, so that its outcome must still be reported.
    is_promised: AtomicBool,
}

impl ServerStarts {
    /// The start of this server that is under way, or has ended and was not reported yet.
    pub(crate) fn find(&self, name: &str, parameters: &StdioParameters) -> Option<Arc<ServerStart>> {
        let mut running = self.running.lock();
        let position =
            running.iter().position(|start| start.name == name && start.parameters == *parameters)?;
        if running[position].is_worth_joining() {
            return Some(Arc::clone(&running[position]));
        }
        running.remove(position).stop.cancel();
        None
    }

    /// Starts a server by `connecting`, which gets a token to cancel it.
    pub(crate) fn begin<F>(
        &self,
        name: &str,
        parameters: &StdioParameters,
        account: ServerOutput,
        connecting: impl FnOnce(CancellationToken) -> F,
    ) -> Arc<ServerStart>
    where
        F: Future<Output = Result<Connection, Error>> + Send + 'static,
    {
        let start = Arc::new(ServerStart {
            name: name.to_owned(),
            parameters: parameters.clone(),
            account,
            outcome: Mutex::default(),
            done: CancellationToken::new(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            is_promised: AtomicBool::new(false),
        });
        self.running.lock().push(Arc::clone(&start));
        self.tasks.spawn(Arc::clone(&start).run(connecting(start.stop.clone())));
        start
    }

    /// Takes the outcome of a start that is done; `None` if another caller has it.
    pub(crate) fn take(&self, start: &Arc<ServerStart>) -> Option<Result<Connection, Error>> {
        self.running.lock().retain(|other| !Arc::ptr_eq(other, start));
        let outcome = start.outcome.lock().take();
        start.stop.cancel();
        outcome
    }

    /// Ends the servers that start as `name`, but for the one with these parameters. Does not wait.
    pub(super) fn end_others(&self, name: &str, parameters: Option<&StdioParameters>) {
        self.running.lock().retain(|start| {
            let is_kept = start.name != name || parameters == Some(&start.parameters);
            if !is_kept {
                start.end();
            }
            is_kept
        });
    }

    /// Ends all servers that are starting. Does not wait.
    pub(super) fn end_all(&self) {
        self.running.lock().drain(..).for_each(|start| start.end());
    }

    /// Waits until the ended servers have exited.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for ServerStarts {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl ServerStart {
    /// Waits until there is an outcome, or the start is ended. Cancellation safe.
    pub(crate) async fn done(&self) {
        tokio::select! {
            () = self.done.cancelled() => {}
            () = self.ended.cancelled() => {}
        }
    }

    /// Ends the server, and the wait of all who wait for it.
    fn end(&self) {
        self.ended.cancel();
        self.stop.cancel();
    }

    /// Whether a caller has ended it.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Keeps the outcome for the next attempt, even a failure.
    pub(crate) fn promise(&self) {
        self.is_promised.store(true, Ordering::Relaxed);
    }

    /// The server's output.
    pub(crate) fn account(&self) -> &ServerOutput {
        &self.account
    }

    async fn run(self: Arc<Self>, connecting: impl Future<Output = Result<Connection, Error>>) {
        let outcome = connecting.await;
        match &outcome {
            // A waiting caller reports the error; the caller that ended the start knows it.
            Err(error) if self.is_promised.load(Ordering::Relaxed) && !self.stop.is_cancelled() => {
                tracing::warn!(name = self.name, %error, "an MCP server did not start in the background");
            }
            Err(error) => tracing::debug!(name = self.name, %error, "an MCP server did not start"),
            Ok(_) => {}
        }
        *self.outcome.lock() = Some(outcome);
        self.done.cancel();
        // Until a caller takes the connection, this task has to close it.
        self.stop.cancelled().await;
        let left = self.outcome.lock().take();
        if let Some(Ok(connection)) = left {
            connection.close().await;
        }
    }

    /// Whether it is under way, has succeeded, or has failed without that being reported.
    fn is_worth_joining(&self) -> bool {
        match &*self.outcome.lock() {
            Some(Ok(connection)) => connection.is_alive(),
            Some(Err(_)) => self.is_promised.load(Ordering::Relaxed),
            // If it is done, a caller has taken the outcome.
            None => !self.done.is_cancelled(),
        }
    }
}
