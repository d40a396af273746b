//! A conversation with one ipykernel: start it, run code in it, interrupt it, kill it.
//!
//! It speaks the [Jupyter messaging protocol](https://jupyter-client.readthedocs.io/en/stable/messaging.html)
//! over sockets in a private directory. It knows nothing of cells in a queue, of time limits or of tools: those are
//! the executor's.

mod connection;
mod death;
mod fold;
mod journal;
mod launch;
mod limits;
mod message;
mod terminal;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;

pub(crate) use self::death::Death;
pub(crate) use self::fold::{Fold, Image, ImageId, Settled, Taken, Transcript};
pub(crate) use self::launch::{Launch, ShellCommands};
pub(crate) use self::limits::Limits;
pub(crate) use self::message::{Content, Message, PythonError, Shown};
pub(crate) use self::terminal::plain;

use self::connection::Connection;
use self::journal::Journal;
use self::launch::KernelProcess;

/// Why a kernel could not be started or spoken to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The files of a kernel could not be written, or its process not watched.
    #[error("prepare the kernel's files")]
    Files(#[source] std::io::Error),
    /// The interpreter could not be started.
    #[error("start `{python}`", python = python.display())]
    Spawn {
        /// The interpreter.
        python: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The process ended before it could be spoken to.
    #[error("start the IPython kernel: it ended with {0}{causes}", causes = line_of(&.0.causes()))]
    DiedStarting(Death),
    /// The process has ended.
    #[error("run code in the IPython kernel: it has ended with {0}")]
    Ended(Death),
    /// The kernel was not ready in time.
    #[error("start the IPython kernel: it was not ready after {} seconds", .0.as_secs_f64())]
    StartTimeout(Duration),
    /// The sockets of the kernel failed.
    #[error("speak to the kernel")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A message has no proper frames or signature.
    #[error("take apart a message of the kernel")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A message could not be understood.
    #[error("understand a message of the kernel")]
    Message(#[source] serde_json::Error),
}

fn line_of(causes: &str) -> String {
    if causes.is_empty() { String::new() } else { format!("\n{}", causes.trim_start()) }
}

/// What comes next from a kernel.
pub(crate) enum Event {
    /// It said something.
    Message(Message),
    /// It said something that cannot be understood: an interrupt may have torn it.
    Torn,
    /// Its process ended.
    Died(Death),
}

/// A running kernel. Dropping it kills it and all that it started.
pub(crate) struct Kernel {
    process: KernelProcess,
    connection: Connection,
    journal: Journal,
    /// Set when the process has ended.
    ended_with: Option<ExitStatus>,
    /// What it printed before its end and could not send any more.
    unsaid: VecDeque<Message>,
}

impl Kernel {
    /// Starts a kernel and waits until it runs code and everything that it prints arrives.
    pub(crate) async fn start(launch: &Launch) -> Result<Self, Error> {
        tokio::time::timeout(launch.timeout, Self::start_and_greet(launch))
            .await
            .unwrap_or(Err(Error::StartTimeout(launch.timeout)))
    }

    async fn start_and_greet(launch: &Launch) -> Result<Self, Error> {
        let (process, info, journal) = KernelProcess::start(launch).await?;
        let connection = Connection::open(&info).await?;
        let mut kernel = Self { process, connection, journal, ended_with: None, unsaid: VecDeque::new() };
        loop {
            match kernel.next().await? {
                Event::Message(Message { content: Content::Welcome, .. }) => break,
                Event::Message(_) | Event::Torn => {}
                Event::Died(death) => return Err(Error::DiedStarting(death)),
            }
        }
        match kernel.run(String::new()).await {
            Ok(_) => Ok(kernel),
            Err(Error::Ended(death)) => Err(Error::DiedStarting(death)),
            Err(error) => Err(error),
        }
    }

    /// Runs code of our own to its end and returns what else was said meanwhile.
    ///
    /// # Errors
    /// Among others that the kernel has ended; [`next`](Self::next) says so too.
    pub(crate) async fn run(&mut self, code: String) -> Result<Vec<Message>, Error> {
        let mut fold = Fold::new(self.execute(code).await?);
        let mut others = Vec::new();
        while !fold.is_complete() {
            match self.next().await? {
                Event::Message(message) if fold.is_parent_of(&message) => drop(fold.take(message.content)),
                Event::Message(message) => others.push(message),
                Event::Torn => {}
                Event::Died(death) => return Err(Error::Ended(death)),
            }
        }
        Ok(others)
    }

    /// Asks for `code` to be run and returns the id that its messages will carry.
    ///
    /// A byte order mark at its beginning is left out, as Python does in files.
    pub(crate) async fn execute(&mut self, mut code: String) -> Result<String, Error> {
        if code.starts_with('\u{feff}') {
            code.remove(0);
        }
        // What is sent to a dead kernel is lost without an error.
        match self.process.ended()? {
            None => {
                self.process.forget_words();
                let request = self.connection.send_execute(code).await?;
                self.journal.expect(&request);
                Ok(request)
            }
            Some(status) => Err(Error::Ended(self.process.death(status).await)),
        }
    }

    /// The next message or the kernel's end. Cancellation safe.
    ///
    /// Call it between cells too: what nobody reads slows the kernel down.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        let status = match self.ended_with {
            Some(status) => status,
            None => match self.listen().await? {
                ControlFlow::Continue(event) => return Ok(event),
                ControlFlow::Break(status) => {
                    self.unsaid = self.journal.recover();
                    // From here on nothing is read: what still came would be said twice.
                    *self.ended_with.insert(status)
                }
            },
        };
        match self.unsaid.pop_front() {
            Some(message) => Ok(Event::Message(message)),
            None => Ok(Event::Died(self.process.death(status).await)),
        }
    }

    async fn listen(&mut self) -> Result<ControlFlow<ExitStatus, Event>, Error> {
        tokio::select! {
            // What a dying kernel still said comes before its death.
            biased;
            message = self.connection.read() => match message {
                Ok((message, written)) => {
                    if let (Some(request), Some(written)) = (&message.parent, written) {
                        self.journal.note(request, written);
                    }
                    Ok(ControlFlow::Continue(Event::Message(message)))
                }
                Err(error @ (Error::Message(_) | Error::Malformed(_))) => {
                    // Not a warning: code in the kernel must not fill the log.
                    tracing::debug!(%error, "ignored a message of the kernel");
                    Ok(ControlFlow::Continue(Event::Torn))
                }
                Err(error) => Ok(ControlFlow::Break(self.process.wait_after(error).await?)),
            },
            status = self.process.wait() => Ok(ControlFlow::Break(status.map_err(Error::Files)?)),
        }
    }

    /// Asks for a KeyboardInterrupt in the running code, by message: the gentlest way.
    pub(crate) async fn request_interrupt(&mut self) -> Result<(), Error> {
        self.connection.send_interrupt().await
    }

    /// Sends SIGINT to the kernel and all that it started.
    pub(crate) fn signal_interrupt(&self) {
        self.process.signal(Signal::INT);
    }

    /// Kills the kernel and all that it started; what it said before is still there to be read.
    pub(crate) fn signal_kill(&self) {
        self.process.signal(Signal::KILL);
    }

    /// Kills the kernel and all that it started.
    pub(crate) async fn kill(self) {
        self.process.kill().await;
    }
}
