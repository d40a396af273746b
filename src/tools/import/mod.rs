//! Takes the MCP servers that the user has configured in other clients: `ipybox import`, and `--mcp-config`.
//!
//! ```text
//! files → formats → servers by name → kept (secrets out of them) → shown, chosen → registry
//! ```

mod kept;
mod register;
mod start;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::kept::{KeptParameters, SecretKeeping};
pub(crate) use self::register::AT_ONCE;
pub use self::register::{ImportEvent, Importer};
pub(crate) use self::start::{ImportStartError, StartServer, StartServers, offered_at_start};
use crate::config::{self, state_directory};
use crate::connections::mcp_client::{ServerParameters, ServerReach};
use crate::ground::env::Variables;
use crate::ground::env::vault::Vault;
use crate::ground::text::visible::{line, word};
use crate::ground::text::{describe, nearest, one_line, shortened};
use crate::kernels::sandbox::{self, ExposedPlaces};
use crate::tools::formats::{
    ClientDirectories, ConfigurationFile, ConfigurationReader, FileServers, KnownClient, LeftOutServers,
    OfferedServer, PathDirectories, UnreadableFile, merge,
};
use crate::tools::registry::Registry;

/// Why nothing can be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The workspace or the state directory cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// `--from` is neither a client nor a file.
    #[error(
        "import from `{name}`: it is neither a file nor a client that is known{hint}\n\
         hint: known are {}, and any file with `mcpServers`",
        known_clients()
    )]
    UnknownSource {
        /// The given name.
        name: String,
        /// The name that may be meant.
        hint: String,
    },
    /// The client has no configuration here.
    #[error("import from {client}: it has no servers here; looked for {places}")]
    NoFile {
        /// The client.
        client: &'static str,
        /// The places of its files.
        places: String,
    },
    /// A file cannot be used.
    #[error("{0}")]
    File(String),
    /// The registered servers, or the kept secrets, cannot be read.
    #[error("compare with what is registered")]
    State(#[source] io::Error),
}

/// The servers to import.
#[derive(Debug)]
pub struct Import {
    /// The servers, in the order of precedence.
    pub servers: Vec<ImportServer>,
    /// The servers that are not taken.
    pub left: Vec<ImportLeft>,
    /// Files that cannot be used, with why.
    pub unreadable: Vec<String>,
    /// The files that were looked for.
    pub looked_for: Vec<PathBuf>,
}

/// A server to import. Its texts are safe to show.
#[derive(Clone)]
#[non_exhaustive]
pub struct ImportServer {
    /// The name of its package.
    pub name: String,
    /// Its name in the client.
    pub original: String,
    /// Its command line or URL, with placeholders for its secrets.
    pub what: String,
    /// Its variables or headers, its directory and its timeout, each as `NAME=value`, with placeholders for its secrets.
    pub settings: Vec<String>,
    /// The clients and files that have it.
    pub origins: Vec<(String, PathBuf)>,
    /// Parts that were left out or reinterpreted, a sentence each.
    pub notes: Vec<String>,
    /// The placeholders of its secrets, which stood in clear text.
    pub secrets: Vec<String>,
    /// The registration under the name.
    pub state: ImportState,
    /// The files among its origins that code in the sandbox of an earlier session could write.
    pub exposed: Vec<PathBuf>,
    kept: KeptParameters,
}

/// The registration under the name of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportState {
    /// Nothing.
    New,
    /// This server, with the same parameters.
    Registered,
    /// Another server, or this one with other parameters.
    Differs,
}

/// A server that is not taken. Its texts are safe to show.
#[derive(Debug, Clone)]
pub struct ImportLeft {
    /// Its name in the client.
    pub name: String,
    /// The client, or the file.
    pub owner: String,
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

impl std::fmt::Debug for ImportServer {
    /// The name only: the secrets are in it.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ImportServer").field(&self.name).finish()
    }
}

