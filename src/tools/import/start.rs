//! The servers of the files that are named when a session starts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{ImportLeft, KeptParameters, UnreadableFile, read_file};
use crate::config::{Config, KernelSite};
use crate::connections::mcp_client::Connector;
use crate::ground::env::vault::Vault;
use crate::tools::formats::{ConfigurationReader, LeftOutServers, OURSELVES, PathDirectories, merge};

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportStartError {
    /// A file has no servers that can be read.
    #[error(transparent)]
    File(#[from] UnreadableFile),
    /// The vault does not answer for the secrets of a server.
    #[error("look for the secrets of `{name}`")]
    Secrets {
        /// The server.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// The servers of the files.
#[derive(Default)]
pub(crate) struct StartServers {
    /// The servers, by name.
    pub(crate) servers: Vec<StartServer>,
    /// The servers that are not taken, but for ipybox itself, in words.
    pub(crate) left: Vec<String>,
}

/// A server that a file offers.
pub(crate) struct StartServer {
    pub(crate) name: String,
    pub(crate) kept: KeptParameters,
    /// Parts that were left out or reinterpreted, a sentence each.
    pub(crate) notes: Vec<String>,
    /// Whether code in the sandbox, if there is one, could have written the file.
    pub(crate) is_of_code: bool,
}

/// Reads the files that the settings name. Blocks.
///
/// # Errors
/// One of them cannot be used.
pub(crate) fn offered_at_start(
    config: &Config,
    connector: &Connector,
) -> Result<StartServers, ImportStartError> {
    let vault = Arc::new(Vault::in_directory(&config.state_dir));
    let home = (config.home != Path::new("/")).then_some(config.home.as_path());
    let has_program = |command: &str| connector.has_program(command);
    let reader = ConfigurationReader { workspace: &config.workspace, home, has_program: &has_program };
    let contents = config.mcp_configs.iter().map(|file| read_file(file, &reader));
    let contents = contents.collect::<Result<Vec<_>, _>>()?;
    let merged = merge(contents, &PathDirectories { workspace: &config.workspace, home });
    let mut start = StartServers::default();
    for LeftOutServers { name, place, why } in merged.left {
        if why == OURSELVES {
            tracing::debug!("`--mcp-config` has ipybox itself, which is left out");
            continue;
        }
        let ImportLeft { name, why, .. } = ImportLeft::of(LeftOutServers { name, place, why });
        start.left.push(format!("`{name}`: {why}"));
    }
    for offered in merged.offered {
        let is_of_code = offered.places.iter().all(|place| is_of_code(config, &place.path))
            || offered.read.iter().any(|file| is_of_code(config, file));
        let kept = KeptParameters::of(&offered.name, offered.parameters, &vault);
        let name = offered.name;
        let notes = offered.notes;
        let kept = match kept {
            Ok(kept) => kept,
            Err(source) => return Err(ImportStartError::Secrets { name, source }),
        };
        start.servers.push(StartServer { name, kept, notes, is_of_code });
    }
    Ok(start)
}

/// Whether code in the sandbox, or in one of earlier sessions, could have written the file.
fn is_of_code(config: &Config, file: &Path) -> bool {
    // A workspace may also come with such a file.
    let is_of_workspace =
        matches!(config.site, KernelSite::Sandboxed { .. }) && file.starts_with(&config.workspace);
    is_of_workspace || config.exposed().on_the_way(file).is_some()
}
