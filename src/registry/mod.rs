//! Which MCP servers this workspace knows, and the Python packages generated for them.
//!
//! What a name stands for is kept outside the workspace, where code in the kernel neither reads nor
//! chooses it; the packages are in the workspace, where it imports them.

mod packages;
mod store;

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Mutex;

use self::packages::Packages;
use self::store::{Record, Store};
use crate::codegen;
use crate::mcp::{self, Connection, Connector, ParametersError, ServerParameters};
use crate::tool_server::ServerLookup;

/// How long a server may take to start when it is registered: `npx` and `uvx` may have to download it first.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a server could not be registered. The package and the registration from before are still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The name cannot be a package's.
    #[error(transparent)]
    Name(#[from] codegen::PackageNameError),
    /// The parameters do not describe a server.
    #[error("read `server_params`")]
    Parameters(#[from] ParametersError),
    /// The server could not be connected to, or did not tell its tools.
    #[error("register the MCP server `{name}` ({what})")]
    Server {
        /// The name that it was to have.
        name: String,
        /// The command line or URL, placeholders unresolved.
        what: String,
        /// Why.
        source: mcp::Error,
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
    /// The connection over which the tools were listed, still open.
    pub(crate) connection: Connection,
}

/// The MCP servers of one workspace.
pub(crate) struct Registry {
    store: Store,
    packages: Packages,
    connector: Connector,
    /// One registration at a time: two of the same name must not mix their files.
    turn: Mutex<()>,
}

impl Registry {
    /// The registry kept in `state_directory` for the workspace.
    pub(crate) fn new(state_directory: &Path, workspace: &Path, connector: Connector) -> Self {
        let connector = connector.with_connect_timeout(REGISTRATION_TIMEOUT);
        Self {
            store: Store::new(state_directory),
            packages: Packages::new(workspace),
            connector,
            turn: Mutex::default(),
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
    ) -> Result<Registration, Error> {
        codegen::validate_package_name(name)?;
        let parameters = ServerParameters::parse(parameters)?;
        let _turn = self.turn.lock().await;
        let what = parameters.summary();
        let server_error = |source| Error::Server { name: name.to_owned(), what: what.clone(), source };
        let connection = self.connector.connect(name, &parameters).await.map_err(server_error)?;
        let tools = match connection.list_tools().await {
            Ok(tools) => tools,
            Err(error) => {
                connection.close().await;
                return Err(server_error(error));
            }
        };
        let identity = connection.identity();
        let server = codegen::Server { name: name.to_owned(), description: identity.instructions.clone() };
        let tools: Vec<codegen::Tool> = tools.into_iter().map(to_codegen).collect();
        let package = codegen::generate(&server, &tools);
        if let Err(error) = self.install(name, &package, parameters).await {
            connection.close().await;
            return Err(error);
        }
        let warnings = package.modules.iter().flat_map(degradations).collect();
        let modules = package.modules.into_iter().map(|module| module.name).collect();
        Ok(Registration { modules, warnings, connection })
    }

    async fn install(
        &self,
        name: &str,
        package: &codegen::Package,
        parameters: ServerParameters,
    ) -> Result<(), Error> {
        let package_error = |source| Error::Package { name: name.to_owned(), source };
        let replaced = self.packages.replace(name, package).map_err(package_error)?;
        if let Err(source) = self.store.put(name, Record { parameters }) {
            replaced.undo().map_err(package_error)?;
            return Err(Error::Store { name: name.to_owned(), source });
        }
        replaced.confirm();
        Ok(())
    }
}

impl ServerLookup for Registry {
    fn find(&self, name: &str) -> io::Result<Option<ServerParameters>> {
        Ok(self.store.get(name)?.map(|record| record.parameters))
    }
}

fn to_codegen(tool: mcp::Tool) -> codegen::Tool {
    codegen::Tool {
        name: tool.name,
        title: tool.title,
        description: tool.description,
        input_schema: tool.input_schema,
        output_schema: tool.output_schema,
    }
}

fn degradations(module: &codegen::Module) -> impl Iterator<Item = String> + '_ {
    let of_tool = |degradation: &codegen::Degradation| {
        format!("{}{}: {}", module.tool, degradation.path, degradation.what)
    };
    module.degraded.iter().map(of_tool)
}
