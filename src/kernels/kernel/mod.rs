//! A conversation with one kernel: start it, run code in it, interrupt it, kill it.
//!
//! It is a process of our own, beside us or in a sandbox, or an ipykernel that a Jupyter server runs. Both
//! send the message contents of the [Jupyter messaging
//! protocol](https://jupyter-client.readthedocs.io/en/stable/messaging.html). Queues, time limits and tools
//! are not known here: they belong to the session.
//!
//! Reasons: `docs/decisions/kernel.md`.

/// Python modules by name, from the files of these names in the same directory.
macro_rules! python_modules {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!($name, ".py")))),*] };
}

mod branch;
mod branch_error;
mod death;
mod directory;
#[cfg(target_os = "linux")]
mod end_report;
mod endpoints;
mod fold;
#[cfg(target_os = "linux")]
mod fork;
mod frames;
mod gateway;
mod holder;
mod inquiry;
#[cfg(target_os = "linux")]
mod inside_pod;
mod insight;
pub(crate) mod jupyter;
mod launch;
mod limits;
mod message;
mod output;
mod own;
mod pod_source;
mod remote;
mod template;
mod terminal;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

pub(crate) use self::branch::{BranchOrder, BranchTools, PlaceMove, RunningBranch};
pub(crate) use self::branch_error::{BranchError, RenewOrigin};
pub(crate) use self::death::KernelDeath;
pub(crate) use self::directory::private_directory;
pub(crate) use self::fold::{
    AttachmentId, CellFold, FileRole, LostOutput, MessageEffect, PlotKind, SettledText, ShownFile,
    ShownImage, Transcript, plot,
};
pub use self::gateway::{exec as sandbox_exec, run as sandbox_gateway};
pub(crate) use self::inquiry::CodeInquiry;
#[cfg(target_os = "linux")]
pub use self::inside_pod::PodSettings;
#[cfg(target_os = "linux")]
pub(crate) use self::inside_pod::run as run_pod;
pub(crate) use self::insight::{CodeInsight, KernelEffort};
pub(crate) use self::launch::{KernelLaunch, ShellCommands};
pub(crate) use self::limits::KernelLimits;
pub(crate) use self::message::{
    KernelMessage, MessageContent, MimeBundle, PythonError, RateLimit, ShownOutput,
};
#[cfg(feature = "kubernetes")]
pub(crate) use self::pod_source::{PodClaims, PodPool, PodRoute};
pub(crate) use self::pod_source::{PodRest, PodSource, PodSourceError, RestingPod, TakenPod};
pub(crate) use self::template::TemplateProcess;
pub(crate) use self::terminal::{Terminal, plain};

pub(crate) use self::remote::{CallHandler, RemoteLaunch};
/// The limits of the session that a kernel is of, which `KernelLaunch` names.
pub use crate::ground::process::SessionLimits;
pub(crate) use crate::ground::process::{
    ByteSize, DiskPlaces, HeldLimits, LimitUse, LimitsError, memory_of_forks, most_memory_of_forks,
};

use self::own::OwnKernel;
use self::remote::RemoteKernel;
use crate::kernels::pod::{PodLink, PodMeter};
use crate::kernels::sandbox::Sandbox;

/// The modules for every kernel; [`launch`] and [`remote`] have further ones.
#[rustfmt::skip]
const SHARED_MODULES: [(&str, &str); 23] = python_modules![
    "ipybox_bindings", "ipybox_check", "ipybox_commands", "ipybox_files", "ipybox_frames", "ipybox_hints",
    "ipybox_input", "ipybox_libraries", "ipybox_limits", "ipybox_loading", "ipybox_messages",
    "ipybox_missing", "ipybox_generated", "ipybox_plan",
    "ipybox_processes", "ipybox_scripts", "ipybox_shell", "ipybox_sources", "ipybox_tables",
    "ipybox_threads", "ipybox_tracebacks", "ipybox_viewing", "ipybox_views",
];

/// Code to run.
#[derive(Debug)]
pub(crate) struct ExecuteRequest {
    pub(crate) code: String,
    /// Whether IPython's history has it, and counts it.
    pub(crate) store_history: bool,
    /// Whether objects that a client can show as more than text come with their views.
    pub(crate) has_views: bool,
}

impl ExecuteRequest {
    /// The code without a byte order mark, which Python leaves out in files, too.
    fn code(&self) -> &str {
        self.code.strip_prefix('\u{feff}').unwrap_or(&self.code)
    }
}

