//! A kernel that runs beside us: its process, its sockets and its journal.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::process::ExitStatus;

use jupyter_protocol::JupyterMessage;
use rustix::process::Signal;
use serde_json::json;

use super::connection::Connection;
use super::journal::Journal;
use super::launch::KernelProcess;
use super::message::Message;
use super::wire::{Channel, Parts};
use super::{Death, Error, Launch};

/// What comes next from a kernel beside us.
pub(crate) enum Said {
    /// A message. It need not be one that can be understood.
    Message(Parts),
    /// Something that is no message: an interrupt may have torn it.
    Torn,
    /// Its process ended.
    Died(Death),
}

/// A kernel beside us. Dropping it kills it and all that it started.
pub(crate) struct LocalKernel {
    process: KernelProcess,
    connection: Connection,
    journal: Journal,
    /// Set when the process has ended.
    ended_with: Option<ExitStatus>,
    /// What it printed before its end and could not send any more.
    unsaid: VecDeque<Parts>,
}

impl LocalKernel {
    /// Starts the process and connects to it. What it says first is that it is ready.
    pub(crate) async fn start(launch: &Launch) -> Result<Self, Error> {
        let (process, info, journal) = KernelProcess::start(launch).await?;
        let connection = Connection::open(&info).await?;
        Ok(Self { process, connection, journal, ended_with: None, unsaid: VecDeque::new() })
    }

    /// Sends a request for code to be run.
    pub(super) async fn execute(&mut self, request: JupyterMessage) -> Result<(), Error> {
        // What is sent to a dead kernel is lost without an error.
        match self.process.ended()? {
            None => {
                self.process.forget_words();
                let id = request.header.msg_id.clone();
                self.connection.send(Channel::Shell, request).await?;
                self.journal.expect(&id);
                Ok(())
            }
            Some(status) => Err(Error::Ended(self.process.death(status).await)),
        }
    }

    /// Sends a request over the control channel.
    pub(super) async fn control(&mut self, request: JupyterMessage) -> Result<(), Error> {
        self.connection.send(Channel::Control, request).await
    }

    /// Sends a request that came from a client in its parts. One to a dead kernel is dropped: the client is told of the
    /// death.
    pub(crate) async fn forward(&mut self, parts: Parts) -> Result<(), Error> {
        let channel = parts.channel;
        let request = parts.into_request()?;
        match channel {
            Channel::Control => self.control(request).await,
            Channel::Shell | Channel::Iopub => match self.execute(request).await {
                Err(Error::Ended(_)) => Ok(()),
                sent => sent,
            },
        }
    }

    /// The next message or the kernel's end. Cancellation safe.
    ///
    /// Call it between cells too: what nobody reads slows the kernel down.
    pub(crate) async fn next(&mut self) -> Result<Said, Error> {
        let status = match self.ended_with {
            Some(status) => status,
            None => match self.listen().await? {
                ControlFlow::Continue(said) => return Ok(said),
                ControlFlow::Break(status) => {
                    let texts = self.journal.recover();
                    self.unsaid = texts.into_iter().map(|(request, text)| stream(&request, &text)).collect();
                    // From here on nothing is read: what still came would be said twice.
                    *self.ended_with.insert(status)
                }
            },
        };
        match self.unsaid.pop_front() {
            Some(message) => Ok(Said::Message(message)),
            None => Ok(Said::Died(self.process.death(status).await)),
        }
    }

    /// Reads a message and notes what of the kernel's output came with it, so that it is not said twice after a death.
    pub(crate) fn understand(&mut self, parts: &Parts) -> Result<Message, Error> {
        let (message, written) = Message::decode(parts)?;
        if let (Some(request), Some(written)) = (&message.parent, written) {
            self.journal.note(request, written);
        }
        Ok(message)
    }

    async fn listen(&mut self) -> Result<ControlFlow<ExitStatus, Said>, Error> {
        tokio::select! {
            // What a dying kernel still said comes before its death.
            biased;
            message = self.connection.read() => match message {
                Ok(parts) => Ok(ControlFlow::Continue(Said::Message(parts))),
                Err(error @ Error::Malformed(_)) => {
                    // Not a warning: code in the kernel must not fill the log.
                    tracing::debug!(%error, "ignored a message of the kernel");
                    Ok(ControlFlow::Continue(Said::Torn))
                }
                Err(error) => Ok(ControlFlow::Break(self.process.wait_after(error).await?)),
            },
            status = self.process.wait() => Ok(ControlFlow::Break(status.map_err(Error::Files)?)),
        }
    }

    /// Sends a signal to the kernel and all that it started; what it said before is still there to be read.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills the kernel and all that it started.
    pub(crate) async fn kill(self) {
        self.process.kill().await;
    }
}

/// Text of a stream, as the kernel would have sent it.
fn stream(request: &str, text: &str) -> Parts {
    Parts::of_kernel("stream", Some(request), &json!({ "name": "stdout", "text": text }))
}
