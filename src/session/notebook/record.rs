//! A cell that has ended, and the text that it has in a notebook. Pure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nbformat::v4::{Cell, CellMetadata, ErrorOutput, ExecutionMetadata, MultilineString, Output as Shown};
use serde_json::{Map, Value, json};

use super::document;
use super::tape::{TapedObject, TapedOutput, TapedOutputs};
use crate::approval::CellCalls;
use crate::ground::text::{Redactor, rfc3339};
use crate::kernels::output::{excerpt, late_section};

/// The number of characters of a cell's code that are kept.
const CODE_CHARS: usize = 256 * 1024;

/// The number of characters of late output, and of a note, that are kept.
const NOTE_CHARS: usize = 8 * 1024;

/// The tag of cells that `jupyter execute` leaves out.
const SKIPPED: &str = "skip-execution";

/// The tag of cells after whose exception `jupyter execute` goes on.
const RAISES: &str = "raises-exception";

/// A cell that has ended.
#[derive(Debug)]
pub(super) struct CellRecord {
    pub(super) code: String,
    /// Its number in its kernel, `In [number]`; `None` if the kernel does not count it.
    pub(super) number: Option<u64>,
    /// `agent` or `person`.
    pub(super) author: &'static str,
    pub(super) begun: SystemTime,
    pub(super) took: Duration,
    /// The end of the cell.
    pub(super) end: Arc<CellEnd>,
    pub(super) shown: TapedOutputs,
    pub(super) calls: CellCalls,
    /// The change of the kernel before it, in words.
    pub(super) heading: Option<String>,
}

/// The end of a cell, and the results beside its text.
#[derive(Debug, Default)]
pub(crate) struct CellEnd {
    /// In the audit log's word.
    pub(crate) word: &'static str,
    /// In words, if not by itself.
    pub(crate) words: String,
    /// The output of earlier cells meanwhile.
    pub(crate) late: String,
    /// Notes beyond its output.
    pub(crate) notes: Vec<String>,
    /// The files of its images.
    pub(crate) images: Vec<PathBuf>,
    /// The copies of files that it has shown.
    pub(crate) files: Vec<PathBuf>,
    /// The file with all of its text, if there is much.
    pub(crate) file: Option<PathBuf>,
}

/// The conditions of a cell's text beside the cell.
pub(super) struct CellSetting<'a> {
    pub(super) session: &'a str,
    pub(super) redactor: &'a Redactor,
    /// The directory of the notebook, which links are relative to; `None` if it is not in the workspace.
    pub(super) directory: Option<&'a Path>,
}

impl CellRecord {
    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let output = |output: &TapedOutput| match output {
            TapedOutput::Text(text) => text.len(),
            TapedOutput::Object(object) => {
                object.bundle.values().map(|value| value.as_str().map_or(16, str::len)).sum()
            }
            TapedOutput::Error(error) => {
                error.value.len() + error.traceback.iter().map(String::len).sum::<usize>()
            }
        };
        let paths = self.end.images.iter().chain(&self.end.files).map(|path| path.as_os_str().len());
        let outputs = self.shown.outputs.iter().map(output);
        1024 + self.code.len() + paths.chain(outputs).sum::<usize>()
    }

    /// Its cells in the notebook: a heading if something has become of the kernel, and itself.
    pub(super) fn cells(self, setting: &CellSetting) -> Vec<String> {
        let heading = self.heading.as_ref();
        let heading =
            heading.map(|words| markdown(&format!("*{}*", setting.text(words, NOTE_CHARS)), json!({})));
        heading.into_iter().chain([document::cell_text(self.into_cell(setting))]).collect()
    }

    fn metadata(&self, setting: &CellSetting) -> CellMetadata {
        let Self { author, begun, took, end, shown, calls, .. } = self;
        let has_error = shown.outputs.iter().any(|output| matches!(output, TapedOutput::Error(_)));
        let tag = match end.word {
            "finished" | "error" => has_error.then_some(RAISES),
            // Again it would run into its timeout, or end its kernel.
            _ => Some(SKIPPED),
        };
        let mut ours = json!({
            "session": setting.session,
            "author": author,
            "end": end.word,
            "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
        if !end.notes.is_empty() {
            ours["notes"] = end.notes.iter().map(|note| setting.text(note, NOTE_CHARS)).collect();
        }
        if !calls.calls.is_empty() {
            ours["calls"] = json!(calls.calls);
        }
        if calls.left_out > 0 {
            ours["calls_left_out"] = json!(calls.left_out);
        }
        let [began, ended] = [*begun, *begun + *took].map(|time| Some(rfc3339(time)));
        let execution = ExecutionMetadata {
            iopub_execute_input: began.clone(),
            iopub_status_busy: began,
            shell_execute_reply: ended.clone(),
            shell_execute_reply_started: None,
            iopub_status_idle: ended,
            additional: Default::default(),
        };
        CellMetadata {
            tags: tag.map(|tag| vec![tag.to_owned()]),
            execution: Some(execution),
            additional: [("ipybox".to_owned(), ours)].into(),
            ..CellMetadata::default()
        }
    }

    fn into_cell(self, setting: &CellSetting) -> Cell {
        let metadata = self.metadata(setting);
        let Self { number, end, shown, code, .. } = self;
        let mut outputs = Vec::new();
        if let Some(late) = late_section(setting.text(&end.late, NOTE_CHARS).trim_end()) {
            outputs.push(stream(late + "\n"));
        }
        let number = number.and_then(|number| i32::try_from(number).ok());
        outputs.extend(shown.outputs.into_iter().map(|output| match output {
            TapedOutput::Text(text) => stream(text),
            TapedOutput::Object(object) => object.into_output(number, setting.directory),
            TapedOutput::Error(error) => Shown::Error(ErrorOutput {
                ename: error.name,
                evalue: error.value,
                traceback: error.traceback,
            }),
        }));
        if shown.left_out > 0 {
            outputs.push(stream(format!("[{} more outputs were left out]\n", shown.left_out)));
        }
        if let Some(file) = end.file.as_ref().filter(|_| shown.is_cut) {
            outputs.push(link("The whole output", file, setting.directory));
        }
        if !end.words.is_empty() {
            outputs.push(stream(format!("[{}]\n", setting.text(&end.words, NOTE_CHARS))));
        }
        Cell::Code {
            id: uuid::Uuid::new_v4().into(),
            metadata,
            execution_count: number,
            source: lines(&setting.text(&code, CODE_CHARS)),
            outputs,
        }
    }
}

impl CellSetting<'_> {
    /// A text within a limit, secrets replaced.
    fn text(&self, text: &str, chars: usize) -> String {
        excerpt(&self.redactor.redact(text), chars)
    }
}

