//! `ipybox changes`: shows the changes that wait in copies of the workspace, and applies or discards them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use ipybox::{
    AppliedChanges, ApplyDoubts, ChangeMark, ChangedCopies, ChangedCopy, CommandLog, CopySummary, Emphasis,
    FileChange, FileChanges, SettleAction, SettledFiles, one_line, state_directory,
};
use serde_json::{Value, json};

use super::{print, print_message, single_threaded};

const RESULT: &str = "write the result";

/// The flags of `ipybox changes`.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangesArgs {
    /// The id of a session's copy, or the beginning of one [default: the only one of the workspace]
    pub(crate) session: Option<String>,

    #[command(subcommand)]
    pub(crate) action: Option<ChangesAction>,

    /// Show the changes as a unified diff
    #[arg(long)]
    pub(crate) diff: bool,

    /// Print JSON, whose keys do not change
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Working directory of the session's kernel
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// The actions on changes that wait.
#[derive(Debug, Subcommand)]
pub(crate) enum ChangesAction {
    /// Write changes to the workspace, as they were shown last
    Apply {
        /// Files and directories of the workspace [default: all]
        paths: Vec<PathBuf>,
        /// Also what the workspace has in another state by now, and links that lead out of it
        #[arg(long)]
        force: bool,
    },
    /// Take changes back: the copy is as the workspace again
    Discard {
        /// Files and directories of the workspace [default: all]
        paths: Vec<PathBuf>,
    },
}

pub(super) fn run(args: ChangesArgs) -> anyhow::Result<ExitCode> {
    let copies = ChangedCopies::of(&state_directory(&args.workspace, args.state_dir.clone())?);
    let copy = match &args.session {
        Some(id) => copies.find(id)?,
        None => {
            let found = copies.list().context("read the copies of the workspace")?;
            match found.as_slice() {
                [only] => copies.find(&only.id)?,
                found => return without_session(found, &args),
            }
        }
    };
    let paths = |paths: &[PathBuf]| -> Vec<PathBuf> {
        paths.iter().map(|path| in_workspace(path, &args.workspace)).collect()
    };
    let settled = match &args.action {
        None => {
            let found = copy.show(&[]).context("compare the copy with the workspace")?;
            let text = if args.json {
                shown_as_json(&copy, &found, args.diff)?
            } else {
                shown(&copy, &found, &args)
            };
            return print(&text, RESULT).map(|()| ExitCode::SUCCESS);
        }
        Some(ChangesAction::Apply { paths: named, force }) => {
            let doubts = if *force { ApplyDoubts::Override } else { ApplyDoubts::Refuse };
            settle(&copy, SettleAction::Apply, &paths(named), doubts)?
        }
        Some(ChangesAction::Discard { paths: named }) => {
            settle(&copy, SettleAction::Discard, &paths(named), ApplyDoubts::Refuse)?
        }
    };
    settled_in_words(&settled, &args)
}

/// Settles changes. If the session of the copy keeps an audit log, that has it; without its record nothing is done.
fn settle(
    copy: &ChangedCopy,
    action: SettleAction,
    paths: &[PathBuf],
    doubts: ApplyDoubts,
) -> anyhow::Result<AppliedChanges> {
    let (workspace, audit) = copy.audit().context("read the record of the copy")?;
    single_threaded()?.block_on(async {
        let log = audit.map(|audit| CommandLog::open(audit.file, audit.max_bytes, workspace));
        let log = log.transpose().context("record it: nothing is changed")?;
        let settled = match action {
            SettleAction::Apply => copy.apply(paths, doubts).context("apply the changes"),
            SettleAction::Discard => copy.discard(paths).context("discard the changes"),
        };
        if let Some(log) = log {
            let record = settled.as_ref().ok().map(|settled| {
                let files = settled.digests.iter();
                let files = files.map(|(path, digest)| (path.to_string_lossy().into_owned(), digest.clone()));
                SettledFiles::new(copy.id(), action, files.collect(), settled.refused.len())
            });
            log.end(record.as_ref()).await;
        }
        settled
    })
}

