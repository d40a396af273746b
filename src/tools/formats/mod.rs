//! Reads the configurations of other MCP clients: their files, and single servers as they write them.
//!
//! It reads files and starts nothing; its callers decide how servers are registered. `ground/clients` knows where the files are.
//!
//! ```text
//! file → document → read → entries ─→ adapt (by client) ─→ entry (any client's keys → ours) ─→ ServerParameters
//!                                     a registration ────────┘
//! ```

mod adapt;
mod client;
mod document;
mod entry;
mod merge;
mod names;
mod ourselves;
mod placeholders;
mod read;
mod secrets;

use std::path::PathBuf;

pub(crate) use self::entry::adopt;
pub(crate) use self::merge::{PathDirectories, merge};
pub(crate) use self::ourselves::OURSELVES;
pub(crate) use self::read::{ConfigurationReader, UnreadableFile};
pub(crate) use self::secrets::{FoundSecret, replace as replace_secrets};
use crate::connections::mcp_client::ServerParameters;
pub(crate) use crate::ground::clients::{ClientDirectories, ConfigurationFile, KnownClient};

/// A server that a client has.
#[derive(Debug, Clone)]
pub(crate) struct OfferedServer {
    /// The name of its package.
    pub(crate) name: String,
    /// Its name there.
    pub(crate) original: String,
    /// The way to reach it. Secrets in clear text are in it.
    pub(crate) parameters: ServerParameters,
    /// The files that have it, the first by precedence first.
    pub(crate) places: Vec<ConfigurationFile>,
    /// Files beside those that its parameters were read from.
    pub(crate) read: Vec<PathBuf>,
    /// Parts that were left out or reinterpreted, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// A server, or several, that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftOutServers {
    /// Its name there.
    pub(crate) name: String,
    /// The file that has it.
    pub(crate) place: ConfigurationFile,
    /// Why, as a text.
    pub(crate) why: String,
}

/// The servers of a file.
#[derive(Debug, Default)]
pub(crate) struct FileServers {
    pub(crate) offered: Vec<OfferedServer>,
    pub(crate) left: Vec<LeftOutServers>,
}

impl ConfigurationFile {
    /// A file of no known client.
    pub(crate) fn of_file(path: PathBuf) -> Self {
        Self { client: KnownClient::of_file(&path), path }
    }

    /// Whose it is, for people: the client, or the file.
    pub(crate) fn owner(&self) -> String {
        let file = || self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.client.map_or_else(file, |client| client.title().to_owned())
    }
}

#[cfg(test)]
mod tests;