impl TapedObject {
    fn into_output(mut self, number: Option<i32>, directory: Option<&Path>) -> Shown {
        // The kernel sends JSON as text.
        self.bundle.retain(|kind, value| {
            let is_json = kind == "application/json" || kind.ends_with("+json");
            let Some(text) = value.as_str().filter(|_| is_json) else { return true };
            serde_json::from_str(text).map(|read| *value = read).is_ok()
        });
        if self.large_bytes > 0 {
            let what = format!("An image of {} kB", self.large_bytes / 1000);
            match self.files.first() {
                Some(file) => return link(&what, file, directory),
                None => drop(self.bundle.insert("text/plain".to_owned(), format!("[{what}]").into())),
            }
        }
        let mut metadata = Map::new();
        if !self.files.is_empty() {
            let files: Vec<String> = self.files.iter().map(|file| relative(file, directory)).collect();
            metadata.insert("ipybox".to_owned(), json!({ "files": files }));
        }
        document::object(self.bundle, number.filter(|_| self.is_value), metadata)
    }
}

/// The cell with which a session begins. A branch's links to the notebook of its origin.
pub(super) fn heading(session: &str, at: SystemTime, origin: Option<&str>) -> String {
    let mut words = format!("### Session `{session}`, {}", rfc3339(at));
    let mut ours = json!({ "session": session, "version": env!("CARGO_PKG_VERSION") });
    if let Some(origin) = origin {
        words.push_str(&format!("\n\n*It began with the variables of [another session](<{origin}>).*"));
        ours["origin"] = json!(origin);
    }
    markdown(&words, ours)
}

fn markdown(text: &str, ours: Value) -> String {
    let metadata =
        CellMetadata { additional: [("ipybox".to_owned(), ours)].into(), ..CellMetadata::default() };
    document::cell_text(Cell::Markdown {
        id: uuid::Uuid::new_v4().into(),
        metadata,
        source: lines(text),
        attachments: None,
    })
}

fn stream(text: String) -> Shown {
    Shown::Stream { name: "stdout".to_owned(), text: MultilineString(text) }
}

/// A link to a file, for what is too large.
fn link(what: &str, file: &Path, directory: Option<&Path>) -> Shown {
    let path = relative(file, directory);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let bundle = Map::from_iter([
        ("text/markdown".to_owned(), format!("{what}: [{name}](<{path}>)").into()),
        ("text/plain".to_owned(), format!("{what}: {path}").into()),
    ]);
    document::object(bundle, None, Map::from_iter([("ipybox".to_owned(), json!({ "files": [path] }))]))
}

/// The path of a file as a notebook in this directory names it.
pub(super) fn relative(file: &Path, directory: Option<&Path>) -> String {
    let shortened = directory.and_then(|directory| file.strip_prefix(directory).ok());
    shortened.unwrap_or(file).to_string_lossy().into_owned()
}

