//! Runs a saved action's example in a session of its own, whose calls are answered from a recording.
//!
//! The session has the rights of the one that saves at most, and a temporary workspace with nothing but the action's files, those of
//! saved actions that it uses, and the packages of the servers that they name.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::approval::{ApprovalEffect, ApprovalPolicy, SessionFace};
use crate::config::{self, Config};
use crate::ground::files::TemporaryDirectory;
use crate::ground::text::describe;
use crate::kernels::sandbox::ClientPermissions;
use crate::session::{Cell, CellRequester, Session, SessionReplay, StartError, ToolOptions};
use crate::tools::actions::{ActionBundle, WorkspaceActions};
use crate::tools::recording::{
    CallDifference, CellItem, RecordedCall, RecordedCell, RecordedServer, RecordingLine, ReplayBroker,
    ReplayMode, SessionRecorder,
};
use crate::tools::registry::{RecordedServerError, Registry};

/// The time that the example may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The number of characters of output that are returned; the recorder has all that is compared.
const OUTPUT_CHARS: usize = 1_000;

/// An action with what its test needs.
pub(crate) struct ActionTrial<'a> {
    /// The settings of the session that saves it, or of its workspace.
    pub(crate) config: &'a Config,
    /// The clients whose permissions hold.
    pub(crate) clients: Vec<Arc<ClientPermissions>>,
    /// Its files, and those of the actions that it uses.
    pub(crate) bundle: &'a ActionBundle,
    /// The servers whose packages it gets.
    pub(crate) servers: &'a [RecordedServer],
    /// The answers of its calls.
    pub(crate) calls: Vec<RecordedCall>,
    /// The cell that calls it.
    pub(crate) code: &'a str,
    pub(crate) seed: u32,
    /// The workspace in whose place the temporary one comes.
    pub(crate) workspace: String,
}

/// The end of a test's cell.
pub(crate) struct TrialResult {
    /// The cell as it ran, with paths of the workspace of the recording.
    pub(crate) cell: RecordedCell,
    /// The calls that differ from the recording.
    pub(crate) differences: Vec<CallDifference>,
    /// The places of the recorded calls that it has made, in its order.
    pub(crate) used: Vec<usize>,
}

/// Why a test could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialError {
    #[error("make a workspace for the test")]
    Directory(#[source] io::Error),
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Server(#[from] RecordedServerError),
    #[error("run the test: {0}")]
    Cell(String),
}

/// The recorder and the broker of a test's session.
struct TrialTape {
    registry: Registry,
    broker: Arc<ReplayBroker>,
    recorder: Arc<SessionRecorder>,
}

impl ActionTrial<'_> {
    /// Runs the cell. Processes and files are gone at the end.
    pub(crate) async fn run(mut self) -> Result<TrialResult, TrialError> {
        let directory = TemporaryDirectory::new("ipybox-action-").map_err(TrialError::Directory)?;
        let workspace = directory.path().to_owned();
        self.write_files(&workspace).await.map_err(TrialError::Directory)?;
        let config = self.config.for_trial(&workspace, self.seed)?;
        let redactor = config.variables().redactor();
        let moved = (self.workspace.clone(), workspace.display().to_string());
        let calls = std::mem::take(&mut self.calls);
        let broker = ReplayBroker::new(ReplayMode::Strict, calls, redactor.clone(), Vec::new(), moved, true);
        let tape = TrialTape {
            registry: Registry::in_memory(config.connector()),
            broker: Arc::new(broker),
            recorder: SessionRecorder::in_memory(redactor.clone()),
        };
        let replay = SessionReplay { broker: Arc::clone(&tape.broker), recorder: Arc::clone(&tape.recorder) };
        let tools = ToolOptions {
            registry: Some(tape.registry.clone()),
            policy: ApprovalPolicy::always(ApprovalEffect::Deny),
            face: SessionFace::Command,
            beside: None,
            replay: Some(replay),
        };
        let session = Box::pin(Session::open(&config, Some(tools))).await?;
        let ran = self.run_in(&session, &tape, &workspace).await;
        session.close().await;
        ran
    }

    async fn write_files(&self, workspace: &Path) -> io::Result<()> {
        let bundle = self.bundle.clone();
        let actions = WorkspaceActions::of_workspace(workspace);
        let writing = tokio::task::spawn_blocking(move || bundle.put_into(&actions));
        writing.await.map_err(io::Error::other).flatten()
    }

    async fn run_in(
        &self,
        session: &Session,
        tape: &TrialTape,
        workspace: &Path,
    ) -> Result<TrialResult, TrialError> {
        session.started().await.map_err(StartError::from)?;
        for client in &self.clients {
            session.obey(&Some(Arc::clone(client))).await.map_err(StartError::from)?;
        }
        for server in self.servers {
            tape.registry.restore(server, None, workspace).await?;
        }
        session.refresh_imports(None).await;
        tape.broker.cell_begins(1);
        let cell = Cell::ours(
            tape.broker.fill_text(self.code.to_owned()),
            TIMEOUT,
            OUTPUT_CHARS,
            tape.broker.stopped().child_token(),
            "the test of an action asks nobody",
        );
        let outcome = session.execute(Cell { author: CellRequester::Agent, ..cell }).await.outcome().await;
        let failed = |error: &dyn std::error::Error| TrialError::Cell(describe(error));
        outcome.map_err(|error| failed(&error))?;
        let mut cells = tape.recorder.take().into_iter().filter_map(|line| match line {
            RecordingLine::Cell(cell) => Some(*cell),
            _ => None,
        });
        let cell =
            cells.next_back().ok_or_else(|| TrialError::Cell("the kernel did not run it".to_owned()))?;
        let outputs = cell.outputs.into_iter().map(|item| tape.broker.moved_back(item)).collect();
        let calls = tape.broker.cell_ended();
        let cell = RecordedCell { cell: 1, code: self.code.to_owned(), outputs, ..cell };
        Ok(TrialResult { cell, differences: calls.differences, used: tape.broker.used() })
    }
}

