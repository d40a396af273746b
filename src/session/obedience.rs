//! The kernel gets no more than its clients' own commands, as far as the clients have told.
//!
//! Permissions come with a call over the connection of an MCP client, and never from code. A kernel holds those of all clients whose
//! cells it has run. A client that allows less gets a new kernel before its cell; one that allows more gets that with a reset.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::checkpoint::conditions;
use super::command::QueuedCommand;
use super::lost::lost_note;
use super::permissions::{ToldPermissions, holds};
use super::queue::CellQueue;
use super::undo::end_all;
use super::worker::KernelWorker;
use super::{Error, Session};
use crate::kernels::sandbox::ClientPermissions;

/// The note of a kernel that could have more.
const WIDER: &str =
    "Your MCP client allows more than before. The kernel keeps to what held when it started, until `reset`.";

/// Why the kernel was started anew.
const NARROWER: &str = "your MCP client allows less than before, which its sandbox has to hold";

impl Session {
    /// Has the session's kernels get no more than a client allows, before something else is done for it.
    ///
    /// # Errors
    /// Nothing here can hold that.
    pub(super) async fn obey(&self, client: &ToldPermissions) -> Result<(), Error> {
        match client {
            Some(client) if !self.place.holds(client) => self.queue.obey(Arc::clone(client)).await,
            _ => Ok(()),
        }
    }
}

impl CellQueue {
    async fn obey(&self, client: Arc<ClientPermissions>) -> Result<(), Error> {
        self.send(|reply| QueuedCommand::Obey { client, reply }).await.outcome().await
    }
}

impl KernelWorker {
    /// Obeys a client that wants something else than a cell.
    pub(super) async fn obey_before(
        &mut self,
        client: Arc<ClientPermissions>,
        reply: oneshot::Sender<Result<(), Error>>,
    ) {
        if reply.is_closed() {
            return;
        }
        let obeyed = self.obey(&Some(client)).await;
        // Whether permissions are wider, the next cell says. Fails only if the caller has given up.
        reply.send(obeyed.map(drop)).ok();
    }

    /// Has the next cell run in a kernel that gets no more than its client allows: in a new one, if this one gets more.
    /// Returns a note for the answer.
    ///
    /// # Errors
    /// Nothing here can hold that. The kernel runs on, for clients that allow it.
    pub(super) async fn obey(&mut self, client: &ToldPermissions) -> Result<Option<String>, Error> {
        let Some(client) = client else { return Ok(None) };
        let held = self.kernels.clients();
        if !holds(held, client) {
            let others = held.iter().filter(|held| !client.is_within(held));
            let others: Vec<_> = others.map(Arc::clone).collect();
            self.hold(Some(client), &others).await?;
            return Ok(None);
        }
        let is_wider = !held.is_empty() && held.iter().all(|held| held != client);
        let is_news = is_wider && !std::mem::replace(&mut self.obedience.has_noted_wider, is_wider);
        Ok(is_news.then(|| WIDER.to_owned()))
    }

    /// Takes over the permissions of the client of a reset. No kernel may run.
    pub(super) async fn adopt(&mut self, client: &ToldPermissions) -> Result<(), Error> {
        let Some(client) = client else { return Ok(()) };
        let wanted = Some(client).filter(|client| !client.is_unrestricted());
        let is_held = self.kernels.clients().iter().eq(wanted);
        if is_held { Ok(()) } else { self.hold(wanted, &[]).await }
    }

    /// Has kernels run where they get no more than these clients allow, and keeps the host's programs away from there.
    async fn hold(
        &mut self,
        newest: Option<&Arc<ClientPermissions>>,
        others: &[Arc<ClientPermissions>],
    ) -> Result<(), Error> {
        let own = &self.obedience.config;
        let config = match newest {
            None => Arc::clone(own),
            Some(newest) => Arc::new(own.within(newest, others)?),
        };
        config.check_sandbox().await?;
        config.record_exposed()?;
        if let Some(tools) = &self.tools {
            tools.pool.keep_apart(config.exposed());
        }
        if std::mem::take(&mut self.obedience.has_run) && self.kernel.is_some() {
            self.lost = Some(lost_note(NARROWER));
        }
        self.give_up_kernel().await;
        // The states may have more, too.
        end_all(self.history.forget()).await;
        tracing::info!(is_restricted = newest.is_some(), "kernels run as the MCP client allows");
        let moved = self.kernels.move_to(&config).await;
        self.obedience.place.replace(moved?, self.kernels.clients());
        self.obedience.has_noted_wider = false;
        if let (Some(checkpoint), Some(conditions)) = (self.checkpoint(), conditions(&config)) {
            checkpoint.move_to(conditions);
        }
        Ok(())
    }

    /// Keeps the programs of a branch's host away from where its kernel writes.
    pub(super) fn keep_apart(&self) -> Result<(), Error> {
        if let (Some((newest, others)), Some(tools)) = (self.kernels.clients().split_last(), &self.tools) {
            tools.pool.keep_apart(self.obedience.config.within(newest, others)?.exposed());
        }
        Ok(())
    }
}