/// Why a kernel could not be started or communicated with.
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
    /// The process ended before the connection was ready.
    #[error("start the IPython kernel: it ended ({0}){causes}", causes = line_of(&.0.causes()))]
    DiedStarting(KernelDeath),
    /// The process has ended.
    #[error("run code in the IPython kernel: it has ended with {0}")]
    Ended(KernelDeath),
    /// The kernel was not ready in time.
    #[error("start the IPython kernel: it was not ready after {} seconds", .0.as_secs_f64())]
    StartTimeout(Duration),
    /// The sockets of the kernel failed.
    #[error("speak to the kernel")]
    Connection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The Jupyter server refused or failed a request.
    #[error(transparent)]
    Server(#[from] jupyter::Error),
    /// There is no server at a JupyterHub.
    #[error(transparent)]
    Hub(#[from] jupyter::HubError),
    /// It cannot be reached at present. It is not known to have ended.
    #[error("run code in the remote kernel: the connection to it is broken, and not back yet ({0})")]
    Disconnected(String),
    /// It runs another language.
    #[error(
        "use the kernel `{implementation}`: it runs {language}, not Python\n\
         hint: name the kernel spec of an ipykernel by `--kernel-name`"
    )]
    NotPython {
        /// Its implementation.
        implementation: String,
        /// Its language.
        language: String,
    },
    /// It cannot be adapted.
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

/// The next event of a kernel.
pub(crate) enum KernelEvent {
    /// A message arrived.
    Message(KernelMessage),
    /// A malformed message arrived: an interrupt may have torn it.
    Torn,
    /// The connection to it has been broken for a while. It may come back.
    Disconnected(String),
    /// Its process ended.
    Died(KernelDeath),
}