impl Import {
    /// Reads what clients have; `from` are names of clients, or files. Without any, all files that exist are read.
    /// Nothing is written or started.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub fn read(workspace: &Path, state_dir: Option<PathBuf>, from: &[String]) -> Result<Self, ImportError> {
        let state = state_directory(workspace, state_dir)?;
        let canonical = workspace.canonicalize();
        let workspace =
            canonical.map_err(|source| config::Error::Workspace { path: workspace.to_owned(), source })?;
        let variables = Variables::load(&workspace);
        let home = variables.in_process("HOME").filter(|home| home.starts_with('/')).map(PathBuf::from);
        let surroundings =
            ClientDirectories { workspace: &workspace, home: home.as_deref(), variables: &variables };
        let connector = config::connector_in(&state, workspace.clone(), Arc::new(variables.clone()));
        let has_program = |command: &str| connector.has_program(command);
        let reader =
            ConfigurationReader { workspace: &workspace, home: home.as_deref(), has_program: &has_program };
        let mut reading = FilesRead::default();
        match from {
            [] => {
                KnownClient::ALL.into_iter().for_each(|client| reading.all_of(client, &reader, &surroundings))
            }
            from => from.iter().try_for_each(|from| reading.named(from, &reader, &surroundings))?,
        }
        let FilesRead { contents, unreadable, looked_for } = reading;
        let directories = PathDirectories { workspace: &workspace, home: home.as_deref() };
        let FileServers { offered, left } = merge(contents, &directories);
        let vault = Arc::new(Vault::in_directory(&state));
        let registry = Registry::in_directory(&state, connector.clone());
        let servers =
            offered.into_iter().map(|offered| ImportServer::of(offered, &registry, &vault, &directories));
        let mut servers = servers.collect::<io::Result<Vec<_>>>().map_err(ImportError::State)?;
        let exposed = config::recorded(&state, &workspace)?;
        servers.iter_mut().for_each(|server| server.note_exposed(&exposed));
        Ok(Self { servers, left: left.into_iter().map(ImportLeft::of).collect(), unreadable, looked_for })
    }
}

impl ImportServer {
    /// Notes files that code in the sandbox of an earlier session could write.
    fn note_exposed(&mut self, exposed: &ExposedPlaces) {
        let files = self.origins.iter().map(|(_, path)| path);
        self.exposed = files.filter(|path| exposed.on_the_way(path).is_some()).cloned().collect();
        self.notes.extend(self.exposed.iter().map(|path| {
            let path = path.display();
            format!("Code in the sandbox of an earlier session could write `{path}`: look at what this server runs.")
        }));
    }

    fn of(
        offered: OfferedServer,
        registry: &Registry,
        vault: &Arc<Vault>,
        directories: &PathDirectories<'_>,
    ) -> io::Result<Self> {
        let OfferedServer { name, original, parameters, places, notes, .. } = offered;
        let kept = KeptParameters::of(&name, parameters, vault)?;
        let state = match registry.parameters_of(&name)? {
            None => ImportState::New,
            Some(registered) if !directories.are_same(&registered, &kept.parameters) => ImportState::Differs,
            // The vault has lost a secret of it.
            Some(_) if kept.has_new() => ImportState::New,
            Some(_) => ImportState::Registered,
        };
        let secrets = kept.names().into_iter().map(|name| format!("${{{name}}}")).collect();
        Ok(Self {
            what: kept.parameters.summary(),
            settings: settings_of(&kept.parameters),
            origins: places.into_iter().map(|place| (shown(&place.owner()), place.path)).collect(),
            notes: notes.iter().map(|note| shown(note)).collect(),
            original: shown(&original),
            name,
            secrets,
            state,
            exposed: Vec::new(),
            kept,
        })
    }
}

impl ImportLeft {
    pub(crate) fn of(left: LeftOutServers) -> Self {
        let LeftOutServers { name, place, why } = left;
        let name = shown(&name).chars().take(NAME_CHARS).collect();
        Self { name, owner: shown(&place.owner()), why: shown(&why), path: place.path }
    }
}

/// The settings of a server that a command line or a URL does not show.
fn settings_of(parameters: &ServerParameters) -> Vec<String> {
    let pair = |(name, value): (&String, &String)| format!("{}={}", shown(name), word(value));
    let mut settings: Vec<String> = match &parameters.reach {
        ServerReach::Stdio(stdio) => {
            let directory = stdio.cwd.iter().map(|cwd| format!("cwd={}", word(cwd)));
            stdio.env.iter().map(pair).chain(directory).collect()
        }
        ServerReach::Http(http) => http.headers.iter().map(pair).collect(),
    };
    settings.extend(parameters.timeout.map(|timeout| format!("timeout={}s", timeout.as_secs_f64())));
    settings
}

