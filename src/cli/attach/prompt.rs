//! The prompt itself: reads cells and answers until the person leaves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use ipybox::lasting::{Joined, PromptAnswer};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, EventHandler, KeyCode, KeyEvent, Modifiers};

use super::helper::{Indenter, PromptHelper};
use super::shared::{Due, Question, Shared};

/// How many cells the history keeps.
const HISTORY: usize = 1_000;

/// The longest cell that the history keeps, in bytes.
const REMEMBERED_BYTES: usize = 16 * 1024;

/// What leaves, beside Ctrl-D: as people do in IPython. The session goes on.
const LEAVE: [&str; 4] = ["exit", "quit", "exit()", "quit()"];

type PromptEditor = Editor<PromptHelper, FileHistory>;

/// What the editor has returned.
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
pub(super) fn run(joined: Joined, has_colours: bool) -> anyhow::Result<()> {
    let Joined { id, workspace, history, says, hears, .. } = joined;
    let shared = Shared::new(says, has_colours);
    watch_interrupts(&shared)?;
    let mut editor = editor(&shared, &history)?;
    let mut printer = editor.create_external_printer().context("use the terminal")?;
    let (ringing, breaking, hearing) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
    // They end with the process.
    std::thread::spawn(move || ringing.screen.ring(&mut printer));
    std::thread::spawn(move || breaking.break_when_due());
    let workspace: String = workspace
        .display()
        .to_string()
        .chars()
        .map(|char| if char.is_control() { '?' } else { char })
        .collect();
    shared.screen.show_line(&format!(
        "The kernel of session {id} ({workspace}), which the agent uses too. Ctrl-D leaves, and the session goes on."
    ));
    std::thread::spawn(move || hearing.hear(hears));
    let mut prompt = Prompt { editor, shared, history: &history };
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

struct Prompt<'a> {
    editor: PromptEditor,
    shared: Arc<Shared>,
    history: &'a Path,
}

impl Prompt<'_> {
    fn serve(&mut self) -> anyhow::Result<Ended> {
        let mut begun = (String::new(), 0);
        loop {
            match self.shared.due() {
                Due::End => return Ok(Ended::Session),
                Due::Question(question) => {
                    self.ask(&question)?;
                    continue;
                }
                Due::Cell => {}
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
                    if self.shared.run(code).is_err() {
                        return Ok(Ended::Session);
                    }
                }
            }
        }
    }

    /// Asks a question until it is answered, here or elsewhere.
    fn ask(&mut self, question: &Question) -> anyhow::Result<()> {
        self.shared.screen.show_line(&format!("\n{}", question.text));
        // What was typed before the question was there does not answer it.
        if let Err(error) = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush)
        {
            tracing::debug!(%error, "could not drop what was typed before");
        }
        let answers = answers(question);
        let answer = loop {
            if !self.shared.is_asking() {
                return Ok(());
            }
            self.answering(true);
            let edited = self.edit(&answers, "", 0);
            self.answering(false);
            let words = match edited? {
                Edited::Line(words) => words,
                Edited::Cleared | Edited::Left => break PromptAnswer::No,
                Edited::Broken(..) if self.shared.has_ended() => return Ok(()),
                Edited::Broken(..) => continue,
            };
            match words.trim().to_lowercase().as_str() {
                "y" | "yes" => break PromptAnswer::Once,
                "g" | "grant" if question.grant.is_some() => break PromptAnswer::Grant,
                "s" | "session" => break PromptAnswer::Session,
                "a" | "always" => break PromptAnswer::Always,
                "n" | "no" => break PromptAnswer::No,
                _ => {}
            }
        };
        // Its failure is that of the session, which is noticed next.
        self.shared.answer(answer).ok();
        Ok(())
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

/// What a question can be answered with.
fn answers(question: &Question) -> String {
    let grant = question.grant.as_ref().map(|words| format!("[g] {words}, ")).unwrap_or_default();
    format!("Allow? [y]es once, {grant}for this [s]ession, [a]lways, [n]o: ")
}

fn editor(shared: &Arc<Shared>, history: &Path) -> anyhow::Result<PromptEditor> {
    let config = Config::builder()
        .max_history_size(HISTORY)
        .and_then(|config| config.history_ignore_dups(true))
        .context("begin a history")?
        .completion_type(CompletionType::List)
        // Our hooks are asked for the prompt only with colours; they know whether there are any.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = PromptEditor::with_config(config).context("use the terminal")?;
    let (shared, is_answering) = (Arc::clone(shared), Arc::new(AtomicBool::new(false)));
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
fn watch_interrupts(shared: &Arc<Shared>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start the async runtime")?;
    let signals = {
        let _in_runtime = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
    };
    let (mut signals, shared) = (signals.context("handle signals")?, Arc::clone(shared));
    std::thread::spawn(move || {
        runtime.block_on(async {
            while signals.recv().await.is_some() {
                shared.interrupt();
            }
        });
    });
    Ok(())
}