fn lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::kernel::PythonError;

    fn record(code: &str, word: &'static str, outputs: Vec<TapedOutput>) -> CellRecord {
        CellRecord {
            code: code.to_owned(),
            number: Some(3),
            author: "agent",
            begun: SystemTime::UNIX_EPOCH,
            took: Duration::from_millis(1500),
            end: Arc::new(CellEnd { word, ..CellEnd::default() }),
            shown: TapedOutputs { outputs, ..TapedOutputs::default() },
            calls: CellCalls::default(),
            heading: None,
        }
    }

    fn cell(record: CellRecord) -> Value {
        let redactor = Redactor::default();
        redactor.note("KEY", "the-secret");
        let setting = CellSetting { session: "1a", redactor: &redactor, directory: Some(Path::new("/w")) };
        let mut cell: Value = serde_json::from_str(&record.cells(&setting).pop().unwrap()).unwrap();
        cell["id"].take();
        cell
    }

    fn object(bundle: Value) -> TapedObject {
        TapedObject { bundle: bundle.as_object().unwrap().clone(), ..TapedObject::default() }
    }

    #[test]
    fn a_cell_has_its_code_outputs_and_times() {
        let value = TapedObject { is_value: true, ..object(json!({"text/plain": "2"})) };
        let outputs = vec![TapedOutput::Text("a\nb".to_owned()), TapedOutput::Object(value)];
        assert_eq!(
            cell(record("x = 'the-secret'\nx", "finished", outputs)),
            json!({
                "cell_type": "code",
                "execution_count": 3,
                "id": null,
                "metadata": {
                    "execution": {
                        "iopub.execute_input": "1970-01-01T00:00:00.000Z",
                        "iopub.status.busy": "1970-01-01T00:00:00.000Z",
                        "iopub.status.idle": "1970-01-01T00:00:01.500Z",
                        "shell.execute_reply": "1970-01-01T00:00:01.500Z",
                    },
                    "ipybox": {"author": "agent", "duration_ms": 1500, "end": "finished", "session": "1a"},
                },
                "outputs": [
                    {"name": "stdout", "output_type": "stream", "text": ["a\n", "b"]},
                    {
                        "data": {"text/plain": ["2"]},
                        "execution_count": 3,
                        "metadata": {},
                        "output_type": "execute_result",
                    },
                ],
                "source": ["x = '${KEY}'\n", "x"],
            })
        );
    }

    #[test]
    fn tags_say_how_to_run_it_again() {
        let error = || {
            TapedOutput::Error(PythonError {
                name: "E".into(),
                value: "e".into(),
                traceback: vec!["E: e".into()],
            })
        };
        let check = |word, outputs, tag: Value| {
            assert_eq!(cell(record("1", word, outputs))["metadata"]["tags"], tag, "{word}");
        };
        check("finished", vec![], Value::Null);
        check("error", vec![error()], json!(["raises-exception"]));
        for word in ["timed_out", "cancelled", "died", "reset", "stopped", "unknown"] {
            check(word, vec![error()], json!(["skip-execution"]));
        }
    }

    #[test]
    fn a_large_image_is_a_link_to_its_file() {
        let files = vec!["/w/images/1.png".into()];
        let large = TapedObject { large_bytes: 9_000_000, files, ..TapedObject::default() };
        let outputs = cell(record("", "finished", vec![TapedOutput::Object(large)]))["outputs"].take();
        assert_eq!(outputs[0]["data"]["text/plain"][0], "An image of 9000 kB: images/1.png");
        assert_eq!(outputs[0]["data"]["text/markdown"][0], "An image of 9000 kB: [1.png](<images/1.png>)");
    }

    #[test]
    fn json_is_json_again() {
        let shown = object(json!({"application/json": "{\"a\": [1]}", "text/plain": "x"}));
        let outputs = cell(record("", "finished", vec![TapedOutput::Object(shown)]))["outputs"].take();
        assert_eq!(outputs[0]["data"]["application/json"], json!({"a": [1]}));
        let deep = object(json!({"application/json": "[".repeat(500), "text/plain": "x"}));
        let outputs = cell(record("", "finished", vec![TapedOutput::Object(deep)]))["outputs"].take();
        assert_eq!(outputs[0]["data"], json!({"text/plain": ["x"]}));
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut record = record("1", "timed_out", vec![TapedOutput::Text("begin".to_owned())]);
        (record.shown.left_out, record.shown.is_cut) = (2, true);
        record.end = Arc::new(CellEnd {
            file: Some("/w/.ipybox/outputs/1.txt".into()),
            words: "timed out".to_owned(),
            late: "later".to_owned(),
            ..CellEnd::default()
        });
        let outputs = cell(record)["outputs"].take();
        let shown: Vec<&Value> = outputs.as_array().unwrap().iter().map(|it| &it["text"]).collect();
        assert_eq!(
            shown[0],
            &json!([
                "[Output of earlier cells, after they had ended:]\n",
                "later\n",
                "[End of the output of earlier cells]\n",
            ])
        );
        assert_eq!(shown[2], &json!(["[2 more outputs were left out]\n"]));
        assert_eq!(outputs[3]["data"]["text/plain"][0], "The whole output: .ipybox/outputs/1.txt");
        assert_eq!(shown[4], &json!(["[timed out]\n"]));
    }
}
