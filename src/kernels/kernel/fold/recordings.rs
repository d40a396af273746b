//! The fold of recorded messages of real kernels: `tests/recordings`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::remote::{KernelChannel, MessageParts};
use super::*;

pub(super) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

fn messages(recording: &Path) -> Vec<KernelMessage> {
    let text = std::fs::read_to_string(recording).unwrap();
    let message = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap();
        let part = |name: &str| serde_json::to_vec(&message[name]).unwrap().into();
        let parts = ["header", "parent_header", "metadata", "content"].map(part).to_vec();
        MessageParts::new(KernelChannel::Iopub, parts).unwrap().message().unwrap()
    };
    text.lines().map(message).collect()
}

/// An assembled transcript, with the remaining images.
#[derive(Default)]
struct AssembledOutput {
    text: String,
    images: Vec<(AttachmentId, &'static str)>,
}

impl AssembledOutput {
    fn take(&mut self, taken: MessageEffect) {
        self.images.extend(taken.images.into_iter().map(|(id, image)| (id, image.extension)));
        self.images.retain(|(id, _)| !taken.discarded.contains(id));
        if let Some(settled) = taken.settled {
            self.settle(settled);
        }
    }

    fn settle(&mut self, settled: SettledText) {
        if settled.is_anew {
            self.text.clear();
        }
        self.text += &settled.text;
    }

    fn describe(&self, title: &str, summary: &mut String) {
        writeln!(summary, "{title}").unwrap();
        self.text.lines().for_each(|line| writeln!(summary, "    {line}").unwrap());
        self.images.iter().for_each(|(_, extension)| writeln!(summary, "  + {extension}").unwrap());
    }
}

/// Follows messages as a session does: one cell after the other, and late output apart from them.
pub(super) fn summary(name: &str, messages: Vec<KernelMessage>) -> String {
    let mut summary = format!("== {name}\n");
    let mut late = (Transcript::default(), AssembledOutput::default());
    let mut cell: Option<(CellFold, AssembledOutput)> = None;
    for message in messages {
        let begins = matches!(message.content, MessageContent::ExecuteInput | MessageContent::Other)
            && message.parent.as_deref().is_some_and(|parent| parent.starts_with("cell-"))
            && cell.as_ref().is_none_or(|(fold, _)| fold.is_complete() && !fold.is_parent_of(&message));
        if begins {
            if let Some(ended) = cell.take() {
                end(ended, &mut late, &mut summary);
            }
            cell = Some((CellFold::new(message.parent.clone().unwrap()), AssembledOutput::default()));
        }
        match &mut cell {
            Some((fold, shown)) if fold.is_parent_of(&message) && !fold.is_complete() => {
                shown.take(fold.take(message.content));
            }
            _ => {
                if let MessageContent::Shown(content) = message.content {
                    late.1.take(late.0.take(content));
                }
            }
        }
    }
    if let Some(ended) = cell {
        end(ended, &mut late, &mut summary);
    }
    summary
}

fn end(
    (fold, mut shown): (CellFold, AssembledOutput),
    late: &mut (Transcript, AssembledOutput),
    summary: &mut String,
) {
    let title =
        if fold.is_complete() { fold.request.clone() } else { format!("{} (unfinished)", fold.request) };
    let (rest, error) = fold.finish();
    shown.settle(rest);
    shown.describe(&title, summary);
    if let Some(error) = error {
        writeln!(summary, "  ! {}: {}", error.name, error.value).unwrap();
        assert!(!error.text().contains('\u{1b}'));
    }
    let (transcript, mut shown) = std::mem::take(late);
    shown.settle(transcript.finish());
    if !shown.text.is_empty() || !shown.images.is_empty() {
        shown.describe("late", summary);
    }
}

fn check(version: &str) {
    let entries = std::fs::read_dir(directory().join(version)).unwrap();
    let mut recordings: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    recordings.sort();
    assert!(recordings.len() > 50, "{}", recordings.len());
    let summaries: String = recordings
        .iter()
        .map(|recording| summary(&recording.file_stem().unwrap().to_string_lossy(), messages(recording)))
        .collect();
    assert_snapshot(version, &summaries);
}

pub(super) fn assert_snapshot(name: &str, content: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(directory());
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, content));
}

#[test]
fn cells_of_ipykernel_6() {
    check("ipykernel-6.31");
}

#[test]
fn cells_of_ipykernel_7() {
    check("ipykernel-7.4");
}
