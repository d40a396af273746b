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
mod local;
mod message;
mod relayed;
mod remote;
mod terminal;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use jupyter_protocol::{ExecuteRequest, InterruptRequest, JupyterMessage};

use rustix::process::Signal;

pub(crate) use self::death::{Death, Ended};
pub(crate) use self::fold::{Fold, Image, ImageId, Missing, Settled, Taken, Transcript};
pub(crate) use self::launch::{Launch, ShellCommands, Sockets};
pub(crate) use self::limits::Limits;
pub(crate) use self::message::{Content, Message, PythonError, RateLimit, Shown};
pub(crate) use self::terminal::plain;

pub(crate) use self::local::{LocalKernel, Said};
pub(crate) use self::relayed::websocket;
pub(crate) use self::remote::{CallHandler, RemoteLaunch, settle};
pub(crate) use self::wire::{Parts, SUBPROTOCOL};

use self::relayed::RelayedKernel;
use self::remote::RemoteKernel;
use self::wire::Channel;
use crate::jupyter::{self, KernelId};
use crate::sandbox::Seat;

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
    #[error("start the IPython kernel: it ended ({0}){causes}", causes = line_of(&.0.causes()))]
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
    /// The server that runs it does not do what it was asked for.
    #[error(transparent)]
    Server(#[from] jupyter::Error),
    /// It cannot be reached at present. It is not known to have ended.
    #[error("run code in the remote kernel: the connection to it is broken, and not back yet ({0})")]
    Disconnected(String),
    /// It runs another language.
    #[error(
        "use the kernel `{implementation}`: it runs {language}, not Python\n\
         hint: name the kernel spec of an ipykernel by `--kernel-name`"
    )]
    NotPython {
        /// What runs it.
        implementation: String,
        /// What it runs.
        language: String,
    },
    /// It cannot be made to work with us.
    #[error("prepare the remote kernel: {0}")]
    NotAdapted(String),
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
    /// The connection to it has been broken for a while. It may come back.
    Disconnected(String),
    /// Its process ended.
    Died(Death),
}

/// A running kernel. Dropping it kills it and all that it started.
pub(crate) struct Kernel(Half);

/// Where the kernel's process is.
enum Half {
    /// Beside us.
    Local(Box<LocalKernel>),
    /// In a sandbox, with a gateway between.
    Relayed(Box<RelayedKernel>),
    /// Where a Jupyter server runs it.
    Remote(Box<RemoteKernel>),
}

impl Kernel {
    /// Starts a kernel and waits until it runs code and everything that it prints arrives.
    pub(crate) async fn start(launch: &Launch) -> Result<Self, Error> {
        let opened = async { Ok(Half::Local(Box::new(LocalKernel::start(launch).await?))) };
        Self::greet(opened, launch.timeout).await
    }

    /// As [`start`](Self::start), for a kernel in a sandbox whose start has been asked for with this `launch`.
    pub(crate) async fn attach(seat: Seat, launch: &Launch) -> Result<Self, Error> {
        let opened = async { Ok(Half::Relayed(Box::new(RelayedKernel::open(seat, launch.limits).await?))) };
        Self::greet(opened, launch.timeout).await
    }

    /// Has a Jupyter server start a kernel, or restart an `earlier` one.
    pub(crate) async fn start_remote(
        launch: &RemoteLaunch,
        earlier: &mut Option<KernelId>,
    ) -> Result<Self, Error> {
        Ok(Self(Half::Remote(Box::new(RemoteKernel::start(launch, earlier).await?))))
    }

    async fn greet(
        opened: impl Future<Output = Result<Half, Error>>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let greeted = async {
            let mut kernel = Self(opened.await?);
            loop {
                match kernel.next().await? {
                    Event::Message(Message { content: Content::Welcome, .. }) => break,
                    Event::Died(death) => return Err(Error::DiedStarting(death)),
                    Event::Message(_) | Event::Torn | Event::Disconnected(_) => {}
                }
            }
            match kernel.run(String::new()).await {
                Ok(_) => Ok(kernel),
                Err(Error::Ended(death)) => Err(Error::DiedStarting(death)),
                Err(error) => Err(error),
            }
        };
        tokio::time::timeout(timeout, greeted).await.unwrap_or(Err(Error::StartTimeout(timeout)))
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
                Event::Disconnected(why) => return Err(Error::Disconnected(why)),
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
        let request = JupyterMessage::from(ExecuteRequest {
            code,
            silent: false,
            store_history: true,
            user_expressions: None,
            allow_stdin: false,
            stop_on_error: false,
        });
        let id = request.header.msg_id.clone();
        match &mut self.0 {
            Half::Local(kernel) => kernel.execute(request).await?,
            Half::Relayed(kernel) => kernel.send(&Parts::of_request(Channel::Shell, &request)?).await?,
            Half::Remote(kernel) => kernel.execute(&request).await?,
        }
        Ok(id)
    }

    /// The next message or the kernel's end. Cancellation safe.
    ///
    /// Call it between cells too: what nobody reads slows the kernel down.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        let kernel = match &mut self.0 {
            Half::Local(kernel) => kernel,
            Half::Relayed(kernel) => return kernel.next().await,
            Half::Remote(kernel) => return kernel.next().await,
        };
        Ok(match kernel.next().await? {
            Said::Message(parts) => match kernel.understand(&parts) {
                Ok(message) => Event::Message(message),
                Err(error) => {
                    tracing::debug!(%error, "ignored a message of the kernel");
                    Event::Torn
                }
            },
            Said::Torn => Event::Torn,
            Said::Died(death) => Event::Died(death),
        })
    }

    /// Asks for a KeyboardInterrupt in the running code, by message: the gentlest way.
    pub(crate) async fn request_interrupt(&mut self) -> Result<(), Error> {
        let request = JupyterMessage::from(InterruptRequest {});
        match &mut self.0 {
            Half::Local(kernel) => kernel.control(request).await,
            Half::Relayed(kernel) => kernel.send(&Parts::of_request(Channel::Control, &request)?).await,
            Half::Remote(kernel) => kernel.request_interrupt(),
        }
    }

    /// Interrupts the kernel and all that it started by another way.
    pub(crate) fn signal_interrupt(&self) {
        match &self.0 {
            Half::Local(kernel) => kernel.signal(Signal::INT),
            Half::Relayed(kernel) => kernel.signal(Signal::INT),
            Half::Remote(kernel) => kernel.interrupt_directly(),
        }
    }

    /// Kills the kernel and all that it started; what it said before is still there to be read.
    pub(crate) fn signal_kill(&self) {
        match &self.0 {
            Half::Local(kernel) => kernel.signal(Signal::KILL),
            Half::Relayed(kernel) => kernel.signal(Signal::KILL),
            Half::Remote(kernel) => kernel.end(),
        }
    }

    /// The name of a kernel that its server can restart, which is left to the caller; the others are killed.
    pub(crate) async fn release(self) -> Option<KernelId> {
        match self.0 {
            Half::Remote(kernel) => Some(kernel.release()),
            other => {
                Self(other).kill().await;
                None
            }
        }
    }

    /// Kills the kernel and all that it started. `false` if it is in a sandbox that does not obey, and must be ended
    /// itself.
    pub(crate) async fn kill(self) -> bool {
        match self.0 {
            Half::Local(kernel) => {
                kernel.kill().await;
                true
            }
            Half::Relayed(kernel) => kernel.kill().await,
            Half::Remote(kernel) => {
                kernel.kill().await;
                true
            }
        }
    }
}