/// Without a session to choose: the list of them.
fn without_session(found: &[CopySummary], args: &ChangesArgs) -> anyhow::Result<ExitCode> {
    if args.action.is_some() && !found.is_empty() {
        anyhow::bail!(
            "choose among the copies of several sessions\nhint: `ipybox changes` lists their ids: `ipybox changes ID apply`"
        );
    }
    let text = if args.json { pretty(&json!(found))? } else { table(found) };
    print(&text, RESULT).map(|()| ExitCode::SUCCESS)
}

fn table(found: &[CopySummary]) -> String {
    if found.is_empty() {
        return "No changes wait in this workspace.\n\
                Those of a session do that is started with `--sandbox --sandbox-backend bwrap --changes ask`, and those of \
                copies of a session with `--branch-files`.\n"
            .to_owned();
    }
    let mut text = Emphasis::Title.of(&format!("{:<10}{:<10}{}", "ID", "CHANGES", "SESSION")) + "\n";
    for copy in found {
        let state = if copy.is_live { "goes on" } else { "has ended" };
        text.push_str(&format!("{:<10}{:<10}{state}\n", copy.id, copy.changes));
    }
    text
}

fn shown(copy: &ChangedCopy, found: &FileChanges, args: &ChangesArgs) -> String {
    if found.changes.is_empty() && !found.is_cut {
        return format!("The copy `{}` does not differ from the workspace.\n", copy.id());
    }
    let mut text = String::new();
    for change in &found.changes {
        text.push_str(&format!("{}\n", line(change)));
        if args.diff {
            text.push_str(&copy.diff(change));
            text.push('\n');
        }
    }
    if found.is_cut {
        text.push_str(&Emphasis::Warning.of("There is more in the copy than can be listed."));
        text.push('\n');
    }
    text.push_str(&format!(
        "\n`ipybox changes {0} apply [PATH…]` applies, `ipybox changes {0} discard [PATH…]` discards.\n",
        copy.id()
    ));
    text
}

fn line(change: &FileChange) -> String {
    let bytes = if change.bytes > 0 { format!(" ({} bytes)", change.bytes) } else { String::new() };
    let marks: String = change.marks.iter().map(|mark| format!("  {}", in_words(mark))).collect();
    format!("{:<9}{}{bytes}{marks}", change.kind.word(), change.shown_path())
}

fn in_words(mark: &ChangeMark) -> String {
    let words = format!("[{}]", mark.words());
    if mark.is_warning() { Emphasis::Warning.of(&words) } else { words }
}

fn shown_as_json(copy: &ChangedCopy, found: &FileChanges, has_diff: bool) -> anyhow::Result<String> {
    let mut value = json!({"id": copy.id(), "is_cut": found.is_cut, "changes": found.changes});
    if let (true, Some(Value::Array(changes))) = (has_diff, value.get_mut("changes")) {
        for (value, change) in changes.iter_mut().zip(&found.changes) {
            value["diff"] = copy.diff(change).into();
        }
    }
    pretty(&value)
}

/// Prints the result of applying or discarding; the exit code is 1 if something was refused.
fn settled_in_words(settled: &AppliedChanges, args: &ChangesArgs) -> anyhow::Result<ExitCode> {
    if args.json {
        print(&pretty(&json!(settled))?, RESULT)?;
    } else {
        let done: String = settled.done.iter().map(|path| format!("{}\n", plain(path))).collect();
        print(&done, RESULT)?;
        if settled.done.is_empty() && settled.refused.is_empty() {
            print_message("no change waits there");
        }
    }
    for refused in &settled.refused {
        print_message(&format!("`{}` is left: {}", plain(&refused.path), refused.why));
    }
    Ok(if settled.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A path as it is in the workspace.
fn in_workspace(path: &Path, workspace: &Path) -> PathBuf {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let path = path.strip_prefix(&workspace).unwrap_or(path);
    path.components().collect::<PathBuf>().strip_prefix(".").map_or_else(|_| path.to_owned(), Path::to_owned)
}

fn plain(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("write JSON")? + "\n")
}
