//! The records of registered servers, and the order in which they change.
//!
//! A change is noted in the journal first. It holds from the moment in which `servers.json` is replaced; until then nothing
//! that others read has changed. The package and what else belongs to a server come after it, and then the note is removed.
//! If the process dies in between, the next one that starts or takes its turn finds the note and completes the change.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::definitions::{DefinitionStore, ServerDefinitions};
use super::packages::{NewPackage, PackageDirectory};
use super::store::{RegistrationStore, StoredServer};
use crate::approval::StandingAnswers;
use crate::connections::mcp_client::{Connector, LoginError, ServerParameters};
use crate::ground::env::vault::Vault;
use crate::ground::files::{Journal, JournalNote, if_there};
use crate::ground::text::describe;
use ipybox_codegen as codegen;

/// The time to wait for another process that registers a server. Its package may be large.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// The registrations of a workspace, or of an application.
pub(super) struct ServerRecords {
    pub(super) servers: RegistrationStore,
    pub(super) definitions: DefinitionStore,
    /// The state directory; without it, all is as short-lived as the process.
    directory: Option<PathBuf>,
}

/// A registration with the definitions that it names.
pub(super) struct ServerRecord {
    pub(super) server: StoredServer,
    pub(super) definitions: io::Result<ServerDefinitions>,
}

/// A change that touches several files, as the journal notes it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerChange {
    /// The package of a server follows its definitions.
    Package { server: String, packages: PackageDirectory },
    /// With a registration go the package, the label, the login and the secrets.
    Removal { server: String, packages: PackageDirectory, parameters: Map<String, Value> },
    /// Of these secrets, those are kept that the registration of the server names.
    Secrets { server: String, names: Vec<String> },
}

/// A registration in place of the one before.
pub(super) struct RegistrationSuccessor<'a> {
    pub(super) name: &'a str,
    pub(super) before: Option<&'a StoredServer>,
    /// The version of its definitions follows from them.
    pub(super) after: StoredServer,
    pub(super) definitions: &'a ServerDefinitions,
    pub(super) packages: &'a PackageDirectory,
}

/// Why a registration could not be changed. It is as before.
pub(super) enum NotChanged {
    /// By the files of the state directory.
    Store(io::Error),
    /// By those of the workspace.
    Package(io::Error),
}

impl ServerRecords {
    pub(super) fn in_memory() -> Self {
        Self {
            servers: RegistrationStore::in_memory(),
            definitions: DefinitionStore::in_memory(),
            directory: None,
        }
    }

    pub(super) fn in_directory(directory: &Path) -> Self {
        Self {
            servers: RegistrationStore::in_directory(directory),
            definitions: DefinitionStore::in_directory(directory),
            directory: Some(directory.to_owned()),
        }
    }

    /// The registration of `name`.
    pub(super) fn get(&self, name: &str) -> io::Result<Option<ServerRecord>> {
        let mut server = self.servers.get(name)?;
        loop {
            let Some(found) = server else { return Ok(None) };
            let definitions = match self.definitions.get(name, found.definitions.as_deref()) {
                Ok(Some(definitions)) => Ok(definitions),
                // Another process has just replaced them, or they are lost.
                Ok(None) => {
                    server = self.servers.get(name)?;
                    if server.as_ref().is_some_and(|now| now.definitions != found.definitions) {
                        continue;
                    }
                    Ok(ServerDefinitions::default())
                }
                Err(error) => Err(error),
            };
            return Ok(Some(ServerRecord { server: found, definitions }));
        }
    }

    /// Has one process at a time, as long as the result lives, change registrations, after what others have left is
    /// complete. Blocks.
    pub(super) fn turn(&self, connector: &Connector) -> io::Result<Option<File>> {
        let turn = self.servers.turn(TURN_TIMEOUT)?;
        self.complete_left(connector);
        Ok(turn)
    }

    /// Completes what processes have left that died, unless one that lives has its turn. Blocks.
    pub(super) fn settle(&self, connector: &Connector) {
        if self.journal().is_some_and(|journal| !journal.is_empty())
            && let Ok(_turn) = self.servers.turn(Duration::ZERO)
        {
            self.complete_left(connector);
        }
    }

    /// Notes a change that is about to begin.
    pub(super) fn note(&self, change: &ServerChange) -> io::Result<Option<JournalNote>> {
        self.journal().map(|journal| journal.note(change)).transpose()
    }

