//! Registers imported servers, side by side, without a session.

use futures::StreamExt as _;
use parking_lot::Mutex;

use super::{ImportServer, SecretKeeping};
use crate::config::{self, Config, Settings};
use crate::connections::mcp_client::Connector;
use crate::ground::text::describe;
use crate::tools::registry::{PackageDirectory, Registry};

/// The number of servers that are started at once: each may download and compile what it needs.
pub(crate) const AT_ONCE: usize = 8;

/// An event of a server that is imported.
#[derive(Debug, Clone, Copy)]
pub enum ImportEvent<'a> {
    /// It is about to be started.
    Starts,
    /// It says something while it starts.
    Says(&'a str),
    /// It is registered, with so many tools.
    Registered {
        /// The number of its tools.
        tools: usize,
        /// The parts that were left out or reinterpreted, or that code does not express.
        notes: &'a [String],
    },
    /// It is not registered.
    Failed(&'a str),
}

/// Registers servers for a workspace. Call [`stop`](Self::stop) at the end.
pub struct Importer {
    config: Config,
    registry: Registry,
    connector: Connector,
    /// Those whose secrets are in the vault, and who are not registered yet.
    under_way: Mutex<Vec<(String, SecretKeeping)>>,
}

impl Importer {
    /// An importer for the workspace of these settings, which is created with its state directory.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn new(settings: Settings) -> Result<Self, config::Error> {
        let config = Config::new(settings)?;
        let connector = config.connector().in_foreground();
        let registry = Registry::in_directory(&config.state_dir, connector.clone());
        registry.settle(config.workspace());
        registry.report_placeholders(config.variables());
        Ok(Self { config, registry, connector, under_way: Mutex::default() })
    }

    /// Registers servers, a few at once. One that fails does not hold up the others. Returns how many have failed.
    ///
    /// Dropping the future leaves those that are registered by then.
    pub async fn register(
        &self,
        servers: &[ImportServer],
        report: &(dyn Fn(&ImportServer, ImportEvent<'_>) + Sync),
    ) -> usize {
        let each = futures::stream::iter(servers).map(|server| async move {
            report(server, ImportEvent::Starts);
            let registered = self.register_one(server, &|what| report(server, ImportEvent::Says(what))).await;
            match &registered {
                Ok((tools, notes)) => report(server, ImportEvent::Registered { tools: *tools, notes }),
                Err(words) => report(server, ImportEvent::Failed(words)),
            }
            registered.is_err()
        });
        each.buffer_unordered(AT_ONCE).filter(|has_failed| std::future::ready(*has_failed)).count().await
    }

    async fn register_one(
        &self,
        server: &ImportServer,
        progress: crate::connections::mcp_client::StartProgress<'_>,
    ) -> Result<(usize, Vec<String>), String> {
        let ImportServer { name, kept, .. } = server;
        let keeping = kept.begin(&self.registry, name).await;
        let keeping = keeping.map_err(|error| format!("keep its secrets: {}", describe(&error)))?;
        let parameters = keeping.parameters().clone();
        self.under_way.lock().push((name.clone(), keeping));
        let registered = async {
            let candidate = self.registry.imported(name, parameters, Vec::new())?;
            let packages = PackageDirectory::of_workspace(self.config.workspace());
            self.registry.register(candidate, packages, progress).await
        };
        let registered = registered.await;
        let keeping = self.under_way.lock().extract_if(.., |(known, _)| known == name).next();
        if let Some((_, keeping)) = keeping {
            keeping.end().await;
        }
        let (registration, open) = registered.map_err(|error| describe(&error))?;
        open.close().await;
        let notes = [registration.notes, registration.warnings, registration.drift].concat();
        Ok((registration.modules.len(), notes))
    }

    /// Ends the servers that are still starting, and removes the secrets of those that were not registered.
    pub async fn stop(&self) {
        self.connector.end_starts();
        self.connector.starts_ended().await;
        let left = std::mem::take(&mut *self.under_way.lock());
        for (_, keeping) in left {
            keeping.end().await;
        }
    }
}

impl std::fmt::Debug for Importer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Importer").finish_non_exhaustive()
    }
}
