//! Adds to a recording that is played what it does not have: answers and definitions of the user's registered servers.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{self, Config, Settings};
use crate::ground::text::describe;
use crate::tools::recording::{AskedCall, RecordingLine, SessionRecorder, add_line};
use crate::tools::registry::{RecordedServerError, Registry};
use crate::tools::tool_server::{LivingAnswer, LivingServers, RecordedRequest};

/// Why nothing can be added to a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The order of calls could not be kept.
    #[error(
        "add calls to a recording that is played in its order (`--match order`): they have no place in it"
    )]
    Order,
    /// The workspace cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The server is not registered.
    #[error(transparent)]
    Server(#[from] RecordedServerError),
    /// The recording cannot be replaced.
    #[error("add to the recording `{path}`", path = path.display())]
    File {
        /// The recording.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The living servers of a recording that is played.
pub(super) struct MissingAnswers {
    file: PathBuf,
    config: Config,
    registry: Registry,
    servers: LivingServers,
}

impl MissingAnswers {
    /// The registered servers of a workspace, for the recording `file`.
    pub(super) fn open(
        file: PathBuf,
        workspace: PathBuf,
        state_dir: Option<PathBuf>,
    ) -> Result<Arc<Self>, UpdateError> {
        let config = Config::new(Settings { workspace, state_dir, ..Settings::default() })?;
        let registry = Registry::in_directory(config.state_dir(), config.connector());
        registry.report_placeholders(config.variables());
        let found = registry.lookup(config.workspace(), &[]);
        let servers = LivingServers::new(found, config.connector(), config.variables().redactor().clone());
        Ok(Arc::new(Self { file, config, registry, servers }))
    }

    /// Adds the definitions of a registered server.
    pub(super) async fn add_server(&self, name: &str) -> Result<(), UpdateError> {
        let server = self.registry.recorded_server(name, self.config.workspace()).await?;
        let recorder = SessionRecorder::in_memory(self.config.variables().redactor().clone());
        recorder.servers(vec![server]);
        for line in recorder.take() {
            self.add(line).await?;
        }
        Ok(())
    }

    /// The request as a recording has it, without secrets.
    pub(super) fn as_recorded(&self, asked: &AskedCall) -> AskedCall {
        asked.without_secrets(self.config.variables().redactor())
    }

    /// Makes a request at the living server, and adds its answer.
    ///
    /// # Errors
    /// It has no answer, or that cannot be added; in words.
    pub(super) async fn ask(
        &self,
        request: RecordedRequest<'_>,
        asked: AskedCall,
    ) -> Result<LivingAnswer, String> {
        let AskedCall { server, arguments, .. } = asked;
        let living = self.servers.ask(&server, request, arguments).await?;
        let added = self.add(RecordingLine::Call(Box::new(living.recorded.clone()))).await;
        added.map_err(|error| {
            format!("`{server}.{}` was called, but failed to {}", request.name(), describe(&error))
        })?;
        Ok(living)
    }

    async fn add(&self, line: RecordingLine) -> Result<(), UpdateError> {
        let path = self.file.clone();
        let adding = tokio::task::spawn_blocking(move || add_line(&path, line));
        let added = adding.await.map_err(std::io::Error::other).flatten();
        added.map_err(|source| UpdateError::File { path: self.file.clone(), source })
    }

    /// Ends the servers.
    pub(super) async fn stop(&self) {
        self.servers.stop().await;
    }
}
