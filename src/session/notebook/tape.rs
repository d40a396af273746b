//! The output of a cell, in order, as long as it runs: within bounds, and with secrets replaced. Pure.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::stream::NotebookStream;
use crate::ground::text::Redactor;
use crate::kernels::kernel::{
    MessageContent, MimeBundle, PlotKind, PythonError, ShownFile, ShownOutput, plot,
};
use crate::kernels::output::excerpt;

/// The number of outputs of a cell that are kept.
const MOST_OUTPUTS: usize = 400;

/// The characters of text that a cell's outputs may have together. An output gets half of what is left, so that there
/// is room for later ones.
const TEXT_CHARS: usize = 256 * 1024;

/// An output that would get fewer characters is left out.
const LEAST_CHARS: usize = 256;

/// The bytes that the images of a cell may have together, in Base64. Larger ones are in their files alone.
const IMAGE_BYTES: usize = 4 * 1024 * 1024;

/// The newest version of Vega and Vega-Lite that JupyterLab 4 draws.
const KNOWN_VEGA: u32 = 5;

/// The characters of an exception that are kept: its name, its text, its traceback.
const ERROR_CHARS: [usize; 3] = [200, 4_000, 32_000];

/// Collects outputs.
pub(crate) struct OutputTape {
    redactor: Redactor,
    outputs: Vec<TapedOutput>,
    /// The stream at the end.
    stream: Option<NotebookStream>,
    text_left: usize,
    images_left: usize,
    left_out: usize,
    is_cut: bool,
    is_clear_pending: bool,
    /// The object that was shown last.
    newest: Option<usize>,
}

/// An output of a cell.
#[derive(Debug, PartialEq)]
pub(crate) enum TapedOutput {
    Text(String),
    Object(TapedObject),
    Error(PythonError),
}

/// A shown object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TapedObject {
    /// Its representations.
    pub(crate) bundle: MimeBundle,
    /// Whether it is the value of the cell.
    pub(super) is_value: bool,
    /// The files of its images.
    pub(super) files: Vec<PathBuf>,
    /// The bytes of images that are in files alone.
    pub(super) large_bytes: usize,
    pub(super) id: Option<String>,
}

/// All that was shown.
#[derive(Debug, Default)]
pub(crate) struct TapedOutputs {
    pub(crate) outputs: Vec<TapedOutput>,
    /// The number of outputs that were left out.
    pub(crate) left_out: usize,
    /// Whether text is missing.
    pub(crate) is_cut: bool,
}

