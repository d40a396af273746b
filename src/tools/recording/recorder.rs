//! The recorder of a session: numbers its cells and calls, takes secrets out, and has the lines written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::line::{
    FORMAT, RecordedAnswer, RecordedCall, RecordedCell, RecordedEnvironment, RecordedInstallation,
    RecordedMoment, RecordedServer, RecordedSession, RecordedUndo, RecordingLine,
};
use super::recent::{ANSWER_BYTES, RecentCalls};
use super::writer::RecordingWriter;
use super::{LINE_BYTES, RecordingError};
use crate::ground::text::{Redactor, rfc3339};

/// The number of bursts that are remembered.
const MOST_BURSTS: usize = 4_096;

/// Records a session.
pub(crate) struct SessionRecorder {
    sink: RecordingSink,
    path: PathBuf,
    redactor: Redactor,
    course: Mutex<RecordedCourse>,
    recent: Mutex<RecentCalls>,
}

/// The place of lines.
enum RecordingSink {
    File(RecordingWriter),
    /// For a replay, which compares them.
    Memory(Mutex<Vec<RecordingLine>>),
    /// Nowhere: the newest calls are all that is kept.
    Nowhere,
}

/// The state of a recording.
#[derive(Default)]
struct RecordedCourse {
    /// The number of cells that have begun.
    cells: u64,
    /// The cell that runs now; 0 if none does.
    running: u64,
    /// The number of beginnings and ends of calls.
    moments: u64,
    /// The beginning of each burst of the running cell: its calls reach the host in any order, but code makes them side by side.
    bursts: BTreeMap<u64, u64>,
    /// The newest line of each server, and of the environment.
    servers: BTreeMap<String, RecordedServer>,
    environment: Option<RecordedEnvironment>,
}

/// The conditions of a session that a recording begins with.
pub(crate) struct RecordedConditions {
    pub(crate) session: String,
    pub(crate) workspace: PathBuf,
    pub(crate) site: &'static str,
    pub(crate) seed: u32,
    /// The kernel's locale and time zone.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) branch_of: Option<PathBuf>,
}

/// A call that has begun. If dropped before its answer, it is recorded as one that nobody waited for.
pub(crate) struct OpenRecord {
    recorder: Arc<SessionRecorder>,
    begun: Instant,
    /// Taken when it is recorded.
    call: Option<Box<RecordedCall>>,
}

