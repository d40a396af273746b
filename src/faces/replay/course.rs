//! The course of a replay: line after line of its recording.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ReplayError;
use super::report::{CellDifference, ReplayReport, ReplayedCell};
use crate::approval::Approver;
use crate::ground::text::{backticked, describe};
use crate::session::{Cell, CellRequester, Session, StartError, UndoTarget};
use crate::tools::recording::{
    CellItem, OutputLikeness, ReadRecording, RecordedCell, RecordedEnvironment, RecordingLine, ReplayBroker,
    SessionRecorder, compare_outputs, diff, shown_outputs,
};
use crate::tools::registry::Registry;

/// The time that a cell may take beyond ten times that of its recording.
const CELL_TIMEOUT: Duration = Duration::from_secs(600);

/// The number of characters of output that are returned; the recorder has all that is compared.
const OUTPUT_CHARS: usize = 1_000;

/// The number of packages with another version that are named.
const MOST_PACKAGES: usize = 20;

/// The limits of a notebook.
const NO_RECORDING: &str =
    "a notebook has no seed, no definitions of servers and no answers: servers are the registered ones";

/// A replay under way.
pub(super) struct ReplayCourse {
    pub(super) session: Arc<Session>,
    pub(super) registry: Registry,
    /// The servers that the user has registered, in the modes that ask them.
    pub(super) living: Option<Registry>,
    pub(super) broker: Arc<ReplayBroker>,
    /// Records the replay, to be compared.
    pub(super) recorder: Arc<SessionRecorder>,
    pub(super) workspace: PathBuf,
    pub(super) report: ReplayReport,
}

impl ReplayCourse {
    /// Replays all of it, or until `ended`, and ends the session.
    pub(super) async fn run(
        mut self,
        recording: ReadRecording,
        ended: impl Future<Output = ()>,
    ) -> Result<ReplayReport, ReplayError> {
        let stop = self.broker.stopped().clone();
        let played = tokio::select! {
            played = self.play(&recording, &stop) => played,
            () = ended => Err(ReplayError::Ended),
        };
        self.session.close().await;
        played?;
        self.report.is_stopped = stop.is_cancelled();
        Ok(self.report.finish())
    }