impl OutputTape {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            outputs: Vec::new(),
            stream: None,
            text_left: TEXT_CHARS,
            images_left: IMAGE_BYTES,
            left_out: 0,
            is_cut: false,
            is_clear_pending: false,
            newest: None,
        }
    }

    /// Adds what a message of the kernel shows.
    pub(crate) fn take(&mut self, content: &MessageContent) {
        match content {
            MessageContent::Shown(ShownOutput::Stream(text)) => self.write(text),
            MessageContent::Shown(ShownOutput::Object { bundle, is_begun: true, .. }) => {
                if let Some(text) = bundle.get("text/plain").and_then(Value::as_str) {
                    let is_at_start = self.stream.as_ref().is_none_or(NotebookStream::is_at_line_start);
                    self.write(&if is_at_start { text.to_owned() } else { format!("\n{text}") });
                }
            }
            MessageContent::Shown(ShownOutput::Object { bundle, id, is_value, .. }) => {
                self.clear_if_pending();
                self.show(bundle, id.clone(), *is_value, None);
            }
            MessageContent::Shown(ShownOutput::Update { bundle, id }) => {
                let is_same =
                    |output: &TapedOutput| matches!(output, TapedOutput::Object(it) if it.id == *id);
                let place = id.as_ref().and_then(|_| self.outputs.iter().rposition(is_same));
                self.show(bundle, id.clone(), false, place);
            }
            MessageContent::Shown(ShownOutput::Clear { is_delayed: true }) => self.is_clear_pending = true,
            MessageContent::Shown(ShownOutput::Clear { is_delayed: false }) => self.clear(),
            MessageContent::Error(error) => {
                self.clear_if_pending();
                self.end_stream();
                let error = self.bounded(error);
                self.push(TapedOutput::Error(error));
            }
            _ => {}
        }
    }

    /// The object that was shown last has an image in this file.
    pub(super) fn saved(&mut self, file: &Path) {
        if let Some(TapedOutput::Object(object)) = self.newest.and_then(|newest| self.outputs.get_mut(newest))
        {
            object.files.push(file.to_owned());
        }
    }

    /// All that was shown, and the exception that ended the cell if it was not shown.
    pub(crate) fn finish(mut self, error: Option<&PythonError>) -> TapedOutputs {
        self.end_stream();
        if let Some(error) = error.map(|error| self.bounded(error)) {
            let is_error =
                |output: &TapedOutput| matches!(output, TapedOutput::Error(shown) if *shown == error);
            if !self.outputs.iter().any(is_error) {
                self.outputs.push(TapedOutput::Error(error));
            }
        }
        TapedOutputs { outputs: self.outputs, left_out: self.left_out, is_cut: self.is_cut }
    }

    fn write(&mut self, text: &str) {
        self.clear_if_pending();
        if text.is_empty() {
            return;
        }
        let limit = self.text_left / 2;
        self.stream.get_or_insert_with(|| NotebookStream::new(limit)).write(text, &self.redactor);
    }

    fn end_stream(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let limit = stream.limit;
        let kept = stream.finish(&self.redactor);
        if kept.chars() == 0 {
            return;
        }
        self.is_cut |= kept.is_cut();
        if limit < LEAST_CHARS && kept.is_cut() {
            self.left_out += 1;
            return;
        }
        self.text_left = self.text_left.saturating_sub(kept.chars().min(limit));
        self.push(TapedOutput::Text(kept.into_string()));
    }

    fn show(&mut self, bundle: &MimeBundle, id: Option<String>, is_value: bool, place: Option<usize>) {
        if place.is_none() {
            self.end_stream();
        }
        let mut object = TapedObject { id, is_value, ..TapedObject::default() };
        if let Some(TapedOutput::Object(before)) = place.and_then(|place| self.outputs.get_mut(place)) {
            object.is_value = before.is_value;
            let bundle = std::mem::take(&mut before.bundle);
            self.give_back(&bundle);
        }
        for (kind, value) in bundle {
            self.keep(&mut object, kind, value);
        }
        if let Some((kind, specification)) = plot(bundle) {
            self.keep_plot(&mut object, kind, specification);
        }
        self.newest = match place {
            Some(place) => {
                self.outputs[place] = TapedOutput::Object(object);
                Some(place)
            }
            None => self.push(TapedOutput::Object(object)).then(|| self.outputs.len() - 1),
        };
    }

    /// Keeps a representation of an object, if there is room for it.
    fn keep(&mut self, object: &mut TapedObject, kind: &str, value: &Value) {
        let Some(text) = value.as_str().filter(|_| !ShownFile::is_of(kind)) else { return };
        if is_image(kind) {
            match self.images_left.checked_sub(text.len()) {
                Some(left) => {
                    self.images_left = left;
                    object.bundle.insert(kind.to_owned(), value.clone());
                }
                None => object.large_bytes += text.len() / 4 * 3,
            }
            return;
        }
        let room = self.text_left / 2;
        let redacted = match kind {
            // Its texts, as they are without escapes.
            "application/json" => match serde_json::from_str(text) {
                Ok(value) => self.redactor.redact_json(value).to_string().into(),
                Err(_) => self.redactor.redact(text),
            },
            _ => self.redactor.redact(text),
        };
        let is_long = text.len() > room;
        self.is_cut |= is_long;
        // Half a document would be another one.
        if is_long && kind != "text/plain" {
            return;
        }
        let kept = if is_long { excerpt(&redacted, room) } else { redacted.into_owned() };
        self.text_left = self.text_left.saturating_sub(kept.len());
        object.bundle.insert(kind.to_owned(), kept.into());
    }

    /// Keeps a plot as Jupyter's clients draw it, if there is room for it among the images.
    fn keep_plot(&mut self, object: &mut TapedObject, kind: PlotKind, specification: &str) {
        let Ok(specification) = serde_json::from_str(specification) else { return };
        let types = plot_types(kind, &specification);
        let text = self.redactor.redact_json(specification).to_string();
        match self.images_left.checked_sub(text.len() * types.len()) {
            Some(left) => {
                self.images_left = left;
                let representation = |kind| (kind, Value::from(text.clone()));
                object.bundle.extend(types.into_iter().map(representation));
            }
            None => object.large_bytes += text.len(),
        }
    }

    fn give_back(&mut self, bundle: &MimeBundle) {
        for (kind, value) in bundle {
            let length = value.as_str().map_or(0, str::len);
            if is_image(kind) {
                self.images_left += length;
            } else {
                self.text_left += length;
            }
        }
    }

    fn push(&mut self, output: TapedOutput) -> bool {
        let has_room = self.outputs.len() < MOST_OUTPUTS;
        if has_room {
            self.outputs.push(output);
        } else {
            self.left_out += 1;
        }
        has_room
    }

    fn clear_if_pending(&mut self) {
        if std::mem::take(&mut self.is_clear_pending) {
            self.clear();
        }
    }

    fn clear(&mut self) {
        *self = Self::new(self.redactor.clone());
    }

    fn bounded(&self, error: &PythonError) -> PythonError {
        let [name, value, traceback] = ERROR_CHARS;
        let text = |text: &str, limit| excerpt(&self.redactor.redact(text), limit);
        let joined = error.traceback.join("\n");
        PythonError {
            name: text(&error.name, name),
            value: text(&error.value, value),
            traceback: text(&joined, traceback).split('\n').map(str::to_owned).collect(),
        }
    }
}