impl SessionRecorder {
    /// Makes the recording `path`; `secrets` are replaced in it.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub(crate) fn start(
        path: PathBuf,
        conditions: RecordedConditions,
        secrets: Redactor,
    ) -> Result<Arc<Self>, RecordingError> {
        let RecordedConditions { session, workspace, site, seed, environment, branch_of } = conditions;
        let first = RecordingLine::Session(RecordedSession {
            format: FORMAT,
            ipybox: env!("CARGO_PKG_VERSION").to_owned(),
            session,
            time: rfc3339(std::time::SystemTime::now()),
            workspace: secrets.redact(&workspace.to_string_lossy()).into_owned(),
            site: site.to_owned(),
            seed,
            environment,
            branch_of: branch_of.map(|path| path.display().to_string()),
        });
        let writer = RecordingWriter::start(&path, &first)?;
        Ok(Self::with(RecordingSink::File(writer), path, secrets))
    }

    /// Keeps the newest calls alone, in memory.
    pub(crate) fn of_recent_calls(secrets: Redactor) -> Arc<Self> {
        Self::with(RecordingSink::Nowhere, PathBuf::new(), secrets)
    }

    fn with(sink: RecordingSink, path: PathBuf, redactor: Redactor) -> Arc<Self> {
        Arc::new(Self { sink, path, redactor, course: Mutex::default(), recent: Mutex::default() })
    }

    /// Records into memory, for a replay.
    pub(crate) fn in_memory(secrets: Redactor) -> Arc<Self> {
        Self::with(RecordingSink::Memory(Mutex::default()), PathBuf::new(), secrets)
    }

    /// The newest calls that have answers: those of the newest cell first, and of each cell the earliest first.
    pub(crate) fn recent_calls(&self) -> Vec<RecordedCall> {
        let mut calls = self.recent.lock().newest_first();
        if self.keeps_recent_alone() {
            for call in &mut calls {
                call.answer = call.answer.take().map(|answer| self.redactor.redact_json(answer));
            }
        }
        calls
    }

    /// Whether the newest calls are all that is kept: most are never asked for, so that secrets in their answers are replaced
    /// only then.
    fn keeps_recent_alone(&self) -> bool {
        matches!(self.sink, RecordingSink::Nowhere)
    }

    /// The largest answer that is recorded, in bytes.
    pub(super) fn most_bytes(&self) -> usize {
        match &self.sink {
            RecordingSink::Nowhere => ANSWER_BYTES,
            RecordingSink::File(_) | RecordingSink::Memory(_) => LINE_BYTES,
        }
    }

    /// Takes the lines that were recorded into memory.
    pub(crate) fn take(&self) -> Vec<RecordingLine> {
        match &self.sink {
            RecordingSink::File(_) | RecordingSink::Nowhere => Vec::new(),
            RecordingSink::Memory(lines) => std::mem::take(&mut *lines.lock()),
        }
    }

    /// The Python of the newest kernel, if it is known.
    pub(crate) fn known_environment(&self) -> Option<RecordedEnvironment> {
        self.course.lock().environment.clone()
    }

    fn put(&self, line: RecordingLine) {
        match &self.sink {
            RecordingSink::File(writer) => writer.put(&line),
            RecordingSink::Memory(lines) => lines.lock().push(line),
            RecordingSink::Nowhere => {}
        }
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces secrets in outputs.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// A kernel has started.
    pub(crate) fn kernel_started(&self) {
        let cells = self.course.lock().cells;
        self.put(RecordingLine::Kernel(RecordedMoment { cells }));
    }

    /// The Python of a kernel that has started; written if it is another one.
    pub(crate) fn environment(&self, environment: RecordedEnvironment) {
        let mut course = self.course.lock();
        if course.environment.as_ref() != Some(&environment) {
            self.put(RecordingLine::Environment(environment.clone()));
            course.environment = Some(environment);
        }
    }

    /// The newest cells were undone; `last` is the kernel's number of the newest one that is left.
    pub(crate) fn undone(&self, last: u64) {
        let cells = self.course.lock().cells;
        self.put(RecordingLine::Undo(RecordedUndo { cells, last }));
    }

    /// Packages were installed.
    pub(crate) fn installed(&self, packages: &[String]) {
        let cells = self.course.lock().cells;
        let packages = packages.iter().map(|package| self.redactor.redact(package).into_owned()).collect();
        self.put(RecordingLine::Installation(RecordedInstallation { cells, packages }));
    }

    /// The servers whose tools code can call now; those that are new or have changed are written.
    pub(crate) fn servers(&self, servers: Vec<RecordedServer>) {
        let mut course = self.course.lock();
        for mut server in servers {
            let parameters = std::mem::take(&mut server.parameters);
            server.parameters = self.object(parameters);
            if course.servers.get(&server.name) != Some(&server) {
                self.put(RecordingLine::Server(Box::new(server.clone())));
                course.servers.insert(server.name.clone(), server);
            }
        }
    }

    /// A cell begins. Returns its number.
    pub(crate) fn cell_begins(&self) -> u64 {
        let mut course = self.course.lock();
        course.cells += 1;
        course.running = course.cells;
        course.bursts.clear();
        course.cells
    }

    /// A cell has ended. Its outputs have no secrets.
    pub(crate) fn cell_ended(&self, mut cell: RecordedCell) {
        self.cell_is_over(cell.cell);
        cell.code = self.redactor.redact(&cell.code).into_owned();
        self.put(RecordingLine::Cell(Box::new(cell)));
    }

    /// No call that begins from now on belongs to a cell.
    pub(crate) fn cell_is_over(&self, cell: u64) {
        let mut course = self.course.lock();
        if course.running == cell {
            course.running = 0;
        }
    }

    /// The user has filled in these fields for a server, or has not answered it.
    pub(super) fn user_answers(
        &self,
        server: &str,
        question: Map<String, Value>,
        fields: Option<Vec<String>>,
    ) {
        let cell = self.course.lock().running;
        let question = self.object(question);
        let server = self.redactor.redact(server).into_owned();
        self.put(RecordingLine::Answer(RecordedAnswer { cell, server, question, fields }));
    }

    /// A call of code begins, with the others of its `burst`.
    pub(crate) fn call_begins(
        self: &Arc<Self>,
        server: &str,
        tool: &str,
        arguments: &Map<String, Value>,
        burst: Option<u64>,
    ) -> OpenRecord {
        let (cell, moment) = {
            let mut course = self.course.lock();
            course.moments += 1;
            if course.bursts.len() >= MOST_BURSTS {
                course.bursts.clear();
            }
            let now = course.moments;
            let begun = burst.map_or(now, |burst| *course.bursts.entry(burst).or_insert(now));
            (course.running, begun)
        };
        let call = RecordedCall {
            cell,
            server: self.redactor.redact(server).into_owned(),
            tool: self.redactor.redact(tool).into_owned(),
            arguments: self.object(arguments.clone()),
            answer: None,
            left_out: None,
            decision: "accepted".to_owned(),
            by: String::new(),
            duration_ms: 0,
            order: [moment, moment],
        };
        OpenRecord { recorder: Arc::clone(self), begun: Instant::now(), call: Some(Box::new(call)) }
    }

    /// Why the recording has ended before its session; once.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.sink {
            RecordingSink::File(writer) => writer.trouble(),
            RecordingSink::Memory(_) | RecordingSink::Nowhere => None,
        }
    }

    /// Writes the end.
    pub(crate) async fn close(&self) {
        let cells = self.course.lock().cells;
        self.put(RecordingLine::End(RecordedMoment { cells }));
        if let RecordingSink::File(writer) = &self.sink {
            writer.close().await;
        }
    }

    fn object(&self, object: Map<String, Value>) -> Map<String, Value> {
        match self.redactor.redact_json(Value::Object(object)) {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }
}