/// The part of a text of a file that is shown, in characters.
const SHOWN_CHARS: usize = 500;

/// The part of a name that is shown: it may be a stranger's words for a model.
const NAME_CHARS: usize = 80;

/// A text from a file, safe to show as a part of a line.
fn shown(text: &str) -> String {
    shortened(&line(&one_line(text)), SHOWN_CHARS)
}

/// The files that have been read so far.
#[derive(Default)]
struct FilesRead {
    contents: Vec<FileServers>,
    unreadable: Vec<String>,
    looked_for: Vec<PathBuf>,
}

impl FilesRead {
    /// Reads a client's files; what is wrong with one does not cost the others.
    fn all_of(
        &mut self,
        client: KnownClient,
        reader: &ConfigurationReader<'_>,
        surroundings: &ClientDirectories<'_>,
    ) {
        let places = client.places(surroundings);
        let disabled = match (client, places.last()) {
            (KnownClient::ClaudeCode, Some(place)) => reader.disabled_in_claude_code(&place.path),
            _ => Default::default(),
        };
        for place in places {
            match reader.read(&place) {
                Ok(mut contents) => {
                    let is_off = |server: &OfferedServer| disabled.contains(&server.original);
                    for server in contents.offered.extract_if(.., |server| is_off(server)) {
                        let name = server.original;
                        let place = place.clone();
                        contents.left.push(LeftOutServers {
                            name,
                            place,
                            why: "it is disabled there".to_owned(),
                        });
                    }
                    self.contents.push(contents);
                }
                Err(error) if error.is_nothing() || is_stub(&place.path) => {}
                Err(error) => self.unreadable.push(describe(&error)),
            }
            self.looked_for.push(place.path);
        }
    }

    /// Reads a client's files, or a file.
    fn named(
        &mut self,
        from: &str,
        reader: &ConfigurationReader<'_>,
        surroundings: &ClientDirectories<'_>,
    ) -> Result<(), ImportError> {
        if let Some(client) = KnownClient::named(from) {
            let before = self.contents.len();
            let failed = self.unreadable.len();
            self.all_of(client, reader, surroundings);
            if self.contents.len() == before && self.unreadable.len() == failed {
                let places = client.places(surroundings);
                let places = places.iter().map(|place| format!("`{}`", place.path.display()));
                let places = places.collect::<Vec<_>>().join(", ");
                return Err(ImportError::NoFile { client: client.title(), places });
            }
            return Ok(());
        }
        self.looked_for.push(from.into());
        self.contents.push(read_file(Path::new(from), reader).map_err(|error| match error {
            UnreadableFile::File { source, .. }
                if source.kind() == io::ErrorKind::NotFound && !from.contains(['/', '.']) =>
            {
                let near = nearest(from, KnownClient::ALL.iter().map(|client| client.name()));
                let hint = near.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                ImportError::UnknownSource { name: line(from), hint }
            }
            error => ImportError::File(describe(&error)),
        })?);
        Ok(())
    }
}

/// Whether it only keeps code from making the file: a sandbox runs in the workspace, or was killed.
fn is_stub(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| sandbox::is_stub(&found))
}

/// Reads a file that the user has named.
fn read_file(file: &Path, reader: &ConfigurationReader<'_>) -> Result<FileServers, UnreadableFile> {
    let path = std::path::absolute(file);
    let path = path.map_err(|source| UnreadableFile::File { path: file.to_owned(), source })?;
    // By its real directory, since whether it lies in the workspace makes a difference.
    let real = path.parent().and_then(|parent| parent.canonicalize().ok());
    let path = match (real, path.file_name()) {
        (Some(real), Some(name)) => real.join(name),
        _ => path,
    };
    reader.read(&ConfigurationFile::of_file(path))
}

fn known_clients() -> String {
    KnownClient::ALL.map(|client| format!("`{}`", client.name())).join(", ")
}
