//! Servers that are being started, each by a task of its own.
//!
//! A start goes on when nobody waits for it any more: a program that downloads a server and is killed loses the download,
//! and may leave a broken cache behind. Whoever wants the same server next joins the start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::stdio::Account;
use super::{Error, StdioParameters};

/// The starts of one [`Connector`](super::Connector). Dropping them ends what they have started, in the background.
#[derive(Default)]
pub(super) struct Starts {
    running: Mutex<Vec<Arc<Start>>>,
    tasks: TaskTracker,
}

/// The start of one server.
pub(super) struct Start {
    name: String,
    parameters: StdioParameters,
    account: Account,
    outcome: Mutex<Option<Result<Connection, Error>>>,
    /// Cancelled when there is an outcome.
    done: CancellationToken,
    /// Cancelled to end the server, and once somebody has the outcome.
    stop: CancellationToken,
    /// Whether somebody was told that the start goes on, and so has yet to hear how it went.
    is_promised: AtomicBool,
}

impl Starts {
    /// The start of this server that is under way, or has ended and was not asked for since.
    pub(super) fn find(&self, name: &str, parameters: &StdioParameters) -> Option<Arc<Start>> {
        let mut running = self.lock();
        let position =
            running.iter().position(|start| start.name == name && start.parameters == *parameters)?;
        if running[position].is_worth_joining() {
            return Some(Arc::clone(&running[position]));
        }
        running.remove(position).stop.cancel();
        None
    }

    /// Starts a server: `connecting` is told when to give up.
    pub(super) fn begin<F>(
        &self,
        name: &str,
        parameters: &StdioParameters,
        account: Account,
        connecting: impl FnOnce(CancellationToken) -> F,
    ) -> Arc<Start>
    where
        F: Future<Output = Result<Connection, Error>> + Send + 'static,
    {
        let start = Arc::new(Start {
            name: name.to_owned(),
            parameters: parameters.clone(),
            account,
            outcome: Mutex::default(),
            done: CancellationToken::new(),
            stop: CancellationToken::new(),
            is_promised: AtomicBool::new(false),
        });
        self.lock().push(Arc::clone(&start));
        self.tasks.spawn(Arc::clone(&start).run(connecting(start.stop.clone())));
        start
    }

    /// Takes the outcome of a start that is done; `None` if somebody else has it.
    pub(super) fn take(&self, start: &Arc<Start>) -> Option<Result<Connection, Error>> {
        self.lock().retain(|other| !Arc::ptr_eq(other, start));
        let outcome = start.outcome().take();
        start.stop.cancel();
        outcome
    }

    /// Ends the servers that start as `name`, but for the one with these parameters. Does not wait.
    pub(super) fn end_others(&self, name: &str, parameters: Option<&StdioParameters>) {
        self.lock().retain(|start| {
            let is_kept = start.name != name || parameters == Some(&start.parameters);
            if !is_kept {
                start.stop.cancel();
            }
            is_kept
        });
    }

    /// Ends all servers that are starting. Does not wait.
    pub(super) fn end_all(&self) {
        self.lock().drain(..).for_each(|start| start.stop.cancel());
    }

    /// Waits until what was ended has ended.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Start>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Start {
    /// Waits until there is an outcome. Cancellation safe.
    pub(super) async fn done(&self) {
        self.done.cancelled().await;
    }

    /// Has the next attempt hear how the start went, even if it failed.
    pub(super) fn promise(&self) {
        self.is_promised.store(true, Ordering::Relaxed);
    }

    /// What the server writes.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    async fn run(self: Arc<Self>, connecting: impl Future<Output = Result<Connection, Error>>) {
        let outcome = connecting.await;
        match &outcome {
            // Whoever waits tells it; and whoever ended it knows.
            Err(error) if self.is_promised.load(Ordering::Relaxed) && !self.stop.is_cancelled() => {
                tracing::warn!(name = self.name, %error, "an MCP server did not start in the background");
            }
            Err(error) => tracing::debug!(name = self.name, %error, "an MCP server did not start"),
            Ok(_) => {}
        }
        *self.outcome() = Some(outcome);
        self.done.cancel();
        // Until somebody takes the connection, it is ours to close.
        self.stop.cancelled().await;
        let left = self.outcome().take();
        if let Some(Ok(connection)) = left {
            connection.close().await;
        }
    }

    /// Whether it is under way, has succeeded, or has failed and nobody knows who was to be told.
    fn is_worth_joining(&self) -> bool {
        match &*self.outcome() {
            Some(Ok(connection)) => connection.is_alive(),
            Some(Err(_)) => self.is_promised.load(Ordering::Relaxed),
            // Taken by somebody, if it is done.
            None => !self.done.is_cancelled(),
        }
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Result<Connection, Error>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