    async fn play(&mut self, recording: &ReadRecording, stop: &CancellationToken) -> Result<(), ReplayError> {
        // The numbers of the cells whose variables the kernel has, and whether they have run here.
        let mut in_kernel: Vec<bool> = Vec::new();
        let mut cells = 0;
        self.session.started().await.map_err(StartError::from)?;
        if !recording.has_answers {
            self.report.notes.push(NO_RECORDING.to_owned());
        }
        for (_, line) in &recording.lines {
            match line {
                RecordingLine::Server(server) => {
                    let living = self.living.as_ref();
                    self.registry.restore(server, living, &self.workspace).await?;
                    self.session.refresh_imports(Some(&server.name)).await;
                    if let Some(living) = living.filter(|_| recording.has_answers) {
                        let changes = living.changes_since(server).await?;
                        let changes =
                            changes.into_iter().map(|change| format!("`{}`: {change}", server.name));
                        self.report.servers.extend(changes);
                    }
                }
                RecordingLine::Kernel(moment) if moment.cells > 0 => {
                    in_kernel.clear();
                    let reset = self.session.reset(None).await.outcome().await;
                    reset.map_err(|error| failed(moment.cells, &error))?;
                }
                RecordingLine::Undo(undo) => {
                    let last = usize::try_from(undo.last).unwrap_or(usize::MAX).min(in_kernel.len());
                    let count = in_kernel.drain(last..).filter(|has_run| *has_run).count();
                    self.undo(cells, count).await?;
                }
                RecordingLine::Environment(recorded) => self.note_environment(recorded),
                RecordingLine::Installation(installed) => self.report.notes.push(format!(
                    "after cell {} the session installed {}; a replay installs nothing",
                    installed.cells,
                    backticked(&installed.packages)
                )),
                RecordingLine::Cell(cell) => {
                    cells = cell.cell;
                    let has_run = self.replay_cell(cell, stop).await?;
                    if !cell.code.trim().is_empty() {
                        in_kernel.push(has_run);
                    }
                    if stop.is_cancelled() {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn undo(&self, cell: u64, count: usize) -> Result<(), ReplayError> {
        if count == 0 {
            return Ok(());
        }
        let undone = self.session.undo(UndoTarget::Cells(count), &None).await;
        let undone = undone.map_err(|error| failed(cell, &error))?;
        undone.outcome().await.map_err(|error| failed(cell, &error))?;
        Ok(())
    }

    /// Runs a cell and compares it. Returns whether it has run.
    async fn replay_cell(
        &mut self,
        recorded: &RecordedCell,
        stop: &CancellationToken,
    ) -> Result<bool, ReplayError> {
        // Again it would run into its timeout, or end its kernel.
        if !matches!(recorded.end.as_str(), "finished" | "error") {
            self.report.cells.push(ReplayedCell {
                cell: recorded.cell,
                result: "not_run",
                ..ReplayedCell::default()
            });
            return Ok(false);
        }
        self.broker.cell_begins(recorded.cell);
        let cell = Cell {
            code: self.broker.fill_text(recorded.code.clone()),
            timeout: CELL_TIMEOUT
                .saturating_add(Duration::from_millis(recorded.duration_ms).saturating_mul(10)),
            max_output_chars: OUTPUT_CHARS,
            cancel: stop.child_token(),
            chunks: None,
            unread: None,
            approver: Approver::Nobody("a replay asks nobody"),
            client: None,
            has_views: false,
            author: CellRequester::Agent,
            id: None,
        };
        let outcome = self.session.execute(cell).await.outcome().await;
        outcome.map_err(|error| failed(recorded.cell, &error))?;
        let lines = self.recorder.take();
        let given = lines.into_iter().rev().find_map(|line| match line {
            RecordingLine::Cell(cell) => Some(*cell),
            _ => None,
        });
        let Some(given) = given else {
            let why = "the kernel did not run it".to_owned();
            return Err(ReplayError::Cell { cell: recorded.cell, why });
        };
        self.note_missing_file(recorded, &given);
        let compared = self.compare(recorded, given);
        self.report.cells.push(compared);
        Ok(true)
    }

    fn compare(&self, recorded: &RecordedCell, given: RecordedCell) -> ReplayedCell {
        let calls = self.broker.cell_ended();
        let mut cell = ReplayedCell {
            cell: recorded.cell,
            result: "same",
            rules: calls.rules,
            differences: calls.differences.into_iter().map(CellDifference::from).collect(),
            calls: calls.alike,
            writes: calls.writes,
            ..ReplayedCell::default()
        };
        // The difference that ended the replay has ended the cell too.
        if self.broker.stopped().is_cancelled() {
            cell.result = "different";
            return cell;
        }
        let given_outputs: Vec<CellItem> =
            given.outputs.into_iter().map(|item| self.broker.moved_back(item)).collect();
        // A notebook that became too large has lost them.
        let is_lost = recorded.is_cut && recorded.outputs.is_empty();
        match compare_outputs(&recorded.outputs, &given_outputs) {
            _ if is_lost => {}
            OutputLikeness::Same => {}
            OutputLikeness::ByRules(rules) => cell.rules.extend(rules),
            OutputLikeness::Different => cell.differences.push(CellDifference {
                kind: "output",
                words: "the output differs".to_owned(),
                diff: diff(&shown_outputs(&recorded.outputs), &shown_outputs(&given_outputs)),
            }),
        }
        if recorded.end != given.end {
            cell.differences.push(CellDifference {
                kind: "end",
                words: format!("it ended as `{}` instead of `{}`", given.end, recorded.end),
                diff: Vec::new(),
            });
        }
        if !cell.differences.is_empty() {
            cell.result = "different";
        } else if !cell.rules.is_empty() {
            cell.result = "same_by_rules";
        }
        cell
    }

    /// Notes the file that the code has not found, if the recorded one has.
    fn note_missing_file(&mut self, recorded: &RecordedCell, given: &RecordedCell) {
        let missing = |cell: &RecordedCell| {
            cell.outputs.iter().find_map(|output| match output {
                CellItem::Error(failure) if failure.name == "FileNotFoundError" => {
                    Some(failure.value.clone())
                }
                _ => None,
            })
        };
        if let (None, Some(words)) = (missing(recorded), missing(given)) {
            let cell = recorded.cell;
            self.report.notes.push(format!(
                "cell {cell} did not find a file: {words}\nhint: if it was in the workspace before, `--files DIR` copies a directory"
            ));
        }
    }

    /// Notes how the recorded Python differs from that of the replay.
    fn note_environment(&mut self, recorded: &RecordedEnvironment) {
        let Some(given) = self.recorder.known_environment() else { return };
        for (what, recorded, given) in
            [("Python", &recorded.python, &given.python), ("platform", &recorded.platform, &given.platform)]
        {
            if recorded != given {
                self.report.notes.push(format!("recorded with {what} {recorded}, replayed with {given}"));
            }
        }
        let none = "none".to_owned();
        let changed = recorded.packages.iter().filter_map(|(name, version)| {
            let now = given.packages.get(name).unwrap_or(&none);
            (now != version).then(|| format!("{name} {version} → {now}"))
        });
        let changed: Vec<String> = changed.take(MOST_PACKAGES).collect();
        self.report.note_packages(&changed);
    }
}

fn failed(cell: u64, error: &dyn std::error::Error) -> ReplayError {
    ReplayError::Cell { cell, why: describe(error) }
}
