//! The prompt itself: reads cells and answers until the person leaves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use ipybox::Label;
use ipybox::lasting::{JoinedKernel, JoinedSession, PromptAnswer, named_rows};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, EventHandler, KeyCode, KeyEvent, Modifiers};

use super::helper::{Indenter, PromptHelper};
use super::questions::{AttachAsked, AttachQuestion, QuestionTable};
use super::said;
use super::shared::{PromptStep, SharedPrompt};
use crate::cli::single_threaded;

/// The number of cells that the history keeps.
const HISTORY: usize = 1_000;

/// The longest cell that the history keeps, in bytes.
const REMEMBERED_BYTES: usize = 16 * 1024;

/// The words that leave, beside Ctrl-D: as people do in IPython. The session goes on.
const LEAVE: [&str; 4] = ["exit", "quit", "exit()", "quit()"];

/// The answer of somebody who does not answer.
const NO: &str = "n";

/// The possible answers to several questions.
const TOGETHER: &str =
    "Allow? [y]es all once, only rows as in 1-3, 7, all for this [s]ession, [n]one, or ask [e]ach: ";

type PromptEditor = Editor<PromptHelper, FileHistory>;

/// A line that the editor has returned.
enum Edited {
    /// A line, or several.
    Line(String),
    /// The person gives up the line.
    Cleared,
    /// The person leaves.
    Left,
    /// There is something else to do. The line, and the position in it.
    Broken(String, usize),
}

/// Shows the prompt until the person leaves.
pub(super) fn run(joined: JoinedSession, has_colours: bool) -> anyhow::Result<()> {
    let JoinedSession { id, kernel, workspace, history, says, hears, .. } = joined;
    let shared = SharedPrompt::new(says, has_colours);
    watch_interrupts(&shared)?;
    let mut editor = editor(&shared, &history)?;
    let mut printer = editor.create_external_printer().context("use the terminal")?;
    let ringing = Arc::clone(&shared);
    let breaking = Arc::clone(&shared);
    let hearing = Arc::clone(&shared);
    // They end with the process.
    std::thread::spawn(move || ringing.screen.ring(&mut printer));
    std::thread::spawn(move || breaking.break_when_due());
    let workspace: String = workspace
        .display()
        .to_string()
        .chars()
        .map(|char| if char.is_control() { '?' } else { char })
        .collect();
    shared.screen.show_line(&match kernel {
        JoinedKernel::Shared => format!(
            "The kernel of session {id} ({workspace}), which the agent uses too. Ctrl-D leaves, and the session goes on."
        ),
        JoinedKernel::Copy => format!(
            "A copy of the kernel of session {id} ({workspace}), for you alone. Ctrl-D leaves, and the copy ends."
        ),
    });
    std::thread::spawn(move || hearing.hear(hears));
    let mut prompt = AttachPrompt { editor, shared, history: &history };
    match prompt.serve()? {
        Ended::Left => Ok(()),
        Ended::Session => anyhow::bail!("go on: the session `{id}` has ended"),
    }
}

/// Why the prompt has ended.
enum Ended {
    Left,
    Session,
}

struct AttachPrompt<'a> {
    editor: PromptEditor,
    shared: Arc<SharedPrompt>,
    history: &'a Path,
}

