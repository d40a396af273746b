//! The servers of `--mcp-config`: registered side by side, at the start or once the first cell brings somebody to ask.
//!
//! The first cell waits for them, so that its code can import what they have. A server that takes longer than its
//! timeout goes on to start, and the answer of a later cell reports it.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::registrar::{DoneRegistration, Registrar, permit, record_end, registration};
use crate::approval::{Action, Approver, ChosenBy, DenialReason, OpenCall};
use crate::ground::text::describe;
use crate::tools::import::{AT_ONCE, StartServer, StartServers};
use crate::tools::registry::{self, ServerCandidate};

/// The number of troubles that a note lists.
const LISTED_TROUBLES: usize = 40;

/// The reason if a file that code can write offers a server and nobody can be asked.
const OFFERED_BY_CODE: &str = "code in the sandbox can write the file that offers it, and the MCP client cannot ask its user\n\
     hint: `ipybox import --from FILE` takes it, in a terminal; or keep the file where code cannot write";

/// The servers that are offered to a session.
pub(super) struct ServerOffers {
    registrar: Registrar,
    slots: Arc<Semaphore>,
    /// Those that somebody has to be asked about.
    asking: Mutex<Vec<Arc<StartServer>>>,
    status: watch::Sender<OfferStatus>,
    news: Mutex<SessionNews>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// The servers that a cell waits for.
#[derive(Default)]
struct OfferStatus {
    names: BTreeSet<String>,
    /// The last words of one of them.
    said: String,
}

/// The events since the last cell.
#[derive(Default)]
pub(super) struct SessionNews {
    /// Servers that code can call now, with the number of their tools.
    ready: Vec<(String, usize)>,
    /// Packages that other code may have imported in an earlier form.
    pub(super) changed: Vec<String>,
    /// The troubles, a text for each server.
    troubles: Vec<String>,
}

impl SessionNews {
    /// Whether code finds new packages.
    pub(super) fn has_packages(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The news as notes for the author of the code.
    pub(super) fn notes(mut self) -> Vec<String> {
        self.ready.sort_unstable();
        self.troubles.sort_unstable();
        let ready = self.ready.iter().map(|(name, tools)| match tools {
            1 => format!("`{name}` (1 tool)"),
            tools => format!("`{name}` ({tools} tools)"),
        });
        let ready = ready.collect::<Vec<_>>().join(", ");
        let mut lines = Vec::new();
        if !ready.is_empty() {
            lines.push(format!("MCP servers of `--mcp-config` that are ready: {ready}."));
        }
        if !self.troubles.is_empty() {
            let more = self.troubles.len().saturating_sub(LISTED_TROUBLES);
            let troubles = self.troubles.iter().take(LISTED_TROUBLES).map(|trouble| format!("- {trouble}"));
            let more = (more > 0).then(|| format!("- and {more} more"));
            let troubles = troubles.chain(more).collect::<Vec<_>>().join("\n");
            lines.push(format!("MCP servers of `--mcp-config` that are not registered:\n{troubles}"));
        }
        lines
    }
}

impl ServerOffers {
    /// Begins to register what needs no question. `None` if there is nothing to do.
    pub(super) fn start(registrar: Registrar, at_start: StartServers) -> Option<Arc<Self>> {
        let StartServers { servers, left } = at_start;
        let is_new = |server: &StartServer| {
            let registered = registrar.registry.parameters_of(&server.name);
            let is_known =
                registered.is_ok_and(|registered| registered.as_ref() == Some(&server.kept.parameters));
            !is_known || server.kept.has_new()
        };
        let servers: Vec<StartServer> = servers.into_iter().filter(is_new).collect();
        if servers.is_empty() && left.is_empty() {
            return None;
        }
        let offers = Arc::new(Self {
            registrar,
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            asking: Mutex::default(),
            status: watch::Sender::default(),
            news: Mutex::new(SessionNews { troubles: left, ..SessionNews::default() }),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        for server in servers.into_iter().map(Arc::new) {
            if offers.registrar.gate.asks_about(&server.action(), server.chosen_by()) {
                offers.asking.lock().push(server);
            } else {
                offers.spawn(&server, None);
            }
        }
        Some(offers)
    }

    /// Waits until all servers are registered or have failed; `approver` answers for those that need it, and `report`
    /// receives what is waited for. Dropping the future leaves undecided what has not been decided.
    pub(super) async fn come(self: &Arc<Self>, approver: &Approver, report: &(dyn Fn(String) + Sync)) {
        let asking = self.asking.lock().clone();
        let deciding = asking.iter().map(|server| self.ask(server, approver));
        let deciding = futures::future::join_all(deciding);
        let mut status = self.status.subscribe();
        let reporting = async {
            loop {
                let words = status.borrow_and_update().words();
                if let Some(words) = words {
                    report(words);
                }
                // The sender is ours: this does not fail.
                if status.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let mut done = self.status.subscribe();
        let coming = async {
            deciding.await;
            done.wait_for(|status| status.names.is_empty()).await.ok();
        };
        tokio::select! {
            () = coming => {}
            () = reporting => {}
        }
    }

    /// The names of the servers that are not registered yet.
    pub(super) fn names(&self) -> Vec<String> {
        let asking = self.asking.lock().iter().map(|server| server.name.clone()).collect::<Vec<_>>();
        asking.into_iter().chain(self.status.borrow().names.iter().cloned()).collect()
    }

    /// The events since this was asked last.
    pub(super) fn news(&self) -> SessionNews {
        std::mem::take(&mut *self.news.lock())
    }

    /// Ends what is under way, and waits.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Begins to end what is under way.
    pub(super) fn abandon(&self) {
        self.stop.cancel();
    }

    /// Asks about a server, and begins to register it if that is permitted.
    async fn ask(self: &Arc<Self>, server: &Arc<StartServer>, approver: &Approver) {
        let approver = match (approver, server.chosen_by()) {
            (Approver::Attached(queue, _), ChosenBy::Code) if !queue.is_attended() => {
                &Approver::Nobody(OFFERED_BY_CODE)
            }
            (Approver::Nobody(_), ChosenBy::Code) => &Approver::Nobody(OFFERED_BY_CODE),
            _ => approver,
        };
        let permitted = self.permit(server, approver).await;
        self.asking.lock().retain(|other| other.name != server.name);
        match permitted {
            Ok(on_record) => self.spawn(server, Some(on_record)),
            Err(denied) => self.failed(&server.name, &describe(&denied)),
        }
    }

    async fn permit(&self, server: &StartServer, approver: &Approver) -> Result<OpenCall, DenialReason> {
        permit(&self.registrar.gate, server.action(), approver, server.chosen_by()).await
    }

    /// Registers a server that is `permitted`, or about which nobody is asked.
    fn spawn(self: &Arc<Self>, server: &Arc<StartServer>, permitted: Option<OpenCall>) {
        let offers = Arc::clone(self);
        let server = Arc::clone(server);
        self.begun(&server.name);
        self.tasks.spawn(async move {
            let permitted = match permitted {
                Some(on_record) => Ok(on_record),
                None => offers.permit(&server, &Approver::Nobody("no cell is running")).await,
            };
            match permitted {
                Ok(on_record) => offers.register(&server, on_record).await,
                Err(denied) => offers.failed(&server.name, &describe(&denied)),
            }
            offers.ended(&server.name);
        });
    }

    /// Registers a server, or says why not.
    async fn register(self: &Arc<Self>, server: &StartServer, on_record: OpenCall) {
        let StartServer { name, kept, notes, .. } = server;
        let slot = tokio::select! {
            slot = self.slots.acquire() => slot,
            () = self.stop.cancelled() => return,
        };
        let registry = &self.registrar.registry;
        let keeping = match kept.begin(registry, name).await {
            Ok(keeping) => keeping,
            Err(error) => return self.failed(name, &format!("its secrets cannot be kept: {error}")),
        };
        let candidate = registry.imported(name, keeping.parameters().clone(), notes.clone());
        let registered = match candidate {
            Ok(candidate) => tokio::select! {
                registered = self.generate(candidate, name) => registered,
                () = self.stop.cancelled() => return keeping.end().await,
            },
            Err(error) => Err(error),
        };
        drop(slot);
        record_end(Some(on_record), &registered, |(registration, ..)| json!(registration.modules));
        keeping.end().await;
        match registered {
            Ok(done) => self.adopt(name, done).await,
            Err(error) => self.failed(name, &describe(&error)),
        }
    }

    /// Puts the package in place; waits for a server that goes on to start, while cells run.
    async fn generate(
        &self,
        candidate: ServerCandidate,
        name: &str,
    ) -> Result<DoneRegistration, registry::Error> {
        let progress =
            |what: &str| self.said(format!("MCP server `{name}`: {}", crate::ground::text::one_line(what)));
        loop {
            match self.registrar.generate(candidate.clone(), None, &progress).await {
                Err(error) if error.is_still_starting() => {
                    if self.is_awaited(name) {
                        self.failed(
                            name,
                            "not ready yet: it goes on to start, and a later answer reports it",
                        );
                        self.ended(name);
                    }
                }
                // By a reset, which ends connections, and not what is offered.
                Err(error) if error.is_ended_start() && !self.stop.is_cancelled() => {}
                registered => return registered,
            }
        }
    }

    async fn adopt(&self, name: &str, (registration, open): DoneRegistration) {
        registration.log(name);
        self.registrar.keep(name, open, || self.stop.is_cancelled()).await;
        let mut news = self.news.lock();
        news.changed.extend(registration.changed(name).map(str::to_owned));
        news.ready.push((name.to_owned(), registration.modules.len()));
    }

    fn begun(&self, name: &str) {
        self.status.send_if_modified(|status| status.names.insert(name.to_owned()));
    }

    fn ended(&self, name: &str) {
        self.status.send_if_modified(|status| status.names.remove(name));
    }

    fn is_awaited(&self, name: &str) -> bool {
        self.status.borrow().names.contains(name)
    }

    fn said(&self, what: String) {
        self.status.send_modify(|status| status.said = what);
    }

    fn failed(&self, name: &str, why: &str) {
        tracing::warn!(server = %name, "not registered: {why}");
        let why = why.replace('\n', "\n  ");
        self.news.lock().troubles.push(format!("`{name}`: {why}"));
    }
}

impl OfferStatus {
    /// The awaited servers, in words.
    fn words(&self) -> Option<String> {
        if self.names.is_empty() {
            return None;
        }
        let names = crate::ground::text::listed(self.names.iter().map(String::as_str));
        if self.said.is_empty() {
            Some(format!("waiting for MCP servers: {names}"))
        } else {
            Some(format!("waiting for MCP servers: {names}; {}", self.said))
        }
    }
}

impl StartServer {
    /// The action of registering it.
    fn action(&self) -> Action {
        registration(&self.name, self.kept.parameters.shown_json())
    }

    fn chosen_by(&self) -> ChosenBy {
        if self.is_of_code { ChosenBy::Code } else { ChosenBy::Trusted }
    }
}
