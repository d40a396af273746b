//! The output of code, as the application gets it.

use std::path::PathBuf;

use crate::kernels::output::{CutText, OutputText, RecordedOutput};

/// The output of code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodeExecutionResult {
    /// The id of the code, such as `cell-7`, for [`CodeExecutor::undo_to`](super::CodeExecutor::undo_to).
    pub cell: String,
    /// The printed text, and the value of the last expression, without white space at the end; `None` if there is nothing.
    pub text: Option<String>,
    /// Saved images, in order.
    pub images: Vec<PathBuf>,
    /// Copies of the files that code has shown by `show_file`, in order.
    pub files: Vec<PathBuf>,
    /// Set if `text` is not all of it.
    pub truncated: Option<Truncated>,
    /// The output of threads and tasks of earlier code since the last result, after that code had ended.
    pub late_text: Option<String>,
    /// Further notes: the kernel was restarted before, an image could not be saved.
    pub notes: Vec<String>,
}

/// Output that was longer than [`Code::max_output_chars`](super::Code::max_output_chars).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Truncated {
    /// The number of characters.
    pub chars: usize,
    /// A file in the workspace with all of it; `None` if it could not be written, which a note reports.
    pub file: Option<PathBuf>,
}

impl CodeExecutionResult {
    pub(super) fn new(cell: String, shown: RecordedOutput, late: OutputText, notes: Vec<String>) -> Self {
        let RecordedOutput { text, images, files, .. } = shown;
        let some = |text: String| (!text.is_empty()).then_some(text);
        Self {
            cell,
            truncated: text.cut.map(|CutText { chars, file, .. }| Truncated { chars, file }),
            text: some(text.excerpt),
            images: images.into_iter().map(|image| image.path).collect(),
            files: files.into_iter().map(|file| file.path).collect(),
            late_text: some(late.excerpt),
            notes,
        }
    }
}
