//! Runs the test of a saved action again, as saving it did.

use super::trial::{ActionTrial, TrialError, TrialResult};
use super::used_tools;
use crate::config::Config;
use crate::tools::actions::{ActionBundle, ToolDigests};
use crate::tools::recording::{
    CellItem, OutputLikeness, ReadRecording, RecordedCall, RecordedServer, RecordingLine, compare_outputs,
    diff, shown_outputs,
};
use crate::tools::registry::digests_of_recorded;

/// A saved action with its test.
pub(crate) struct SavedTest<'a> {
    /// Its files, and those of the actions that it uses, as they are now.
    pub(crate) bundle: &'a ActionBundle,
    pub(crate) recording: ReadRecording,
    /// The servers that are registered now.
    pub(crate) registered: Vec<RecordedServer>,
}

/// The result of a test.
pub(crate) struct RepeatedTest {
    /// Why it has not passed; `None` if it has.
    pub(crate) why: Option<String>,
    /// The tools that it was run with.
    pub(crate) tools: ToolDigests,
}

impl SavedTest<'_> {
    /// Runs the test with the packages of the servers that are registered, and of the others as they were recorded.
    ///
    /// # Errors
    /// It could not be run at all.
    pub(crate) async fn run(self, config: &Config) -> Result<RepeatedTest, TrialError> {
        let Self { bundle, recording, registered } = self;
        let ReadRecording { session, lines, .. } = recording;
        let mut servers: Vec<RecordedServer> = Vec::new();
        let mut calls: Vec<RecordedCall> = Vec::new();
        let mut recorded = None;
        for (_, line) in lines {
            match line {
                RecordingLine::Server(server) => {
                    let now = registered.iter().find(|other| other.name == server.name);
                    servers.push(now.map_or(*server, RecordedServer::clone));
                }
                RecordingLine::Call(call) => calls.push(*call),
                RecordingLine::Cell(cell) => recorded = Some(cell),
                _ => {}
            }
        }
        let recorded = recorded.ok_or_else(|| TrialError::Cell("its recording has no cell".to_owned()))?;
        let tools = used_tools(&servers, &calls, &digests_of_recorded(&servers));
        let trial = ActionTrial {
            config,
            clients: Vec::new(),
            bundle,
            servers: &servers,
            calls,
            code: &recorded.code,
            seed: session.seed,
            workspace: session.workspace,
        };
        let result = trial.run().await?;
        let why = result.failure(config.workspace()).or_else(|| other_result(&recorded.outputs, &result));
        Ok(RepeatedTest { why, tools })
    }
}

/// The difference between the result and the recorded one, in words.
fn other_result(recorded: &[CellItem], result: &TrialResult) -> Option<String> {
    let outputs = &result.cell.outputs;
    if compare_outputs(recorded, outputs) != OutputLikeness::Different {
        return None;
    }
    let lines = diff(&shown_outputs(recorded), &shown_outputs(outputs));
    let lines: String = lines.iter().map(|line| format!("\n    {line}")).collect();
    Some(format!("its example returns something else{lines}"))
}