/// Whether a representation is an image, in Base64 or as SVG, or a plot.
fn is_image(kind: &str) -> bool {
    kind.starts_with("image/") || kind == "application/pdf" || kind.starts_with("application/vnd.")
}

/// The MIME types by which JupyterLab and VS Code draw a plot.
fn plot_types(kind: PlotKind, specification: &Value) -> Vec<String> {
    let name = match kind {
        PlotKind::Plotly => return vec!["application/vnd.plotly.v1+json".to_owned()],
        PlotKind::Vega => "vega",
        PlotKind::VegaLite => "vegalite",
    };
    let version = specification["$schema"].as_str().and_then(schema_version).unwrap_or(KNOWN_VEGA);
    // The newest one that JupyterLab knows draws most plots of later ones, too.
    let versions = if version > KNOWN_VEGA { vec![version, KNOWN_VEGA] } else { vec![version] };
    versions.into_iter().map(|version| format!("application/vnd.{name}.v{version}+json")).collect()
}

/// `6` of `https://vega.github.io/schema/vega-lite/v6.1.0.json`.
fn schema_version(schema: &str) -> Option<u32> {
    let (_, version) = schema.rsplit_once("/v")?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stream(text: &str) -> MessageContent {
        MessageContent::Shown(ShownOutput::Stream(text.to_owned()))
    }

    fn bundle(value: Value) -> MimeBundle {
        value.as_object().unwrap().clone()
    }

    fn object(value: Value, id: Option<&str>) -> MessageContent {
        let id = id.map(str::to_owned);
        MessageContent::Shown(ShownOutput::Object {
            bundle: bundle(value),
            id,
            is_begun: false,
            is_value: false,
        })
    }

    fn update(value: Value, id: &str) -> MessageContent {
        MessageContent::Shown(ShownOutput::Update { bundle: bundle(value), id: Some(id.to_owned()) })
    }

    fn error(name: &str) -> PythonError {
        PythonError { name: name.to_owned(), value: String::new(), traceback: vec![name.to_owned()] }
    }

    fn tape() -> OutputTape {
        let redactor = Redactor::default();
        redactor.note("KEY", "the-secret");
        OutputTape::new(redactor)
    }

    fn outputs(contents: &[MessageContent]) -> TapedOutputs {
        let mut tape = tape();
        contents.iter().for_each(|content| tape.take(content));
        tape.finish(None)
    }

    #[track_caller]
    fn check(contents: &[MessageContent], expected: &[&str]) {
        let shown = outputs(contents).outputs.into_iter().map(|output| match output {
            TapedOutput::Text(text) => text,
            TapedOutput::Object(object) => Value::Object(object.bundle).to_string(),
            TapedOutput::Error(error) => format!("error {}", error.name),
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn outputs_keep_their_order() {
        let object = || object(json!({"text/plain": "1"}), None);
        check(&[stream("a"), stream("b\n"), object(), stream("c")], &["ab\n", r#"{"text/plain":"1"}"#, "c"]);
        check(
            &[MessageContent::Error(error("E")), stream("after"), MessageContent::Error(error("F"))],
            &["error E", "after", "error F"],
        );
    }

    #[test]
    fn progress_bars_show_their_last_state() {
        check(&[stream("10%"), stream("\r100%\n")], &["100%\n"]);
    }

    #[test]
    fn cursors_reach_lines_that_were_plain() {
        let mut lines: Vec<MessageContent> =
            (0..20_000).map(|number| stream(&format!("line {number}\n"))).collect();
        lines.extend([stream("\x1b[2A"), stream("\rdone\x1b[K\n\n")]);
        let TapedOutput::Text(text) = outputs(&lines).outputs.remove(0) else { panic!("text is a text") };
        assert!(text.ends_with("line 19997\ndone\nline 19999\n"), "{}", &text[text.len() - 100..]);
        let whole = outputs(&lines[..5_000]).outputs.remove(0);
        let expected: String = (0..5_000).map(|number| format!("line {number}\n")).collect();
        assert_eq!(whole, TapedOutput::Text(expected));
        let endless: Vec<MessageContent> = (0..10_000).map(|_| stream(&"x".repeat(50))).collect();
        let TapedOutput::Text(text) = outputs(&endless).outputs.remove(0) else { panic!("text is a text") };
        assert!(text.contains("characters left out") && text.len() < TEXT_CHARS, "{}", text.len());
    }

    #[test]
    fn displays_are_updated_and_cleared() {
        let first = || object(json!({"text/plain": "1"}), Some("i"));
        let second = || update(json!({"text/plain": "2"}), "i");
        check(&[first(), stream("x"), second()], &[r#"{"text/plain":"2"}"#, "x"]);
        let clear = |is_delayed| MessageContent::Shown(ShownOutput::Clear { is_delayed });
        check(&[stream("x"), clear(false)], &[]);
        check(&[stream("x"), clear(true)], &["x"]);
        check(&[first(), clear(true), stream("x")], &["x"]);
    }

    #[test]
    fn secrets_are_replaced_everywhere() {
        let mut secret = error("the-secret");
        secret.traceback = vec!["at the-secret".to_owned()];
        let shown = outputs(&[
            stream("a the-"),
            stream("secret"),
            object(json!({"text/html": "<b>the-secret</b>"}), None),
            MessageContent::Error(secret),
        ]);
        let text = format!("{shown:?}");
        assert!(!text.contains("the-secret") && text.matches("${KEY}").count() == 4, "{text}");
    }

    #[test]
    fn an_exception_that_only_the_reply_has_is_added() {
        let mut tape = tape();
        tape.take(&MessageContent::Error(error("E")));
        assert_eq!(tape.finish(Some(&error("E"))).outputs.len(), 1);
        let tape = super::tests::tape();
        assert_eq!(tape.finish(Some(&error("E"))).outputs, [TapedOutput::Error(error("E"))]);
    }

    #[test]
    fn plots_are_kept_as_jupyter_draws_them() {
        let kinds = |view: &str| {
            let outputs = outputs(&[object(json!({"application/vnd.ipybox.plot": view}), None)]).outputs;
            let [TapedOutput::Object(object)] = &outputs[..] else { panic!("{outputs:?}") };
            let bundle = object.bundle.iter();
            bundle.map(|(kind, value)| format!("{kind} {}", value.as_str().unwrap())).collect::<Vec<_>>()
        };
        let plotly = r#"application/vnd.plotly.v1+json {"data":["${KEY}"]}"#;
        assert_eq!(kinds("plotly.json\n{\"data\": [\"the-secret\"]}"), [plotly]);
        let chart = |version: &str| {
            format!(r#"{{"$schema":"https://vega.github.io/schema/vega-lite/v{version}.json"}}"#)
        };
        let names = |version: &str| {
            let kinds = kinds(&format!("vegalite.json\n{}", chart(version)));
            kinds.iter().map(|kind| kind.split_once('+').unwrap().0.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("5.20.1"), ["application/vnd.vegalite.v5"]);
        assert_eq!(names("6.1.0"), ["application/vnd.vegalite.v6", "application/vnd.vegalite.v5"]);
        assert_eq!(kinds("vega.json\n{}"), ["application/vnd.vega.v5+json {}"]);
        assert_eq!(kinds("vega.json\n{"), Vec::<String>::new());
    }

    #[test]
    fn large_images_are_in_their_files_alone() {
        let mut tape = tape();
        let large = "A".repeat(IMAGE_BYTES + 4);
        tape.take(&object(json!({"image/png": large}), None));
        tape.saved(Path::new("/w/images/1.png"));
        tape.take(&object(json!({"image/png": "AAAA"}), None));
        let shown = tape.finish(None).outputs;
        let [TapedOutput::Object(first), TapedOutput::Object(second)] = &shown[..] else {
            panic!("{shown:?}")
        };
        assert_eq!((first.bundle.len(), first.large_bytes), (0, IMAGE_BYTES / 4 * 3 + 3));
        assert_eq!(first.files, [Path::new("/w/images/1.png")]);
        assert_eq!((second.bundle.len(), second.large_bytes), (1, 0));
    }

    #[test]
    fn floods_are_bounded() {
        let line = "x".repeat(1_000) + "\n";
        let mut tape = tape();
        for _ in 0..10_000 {
            tape.take(&stream(&line));
        }
        for _ in 0..2 * MOST_OUTPUTS {
            tape.take(&object(json!({"text/plain": &line, "text/html": &line}), None));
            tape.take(&stream(&line));
        }
        let TapedOutputs { outputs, left_out, is_cut } = tape.finish(Some(&error("E")));
        assert!(outputs.len() <= MOST_OUTPUTS + 1 && left_out > 0 && is_cut);
        assert!(format!("{outputs:?}").len() < 2 * TEXT_CHARS);
    }

    #[test]
    fn an_object_that_is_updated_all_the_time_does_not_use_the_room_up() {
        let mut tape = tape();
        let image = "A".repeat(IMAGE_BYTES / 4);
        tape.take(&object(json!({"image/png": image}), Some("i")));
        for _ in 0..100 {
            tape.take(&update(json!({"image/png": image}), "i"));
        }
        let shown = tape.finish(None).outputs;
        assert!(
            matches!(&shown[..], [TapedOutput::Object(object)] if object.bundle.len() == 1),
            "{}",
            shown.len()
        );
    }
}
