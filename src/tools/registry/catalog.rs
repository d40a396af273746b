//! Searches the tools of all registered servers, in memory.
//!
//! The index is made for the first search, and again when a definition has changed: another process may have registered a
//! server meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::records::{ServerRecord, ServerRecords};
use super::search::{Error, SearchIndex};
use crate::ground::files::FileStamp;
use crate::tools::actions::ToolDigests;
use crate::tools::servers::SearchQuery;
use ipybox_codegen::Tool;

/// The tools of all servers that code can call.
pub(super) struct ToolCatalog {
    /// The first that has a name says what it means.
    pub(super) places: Vec<Arc<ServerRecords>>,
    /// One search at a time, since the first has to make the index.
    indexed: Mutex<Indexed>,
}

/// An index, and of which versions it was made.
#[derive(Default)]
struct Indexed {
    names: Vec<Names>,
    versions: Versions,
    index: SearchIndex,
}

/// The names that a place has, with the versions of their definitions.
#[derive(Default)]
struct Names {
    stamp: Option<FileStamp>,
    versions: BTreeMap<String, Option<String>>,
}

/// The servers that are registered, with the place and the version of their definitions.
type Versions = BTreeMap<String, (usize, Option<String>)>;

impl ToolCatalog {
    pub(super) fn new(places: impl IntoIterator<Item = Arc<ServerRecords>>) -> Self {
        Self { places: places.into_iter().collect(), indexed: Mutex::default() }
    }

    /// Answers a query. Blocks.
    pub(super) fn search(&self, query: &SearchQuery) -> Result<String, Error> {
        let mut indexed = self.indexed.lock();
        self.renew(&mut indexed).map_err(Error::Store)?;
        indexed.index.search(query)
    }

    fn renew(&self, indexed: &mut Indexed) -> io::Result<()> {
        indexed.names.resize_with(self.places.len(), Names::default);
        for (place, known) in self.places.iter().zip(&mut indexed.names) {
            // Each version is looked up before what it is the version of: in doubt the next search reads again.
            let stamp = place.servers.stamp()?;
            if stamp.is_none() || stamp != known.stamp {
                *known = Names { stamp, versions: place.servers.versions()? };
            }
        }
        let mut versions = Versions::new();
        for (number, known) in indexed.names.iter().enumerate() {
            for (name, version) in &known.versions {
                versions.entry(name.clone()).or_insert_with(|| (number, version.clone()));
            }
        }
        if indexed.versions != versions {
            indexed.index = self.index(&versions);
            indexed.versions = versions;
        }
        Ok(())
    }

    fn index(&self, versions: &Versions) -> SearchIndex {
        let mut servers: Vec<(&str, Vec<Tool>)> = Vec::with_capacity(versions.len());
        for (name, (number, _)) in versions {
            let record = self.places[*number].get(name).transpose();
            match record.map(|record| record.and_then(|ServerRecord { definitions, .. }| definitions)) {
                Some(Ok(definitions)) => servers.push((name, definitions.tools)),
                // Removed just now.
                None => {}
                // The others can be found all the same, and the next registration of this one reports it.
                Some(Err(error)) => tracing::warn!(%error, "the tools of a server cannot be searched"),
            }
        }
        SearchIndex::new(servers.iter().map(|(name, tools)| (*name, tools.as_slice())))
    }
}

/// The digests of the definitions of all tools that `places` have registered. Blocks.
pub(super) fn digests_of(places: &[Arc<ServerRecords>]) -> io::Result<ToolDigests> {
    let mut digests = ToolDigests::new();
    for place in places.iter().rev() {
        for name in place.servers.names()? {
            let Some(ServerRecord { definitions, .. }) = place.get(&name)? else { continue };
            let tools = definitions?.by_tool().into_iter().map(|(tool, known)| (tool, known.sha256));
            digests.insert(name, tools.collect());
        }
    }
    Ok(digests)
}

/// The digests of the definitions of the tools that a workspace's state directory has registered. Blocks.
///
/// # Errors
/// The files cannot be read.
pub(crate) fn tool_digests(state_directory: &Path) -> io::Result<ToolDigests> {
    digests_of(&[Arc::new(ServerRecords::in_directory(state_directory))])
}

/// Answers a query about the servers that a workspace's state directory keeps, as text for a model. Blocks.
///
/// # Errors
/// The query is out of bounds or names an unknown server, or the files cannot be read.
pub fn search(state_directory: &Path, query: &SearchQuery) -> Result<String, Error> {
    ToolCatalog::new([Arc::new(ServerRecords::in_directory(state_directory))]).search(query)
}