impl AttachPrompt<'_> {
    fn serve(&mut self) -> anyhow::Result<Ended> {
        let mut begun = (String::new(), 0);
        loop {
            match self.shared.due() {
                PromptStep::End => return Ok(Ended::Session),
                PromptStep::Question(AttachAsked::One(question)) => {
                    self.ask(&question)?;
                    continue;
                }
                PromptStep::Question(AttachAsked::Several(table)) => {
                    self.ask_together(&table)?;
                    continue;
                }
                PromptStep::Cell => {}
            }
            let prompt = self.shared.prompt();
            let (line, position) = std::mem::take(&mut begun);
            match self.edit(&prompt, &line, position)? {
                Edited::Left => return Ok(Ended::Left),
                Edited::Cleared => {}
                Edited::Broken(line, position) => begun = (line, position),
                Edited::Line(code) if LEAVE.contains(&code.trim()) => return Ok(Ended::Left),
                Edited::Line(code) if code.trim().is_empty() => {}
                Edited::Line(code) => {
                    self.remember(&code);
                    if self.shared.run(&said(code)).is_err() {
                        return Ok(Ended::Session);
                    }
                }
            }
        }
    }

    /// Asks a question until it is answered, here or by somebody else.
    fn ask(&mut self, question: &AttachQuestion) -> anyhow::Result<()> {
        let mut text = question.text.clone();
        if question.takes_label {
            let labels = Label::ALL.map(|label| format!("`{label}`")).join(", ");
            text.push_str(&format!(
                "\nThe answer can label the server's data ({labels}), as in `y untrusted`."
            ));
        }
        let Some((answer, label)) = self.ask_for(&text, &answers(question), |words| {
            let (words, label) = match words.split_once(' ') {
                Some((answer, label)) if question.takes_label => (answer, Some(label.trim().parse().ok()?)),
                _ => (words, None),
            };
            let answer = match words {
                "g" | "grant" if question.grant.is_some() => PromptAnswer::Grant,
                "a" | "always" => PromptAnswer::Always,
                words => plain_answer(words)?,
            };
            Some((answer, label))
        })?
        else {
            return Ok(());
        };
        // Its failure is that of the session, which is noticed next.
        self.shared.answer(|_| (answer, label)).ok();
        Ok(())
    }

    /// Asks several questions at once, until they are answered, here or by somebody else.
    fn ask_together(&mut self, table: &QuestionTable) -> anyhow::Result<()> {
        enum Together {
            All(PromptAnswer),
            Rows(BTreeSet<usize>),
            Each,
        }
        let answer = self.ask_for(&table.text, TOGETHER, |words| match words {
            "e" | "each" => Some(Together::Each),
            "none" => Some(Together::All(PromptAnswer::No)),
            words => plain_answer(words)
                .map(Together::All)
                .or_else(|| named_rows(words, table.rows.len()).ok().map(Together::Rows)),
        })?;
        let answered = match answer {
            None => Ok(()),
            Some(Together::All(answer)) => self.shared.answer(|_| (answer, None)),
            Some(Together::Each) => {
                self.shared.ask_each();
                Ok(())
            }
            Some(Together::Rows(rows)) => self.shared.answer(|number| {
                let row = table.rows.iter().position(|row| *row == number).map(|index| index + 1);
                let is_allowed = row.is_some_and(|row| rows.contains(&row));
                (if is_allowed { PromptAnswer::Once } else { PromptAnswer::No }, None)
            }),
        };
        // As above.
        answered.ok();
        Ok(())
    }

    /// Shows a question until what is typed is an answer; `None` if somebody else answered it. To clear the line or
    /// to leave it is a no.
    fn ask_for<T>(
        &mut self,
        text: &str,
        answers: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        self.shared.screen.show_line(&format!("\n{text}"));
        // What was typed before the question was there does not answer it.
        if let Err(error) = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush)
        {
            tracing::debug!(%error, "could not drop what was typed before");
        }
        loop {
            if !self.shared.is_asking() {
                return Ok(None);
            }
            self.answering(true);
            let edited = self.edit(answers, "", 0);
            self.answering(false);
            let words = match edited? {
                Edited::Line(words) => words,
                Edited::Cleared | Edited::Left => NO.to_owned(),
                Edited::Broken(..) if self.shared.has_ended() => return Ok(None),
                Edited::Broken(..) => continue,
            };
            if let Some(answer) = read(&words.trim().to_lowercase()) {
                return Ok(Some(answer));
            }
        }
    }

    fn answering(&self, is_answering: bool) {
        if let Some(helper) = self.editor.helper() {
            helper.is_answering.store(is_answering, Ordering::Relaxed);
        }
    }

    fn edit(&mut self, prompt: &str, line: &str, position: usize) -> anyhow::Result<Edited> {
        self.shared.begin_to_edit();
        let edited = self.editor.readline_with_initial(prompt, line.split_at(position));
        let (line, position) = self.shared.end_editing();
        let was_broken = self.shared.was_broken();
        Ok(match edited {
            Ok(line) => Edited::Line(line),
            Err(ReadlineError::Eof) => Edited::Left,
            Err(ReadlineError::Interrupted) if was_broken => Edited::Broken(line, position),
            Err(ReadlineError::Interrupted) => Edited::Cleared,
            Err(error) => return Err(error).context("read from the terminal"),
        })
    }

    fn remember(&mut self, code: &str) {
        if code.len() > REMEMBERED_BYTES {
            return;
        }
        let added = self.editor.add_history_entry(code);
        let kept = added.and_then(|_| self.editor.append_history(self.history));
        if let Err(error) = kept {
            tracing::debug!(%error, "could not keep the history");
        }
    }
}

/// The possible answers to a question.
fn answers(question: &AttachQuestion) -> String {
    let grant = question.grant.as_ref().map(|words| format!("[g] {words}, ")).unwrap_or_default();
    format!("Allow? [y]es once, {grant}for this [s]ession, [a]lways, [n]o: ")
}

/// The answers that every question takes.
fn plain_answer(words: &str) -> Option<PromptAnswer> {
    match words {
        "y" | "yes" => Some(PromptAnswer::Once),
        "s" | "session" => Some(PromptAnswer::Session),
        NO | "no" => Some(PromptAnswer::No),
        _ => None,
    }
}

fn editor(shared: &Arc<SharedPrompt>, history: &Path) -> anyhow::Result<PromptEditor> {
    let config = Config::builder()
        .max_history_size(HISTORY)
        .and_then(|config| config.history_ignore_dups(true))
        .context("begin a history")?
        .completion_type(CompletionType::List)
        // Our hooks are asked for the prompt only with colours; they know whether there are any.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = PromptEditor::with_config(config).context("use the terminal")?;
    let shared = Arc::clone(shared);
    let is_answering = Arc::new(AtomicBool::new(false));
    let indenter = Indenter { is_answering: Arc::clone(&is_answering) };
    editor.bind_sequence(
        KeyEvent(KeyCode::Enter, Modifiers::NONE),
        EventHandler::Conditional(Box::new(indenter)),
    );
    editor.set_helper(Some(PromptHelper { shared, is_answering }));
    if let Err(error) = editor.load_history(history) {
        // There is none yet.
        tracing::debug!(%error, "no history was read");
    }
    Ok(editor)
}

/// Passes on each SIGINT that comes while no line is edited.
fn watch_interrupts(shared: &Arc<SharedPrompt>) -> anyhow::Result<()> {
    let runtime = single_threaded()?;
    let signals = {
        let _in_runtime = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
    };
    let mut signals = signals.context("handle signals")?;
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        runtime.block_on(async {
            while signals.recv().await.is_some() {
                shared.interrupt();
            }
        });
    });
    Ok(())
}