    /// Replaces a registration; `place` then puts its package in place. The caller holds the turn.
    pub(super) fn replace(
        &self,
        RegistrationSuccessor { name, before, mut after, definitions, packages }: RegistrationSuccessor<'_>,
        place: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), NotChanged> {
        let change = ServerChange::Package { server: name.to_owned(), packages: packages.clone() };
        let note = self.note(&change).map_err(NotChanged::Store)?;
        let holds = self.definitions.put(name, definitions).and_then(|version| {
            after.definitions = Some(version);
            self.servers.put(name, Some(&after))
        });
        let placed = holds.map_err(NotChanged::Store).and_then(|()| place().map_err(NotChanged::Package));
        let is_back = match &placed {
            Err(NotChanged::Package(_)) => self.servers.put(name, before),
            _ => Ok(()),
        };
        let holding = if placed.is_ok() { Some(&after) } else { before };
        // What fails now is done later, by the note.
        match is_back.and_then(|()| self.definitions.keep_only(name, holding)) {
            Ok(()) => note.into_iter().for_each(JournalNote::remove),
            Err(error) => tracing::warn!(%error, server = name, "a registration is completed later"),
        }
        placed
    }

    /// Removes a registration with all that belongs to it. What fails is tried again at the next start.
    pub(super) fn remove(&self, change: &ServerChange, connector: &Connector) -> io::Result<()> {
        let _turn = self.turn(connector)?;
        let note = self.note(change)?;
        if let Err(error) = self.servers.put(change.server(), None) {
            note.into_iter().for_each(JournalNote::remove);
            return Err(error);
        }
        self.complete(change, connector)?;
        note.into_iter().for_each(JournalNote::remove);
        Ok(())
    }

    fn journal(&self) -> Option<Journal> {
        Some(journal_in(self.directory.as_ref()?))
    }

    /// Completes what others have left. The caller holds the turn.
    fn complete_left(&self, connector: &Connector) {
        let left = self.journal().map_or_else(|| Ok(Vec::new()), |journal| journal.left());
        let left = left.unwrap_or_else(|error| {
            tracing::warn!(%error, "the journal of registrations cannot be read");
            Vec::new()
        });
        for (note, change) in left {
            match self.complete(&change, connector) {
                Ok(()) => note.remove(),
                Err(error) => {
                    let server = change.server();
                    tracing::warn!(%error, server, "a change of an earlier process is not complete yet");
                }
            }
        }
    }

    /// Has what belongs to a server follow its registration. It can be done any number of times.
    fn complete(&self, change: &ServerChange, connector: &Connector) -> io::Result<()> {
        let name = change.server();
        let record = self.get(name)?;
        let registered = record.as_ref().map(|record| &record.server);
        self.definitions.keep_only(name, registered)?;
        match (change, &record) {
            (
                ServerChange::Package { packages, .. },
                Some(ServerRecord { definitions: Ok(definitions), .. }),
            ) => {
                let ServerDefinitions { tools, others, description, .. } = definitions;
                let server = codegen::Server { name: name.to_owned(), description: description.clone() };
                let package = codegen::generate_all(&server, tools, others, codegen::Options::default());
                // The workspace may be gone.
                if_there(packages.write(name, &package))?.map_or(Ok(()), NewPackage::put)
            }
            // Its package may be one of the user's, who has generated it without a registration.
            (ServerChange::Package { .. }, _) => Ok(()),
            (ServerChange::Removal { packages, .. }, None) => {
                if_there(packages.remove(name))?;
                self.forget(change, connector)
            }
            // It was registered again.
            (ServerChange::Removal { .. }, Some(_)) => Ok(()),
            (ServerChange::Secrets { names, .. }, _) => match &self.directory {
                Some(directory) => self.forget_secrets(&Vault::in_directory(directory), names, 1),
                None => Ok(()),
            },
        }
    }

    /// Forgets the label, the login and the secrets of a server that was removed.
    fn forget(&self, change: &ServerChange, connector: &Connector) -> io::Result<()> {
        let (ServerChange::Removal { server, parameters, .. }, Some(directory)) = (change, &self.directory)
        else {
            return Ok(());
        };
        StandingAnswers::of_workspace(directory).label(server, None)?;
        let Ok(parameters) = ServerParameters::parse(parameters) else { return Ok(()) };
        if !self.reaches(&parameters)? {
            match connector.forget_login(&parameters) {
                Ok(_) | Err(LoginError::NoLogin | LoginError::Parameters(_)) => {}
                Err(error) => return Err(io::Error::other(describe(&error))),
            }
        }
        // Last: the address of the login may have one.
        self.forget_secrets(&Vault::in_directory(directory), &parameters.secrets(), 0)
    }

    /// Whether another name means the same server, and so has the same login.
    fn reaches(&self, parameters: &ServerParameters) -> io::Result<bool> {
        for name in self.servers.names()? {
            if self.servers.get(&name)?.is_some_and(|stored| stored.parameters.reach == parameters.reach) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl ServerChange {
    /// The secrets that are about to be registered.
    pub(super) fn secrets(self) -> Vec<String> {
        if let Self::Secrets { names, .. } = self { names } else { Vec::new() }
    }

    fn server(&self) -> &str {
        let (Self::Package { server, .. } | Self::Removal { server, .. } | Self::Secrets { server, .. }) =
            self;
        server
    }
}

/// The journal of a state directory.
pub(super) fn journal_in(state_directory: &Path) -> Journal {
    Journal::in_directory(state_directory.join("servers.journal"))
}