impl TrialResult {
    /// Why the action has not worked, in words; `None` if it has.
    pub(crate) fn failure(&self, workspace: &Path) -> Option<String> {
        if let Some(CallDifference { kind, call, diff }) = self.differences.first() {
            let lines: String = diff.iter().map(|line| format!("\n    {line}")).collect();
            return Some(format!("`{call}`: {}{lines}", kind.words()));
        }
        let error = self.cell.outputs.iter().find_map(|item| match item {
            CellItem::Error(error) => Some(error),
            _ => None,
        });
        match error {
            Some(error) => {
                let missing =
                    error.value.strip_prefix("No module named '").and_then(|rest| rest.split('\'').next());
                let missing = missing.map(|module| missing_module(module, workspace));
                Some(missing.unwrap_or_else(|| format!("{}: {}", error.name, error.value)))
            }
            None if self.cell.end == "finished" => None,
            None => Some(format!("its example ended as `{}`", self.cell.end)),
        }
    }
}

fn missing_module(module: &str, workspace: &Path) -> String {
    let root = module.split('.').next().unwrap_or(module);
    let is_in_workspace = workspace.join(root).exists() || workspace.join(format!("{root}.py")).exists();
    let place = if is_in_workspace { ", which is in the workspace" } else { "" };
    format!(
        "its code needs `{module}`{place}: an action has its own files, tools, installed packages, and the saved actions and parsers \
         that it imports by their whole names"
    )
}

/// The cell that calls an action with these arguments.
pub(crate) fn code(path: &str, function: &str, has_models: bool, example: &Value) -> String {
    let call = match function {
        "run_async" => "await ",
        _ => "",
    };
    let arguments = literal(example);
    if has_models {
        return format!(
            "from pydantic import validate_call\nfrom {path} import {function}\n\n{call}validate_call({function})(**{arguments})"
        );
    }
    format!("from {path} import {function}\n\n{call}{function}(**{arguments})")
}

/// A value of JSON as Python writes it.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        // What JSON has in quotes means the same in Python.
        Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), literal(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_example_is_a_call_in_python() {
        let example = json!({"a": [1, 2.5, null, true], "b": {"c \"d\"": "x\n\u{1f600}"}});
        let arguments = r#"{"a": [1, 2.5, None, True], "b": {"c \"d\"": "x\n😀"}}"#;
        let simple = code("gentools.c.n", "run", false, &example);
        assert_eq!(simple, format!("from gentools.c.n import run\n\nrun(**{arguments})"));
        let models = code("gentools.c.n", "run_async", true, &json!({}));
        assert!(
            models.ends_with("\nfrom gentools.c.n import run_async\n\nawait validate_call(run_async)(**{})")
        );
    }
}