impl OpenRecord {
    /// The largest answer that is recorded, in bytes.
    pub(super) fn most_bytes(&self) -> usize {
        self.recorder.most_bytes()
    }

    /// Records what code got, and who has decided that.
    pub(crate) fn answered(mut self, answer: Value, decision: &'static str, by: &'static str) {
        let recorder = &self.recorder;
        let is_as_it_came = recorder.keeps_recent_alone();
        let answer = if is_as_it_came { answer } else { recorder.redactor.redact_json(answer) };
        self.end(|call| {
            (call.answer, call.decision, call.by) = (Some(answer), decision.to_owned(), by.to_owned());
        });
    }

    /// Records that the answer is too large.
    pub(crate) fn left_out(mut self, bytes: usize, by: &'static str) {
        self.end(|call| (call.left_out, call.by) = (Some(bytes), by.to_owned()));
    }

    fn end(&mut self, complete: impl FnOnce(&mut RecordedCall)) {
        let Some(mut call) = self.call.take() else { return };
        complete(&mut call);
        call.duration_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        call.order[1] = {
            let mut course = self.recorder.course.lock();
            course.moments += 1;
            course.moments
        };
        let bytes = json_bytes(&call);
        if bytes > LINE_BYTES {
            (call.answer, call.left_out) = (None, Some(bytes));
        }
        let recorder = &self.recorder;
        if recorder.keeps_recent_alone() {
            recorder.recent.lock().put(*call, bytes);
        } else {
            recorder.recent.lock().put((*call).clone(), bytes);
            recorder.put(RecordingLine::Call(call));
        }
    }
}

/// The length of a call as JSON, which is not kept.
fn json_bytes(call: &RecordedCall) -> usize {
    let mut counted = CountedBytes(0);
    serde_json::to_writer(&mut counted, call).map_or(0, |()| counted.0)
}

/// Counts the bytes that are written to it.
struct CountedBytes(usize);

impl std::io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        self.end(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_code_makes_side_by_side_overlap() {
        let recorder = SessionRecorder::in_memory(Redactor::default());
        recorder.cell_begins();
        for burst in [Some(1), Some(1), Some(2), None, Some(1)] {
            let call = recorder.call_begins("s", "t", &Map::new(), burst);
            call.answered(Value::Null, "accepted", "policy");
        }
        let orders = recorder.take().into_iter().map(|line| match line {
            RecordingLine::Call(call) => call.order,
            line => panic!("{line:?}"),
        });
        assert_eq!(orders.collect::<Vec<_>>(), [[1, 2], [1, 4], [5, 6], [7, 8], [1, 10]]);
        // Another cell has calls of its own.
        recorder.cell_begins();
        recorder.call_begins("s", "t", &Map::new(), Some(1)).answered(Value::Null, "accepted", "policy");
        assert!(matches!(&recorder.take()[..], [RecordingLine::Call(call)] if call.order == [11, 12]));
    }
}