/// The place where a kernel of our own starts.
#[derive(Clone, Copy)]
pub(crate) enum KernelGround<'a> {
    /// Beside us.
    Beside,
    /// In a sandbox.
    Sandbox(&'a Sandbox),
    /// In a pod.
    Pod(&'a PodLink),
}

/// A running kernel. Dropping it kills it and all that it started.
pub(crate) enum Kernel {
    /// Beside us, in a sandbox or in a pod.
    Own(Box<OwnKernel>),
    /// A kernel that a Jupyter server runs.
    Remote(Box<RemoteKernel>),
}

impl Kernel {
    /// Starts a kernel of our own on its `ground`, and waits until it runs code.
    pub(crate) async fn start(launch: &KernelLaunch, ground: KernelGround<'_>) -> Result<Self, Error> {
        Ok(Self::Own(Box::new(OwnKernel::start(launch, ground).await?)))
    }

    /// Has a Jupyter server start a kernel, or restart the earlier one.
    pub(crate) async fn start_remote(
        launch: &mut RemoteLaunch,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Self, Error> {
        Ok(Self::Remote(Box::new(RemoteKernel::start(launch, report).await?)))
    }

    /// Makes newly installed or generated packages importable; the package of the server `changed` was
    /// generated again. Returns other messages that arrived meanwhile.
    ///
    /// # Errors
    /// For instance the kernel has ended; [`next`](Self::next) reports it too.
    pub(crate) async fn refresh_imports(
        &mut self,
        changed: Option<&str>,
    ) -> Result<Vec<KernelMessage>, Error> {
        let package = changed.map(|name| format!("mcptools.{name}"));
        match self {
            Self::Own(kernel) => {
                kernel.request("refresh_imports", "", &json!({ "package": package })).map(|()| Vec::new())
            }
            Self::Remote(_) => {
                // A JSON string literal is also a Python one.
                let package = package.map(|package| json!(package).to_string()).unwrap_or_default();
                self.run(format!("__import__('sys').modules['ipybox_shell'].refresh_imports({package})"))
                    .await
            }
        }
    }

    /// Has a kernel of our own save its variables in the background, by this number.
    ///
    /// # Errors
    /// As for [`refresh_imports`](Self::refresh_imports).
    pub(crate) fn save_variables(&mut self, number: u64) -> Result<(), Error> {
        match self {
            Self::Own(kernel) => kernel.request("checkpoint", "", &json!({ "number": number })),
            Self::Remote(_) => Ok(()),
        }
    }

    /// Runs code of our own to its end and returns other messages that arrived meanwhile.
    async fn run(&mut self, code: String) -> Result<Vec<KernelMessage>, Error> {
        let request = ExecuteRequest { code, store_history: false, has_views: false };
        let mut fold = CellFold::new(self.execute(&request).await?);
        let mut others = Vec::new();
        while !fold.is_complete() {
            match self.next().await? {
                KernelEvent::Message(message) if fold.is_parent_of(&message) => {
                    drop(fold.take(message.content))
                }
                KernelEvent::Message(message) => others.push(message),
                KernelEvent::Torn => {}
                KernelEvent::Disconnected(why) => return Err(Error::Disconnected(why)),
                KernelEvent::Died(death) => return Err(Error::Ended(death)),
            }
        }
        Ok(others)
    }

    /// Has a state that sleeps take the place of its origin.
    ///
    /// # Errors
    /// It has ended meanwhile, or does not answer.
    pub(crate) async fn awaken(&mut self) -> Result<(), Error> {
        match self {
            Self::Own(kernel) => kernel.awaken().await,
            Self::Remote(_) => Ok(()),
        }
    }

    /// Has its code call tools by this token from now on.
    ///
    /// # Errors
    /// As for [`refresh_imports`](Self::refresh_imports).
    pub(crate) fn renew_token(&mut self, token: &str) -> Result<(), Error> {
        match self {
            Self::Own(kernel) => kernel.request("renewed", "", &json!({ "token": token })),
            Self::Remote(_) => Ok(()),
        }
    }

    /// Its process, if it is a branch.
    pub(crate) fn branch_process(&self) -> Option<u32> {
        match self {
            Self::Own(kernel) => kernel.process(),
            Self::Remote(_) => None,
        }
    }

    /// Measures the memory of its forks, if it is in a pod.
    pub(crate) fn meter_in_pod(&self) -> Option<PodMeter> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Own(kernel) => kernel.in_pod().map(|control| control.meter()),
            _ => None,
        }
    }

    /// Sends code to be run and returns the id that its messages will carry.
    pub(crate) async fn execute(&mut self, request: &ExecuteRequest) -> Result<String, Error> {
        match self {
            Self::Own(kernel) => kernel.execute(request),
            Self::Remote(kernel) => kernel.execute(request).await,
        }
    }

    /// Whether all messages of a kernel that has ended have been read: if none says that the code begins
    /// ([`MessageContent::ExecuteInput`]), the code has not run. `false` for remote kernels, whose messages may get lost.
    pub(crate) fn has_said_all(&self) -> bool {
        match self {
            Self::Own(kernel) => kernel.has_said_all(),
            Self::Remote(_) => false,
        }
    }

    /// The next message or the kernel's end. Cancellation safe.
    ///
    /// Call it between cells too: unread messages block the kernel.
    pub(crate) async fn next(&mut self) -> Result<KernelEvent, Error> {
        match self {
            Self::Own(kernel) => kernel.next().await,
            Self::Remote(kernel) => kernel.next().await,
        }
    }

    /// Asks for a KeyboardInterrupt in the running code, and for an
    /// [`InterruptReply`](MessageContent::InterruptReply) once it can no longer hit other code: the gentlest
    /// interrupt.
    pub(crate) fn request_interrupt(&mut self) -> Result<(), Error> {
        match self {
            Self::Own(kernel) => {
                kernel.interrupt();
                Ok(())
            }
            Self::Remote(kernel) => kernel.request_interrupt(),
        }
    }

    /// Interrupts the kernel and all that it started by a signal, or another second method if there is one.
    pub(crate) fn signal_interrupt(&mut self) {
        match self {
            Self::Own(kernel) => kernel.interrupt(),
            Self::Remote(kernel) => kernel.interrupt_directly(),
        }
    }

    /// Asks a kernel of our own to end as Python does, in this time. Returns whether it was asked: a Jupyter server asks its
    /// kernels itself.
    pub(crate) fn request_exit(&mut self, time: Duration) -> bool {
        match self {
            Self::Own(kernel) => {
                kernel.request("shutdown_request", "", &json!({ "seconds": time.as_secs_f64() })).is_ok()
            }
            Self::Remote(_) => false,
        }
    }

    /// Whether a kernel of our own runs code, as far as has been read.
    pub(crate) fn is_running(&self) -> bool {
        match self {
            Self::Own(kernel) => kernel.is_running(),
            Self::Remote(_) => false,
        }
    }

    /// Kills the kernel and all that it started; its earlier messages can still be read.
    pub(crate) fn signal_kill(&self) {
        match self {
            Self::Own(kernel) => kernel.signal_kill(),
            Self::Remote(kernel) => kernel.end(),
        }
    }

    /// Kills the kernel and all that it started. `false` if it is in a sandbox that does not react, and must
    /// be ended itself.
    pub(crate) async fn kill(self) -> bool {
        match self {
            Self::Own(kernel) => kernel.kill().await,
            Self::Remote(kernel) => {
                kernel.kill().await;
                true
            }
        }
    }
}
