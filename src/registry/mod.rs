//! Which MCP servers this workspace knows, and the Python packages generated for them.
//!
//! What a name stands for is kept outside the workspace, where code in the kernel neither reads nor
//! chooses it; the packages are in the workspace, where it imports them.

mod apigen;
mod generate;
mod listing;
mod packages;
mod sources;
mod store;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Mutex;

pub use self::apigen::{ApigenError, ApigenReport, ApigenSource, apigen};
use self::generate::{Generated, Listed};
pub(crate) use self::packages::Packages;
pub use self::sources::{GenerateError, generate_mcp_sources};
use self::store::{Record, Store};
use crate::codegen;
use crate::config::Config;
use crate::env::Variables;
use crate::mcp::{self, Connection, Connector};
use crate::tool_server::{Registered, ServerLookup, Unusable, read};

/// How long a server may take to start when it is registered: `npx` and `uvx` may have to download it first.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a server could not be registered. The package and the registration from before are still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The name or the parameters cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The server could not be connected to, or did not tell its tools.
    #[error("use the MCP server `{name}` ({what})")]
    Server {
        /// The name that it was to have.
        name: String,
        /// The command line or URL, placeholders unresolved.
        what: String,
        /// Why.
        source: Box<mcp::Error>,
    },
    /// The generated package could not be written.
    #[error("write the package `mcptools/{name}`")]
    Package {
        /// The package's name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The registry could not be read or written.
    #[error("remember the MCP server `{name}`")]
    Store {
        /// The server's name.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// What came of a registration.
pub(crate) struct Registration {
    /// The names of the generated modules, one for each tool, in the server's order.
    pub(crate) modules: Vec<String>,
    /// What a user should know of the generated code.
    pub(crate) warnings: Vec<String>,
    /// What has become of the tools since the name was registered last; empty if nothing.
    pub(crate) drift: Vec<String>,
    /// What the name stands for now.
    pub(crate) server: Registered,
    /// The connection over which the tools were listed, still open.
    pub(crate) connection: Connection,
}

/// The MCP servers whose tools code can call, by the names that it calls them by.
///
/// Cloning it is cheap: clones are the same registry.
#[derive(Clone)]
pub struct Registry {
    store: Arc<Store>,
    connector: Connector,
    /// One installation at a time: two of the same name must not mix their files.
    turn: Arc<Mutex<()>>,
}

impl Registry {
    /// An empty registry, kept in memory. `${NAME}` placeholders are filled from the environment and the `.env` of the
    /// current directory.
    pub fn new() -> Self {
        // A process without a working directory starts servers in the root.
        let directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let variables = Arc::new(Variables::load(&directory));
        Self::with(Store::in_memory(), Connector::new(variables, directory))
    }

    /// The registry of a workspace, kept in its state directory.
    pub(crate) fn of_workspace(config: &Config, connector: Connector) -> Self {
        Self::with(Store::in_directory(&config.state_dir), connector)
    }

    fn with(store: Store, connector: Connector) -> Self {
        let connector = connector.with_connect_timeout(REGISTRATION_TIMEOUT);
        Self { store: Arc::new(store), connector, turn: Arc::default() }
    }

    /// Whether `name` stands for just this already.
    ///
    /// # Errors
    /// The name or the parameters cannot be used at all.
    pub(crate) fn has(&self, name: &str, parameters: &Map<String, Value>) -> Result<bool, Error> {
        let parameters = read(name, parameters)?;
        let record = self.store.get(name).map_err(|source| Error::Store { name: name.to_owned(), source })?;
        Ok(record.is_some_and(|record| record.parameters == parameters))
    }

    /// Lets `variables` know which of them registered servers use, before any is connected to: they are secrets.
    pub(crate) fn tell_placeholders(&self, variables: &Variables) {
        match self.store.placeholders() {
            Ok(texts) => texts.iter().for_each(|text| variables.expect_placeholders(text)),
            // The first call of a tool tells it too, and fails.
            Err(error) => tracing::warn!(%error, "the registry of MCP servers cannot be read"),
        }
    }

    /// Connects to a server, generates the package for its tools, and remembers what the name stands for.
    ///
    /// Each step is complete before the next begins, and the last two replace what was there before in
    /// one step: whatever fails, and wherever the future is dropped, a whole package is in place.
    pub(crate) async fn register(
        &self,
        name: &str,
        parameters: &Map<String, Value>,
        packages: Packages,
    ) -> Result<Registration, Error> {
        let parameters = read(name, parameters)?;
        let Listed { tools, annotations, connection } =
            generate::listed_by(&self.connector, name, &parameters).await?;
        let description = connection.identity().instructions.clone();
        let Generated { package, fingerprints } =
            generate::from_tools(name, description, &tools, codegen::Options::default());
        let warnings = generate::warnings(&package);
        let modules = package.modules.iter().map(|module| module.name.clone()).collect();
        let store = Arc::clone(&self.store);
        let server = Registered { parameters: parameters.clone(), annotations: annotations.clone() };
        let record = Record { parameters, fingerprints, annotations };
        let package_name = name.to_owned();
        let turn = self.turn.lock().await;
        let installed =
            tokio::task::spawn_blocking(move || install(&store, &packages, &package_name, &package, &record));
        let installed = installed.await.unwrap_or_else(|error| {
            Err(Error::Package { name: name.to_owned(), source: io::Error::other(error) })
        });
        drop(turn);
        match installed {
            Ok(drift) => Ok(Registration { modules, warnings, drift, server, connection }),
            Err(error) => {
                connection.close().await;
                Err(error)
            }
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// Puts a package in place and remembers what its name stands for. Returns what has changed, in words.
fn install(
    store: &Store,
    packages: &Packages,
    name: &str,
    package: &codegen::Package,
    record: &Record,
) -> Result<Vec<String>, Error> {
    let package_error = |source| Error::Package { name: name.to_owned(), source };
    let store_error = |source| Error::Store { name: name.to_owned(), source };
    let before = store.get(name).map_err(store_error)?;
    let replaced = packages.replace(name, package).map_err(package_error)?;
    if let Err(source) = store.put(name, record) {
        replaced.undo().map_err(package_error)?;
        return Err(store_error(source));
    }
    replaced.confirm();
    Ok(before.map_or_else(Vec::new, |before| generate::drift(&before.fingerprints, &record.fingerprints)))
}

impl ServerLookup for Registry {
    fn find(&self, name: &str) -> io::Result<Option<Registered>> {
        let record = self.store.get(name)?;
        Ok(record.map(|Record { parameters, annotations, .. }| Registered { parameters, annotations }))
    }
}
