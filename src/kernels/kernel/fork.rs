//! A fork that a process of ours makes, and the host greets: of a kernel for a branch or a template, of a template for a kernel.
//!
//! The host makes both ends of the fork's socket and pipe and passes the process one of each, so that no descriptor comes
//! from there. Which process the fork is says the system: it adds the id of the sender to what comes over the fork's socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use rustix::process::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout_at};

use super::branch_error::{BranchError, RenewOrigin};
use super::end_report::EndReport;
use super::endpoints::KernelEndpoints;
use super::frames::framed;
use super::holder::{AdoptedKernel, KernelHolder};
use super::message::BranchReply;
use super::own::OwnKernel;
use super::{Error, KernelEvent, KernelLimits, KernelMessage, MessageContent};
use crate::ground::process::{AdoptedLeader, HeldLimits};
use crate::ground::text::visible::line;
use crate::kernels::pod::PodControl;
use crate::kernels::sandbox::BranchInside;

/// The number of reasons and notes that are taken, and the length that one may have, in bytes.
const SENTENCES: usize = 20;
const SENTENCE_BYTES: usize = 400;

/// A request to fork.
pub(super) struct ForkRequest {
    pub(super) kind: &'static str,
    /// An object; the mark is added.
    pub(super) content: Value,
    /// The mark of the fork's output.
    pub(super) mark: String,
    /// The pipe by which its parent reports its end, if that does.
    pub(super) report: Option<OwnedFd>,
    /// The tokens of the origin, which the fork knows.
    pub(super) renew_origin: Option<RenewOrigin>,
    /// The time until the fork runs.
    pub(super) timeout: Duration,
    /// Whether the origin shows which process it is.
    pub(super) shows_origin: bool,
}

/// A fork that has been greeted.
pub(super) struct KernelFork {
    process: ForkProcess,
    /// The differences between it and its origin.
    pub(super) notes: Vec<String>,
    /// The process of the origin, if it was to be shown.
    pub(super) origin: Option<u32>,
    socket: UnixStream,
    pipe: pipe::Receiver,
    mark: String,
    deadline: Instant,
}

/// The process of a fork.
enum ForkProcess {
    Here(AdoptedLeader),
    /// The pod has greeted it.
    InPod(PodControl),
}

impl ForkProcess {
    fn holder(self, report: Option<EndReport>, inside: Option<BranchInside>) -> KernelHolder {
        match self {
            Self::Here(leader) => {
                KernelHolder::Adopted(Box::new(AdoptedKernel { leader, report, _inside: inside }))
            }
            Self::InPod(control) => KernelHolder::Pod(Box::new(control)),
        }
    }
}

/// A fork that somebody else converses with.
pub(super) struct SilentFork {
    pub(super) holder: KernelHolder,
    pub(super) socket: UnixStream,
    pub(super) pipe: pipe::Receiver,
}

/// Our ends of a fork's connection.
struct ForkEnds {
    socket: UnixStream,
    pipe: pipe::Receiver,
    /// The control of the fork, if it is in a pod.
    in_pod: Option<PodControl>,
}

impl ForkRequest {
    /// Has the origin fork. What else it says meanwhile is put to the `others`.
    pub(super) async fn send(
        mut self,
        origin: &mut OwnKernel,
        others: &mut Vec<Result<KernelEvent, Error>>,
    ) -> Result<KernelFork, BranchError> {
        let deadline = Instant::now() + self.timeout;
        let id = uuid::Uuid::new_v4().simple().to_string();
        self.content["mark"] = json!(self.mark);
        let asked = timeout_at(deadline, self.ask(origin, &id)).await;
        let mut ends = asked.map_err(|_| BranchError::Unanswered)?.map_err(BranchError::Kernel)?;
        // The origin has it.
        drop(self.report);
        let replied = timeout_at(deadline, reply(origin, &id, others)).await;
        let notes = replied.unwrap_or(Err(BranchError::Unanswered)).and_then(notes_of);
        if !matches!(notes, Err(BranchError::Refused(_))) {
            // It waits for this after a fork, whatever has become of that.
            let token = self.renew_origin.map(|renew| renew());
            origin.request("renewed", &id, &json!({ "token": token })).map_err(BranchError::Kernel)?;
        }
        let notes = notes?;
        let greeted = timeout_at(deadline, ends.greet(self.shows_origin)).await;
        let (process, origin) =
            greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
                tracing::debug!(%error, "a fork is not what it should be");
                BranchError::Unanswered
            })?;
        let ForkEnds { socket, pipe, .. } = ends;
        Ok(KernelFork { process, notes, origin, socket, pipe, mark: self.mark, deadline })
    }

    /// Sends it, and returns our ends of the fork's connection.
    async fn ask(&self, origin: &mut OwnKernel, id: &str) -> Result<ForkEnds, Error> {
        let KernelEndpoints { socket, pipe, their_socket, their_pipe } =
            KernelEndpoints::open().map_err(Error::Files)?;
        if let Some(control) = origin.in_pod() {
            let message = framed(self.kind, id, &self.content)?;
            let fork = control.fork(&message, self.shows_origin, their_socket, their_pipe);
            return Ok(ForkEnds { socket, pipe, in_pod: Some(fork.map_err(Error::Files)?) });
        }
        sockopt::set_socket_passcred(&socket, true).map_err(|error| Error::Files(error.into()))?;
        let mut descriptors = vec![their_socket.as_fd(), their_pipe.as_fd()];
        descriptors.extend(self.report.as_ref().map(OwnedFd::as_fd));
        origin.request_with(self.kind, id, &self.content, &descriptors).await?;
        Ok(ForkEnds { socket, pipe, in_pod: None })
    }
}

impl ForkEnds {
    /// Waits until it is known which process the fork is, and the one that it is a fork of, if that is shown.
    async fn greet(&mut self, shows_origin: bool) -> io::Result<(ForkProcess, Option<u32>)> {
        if let Some(mut control) = self.in_pod.take() {
            if !control.forked().await {
                return Err(io::ErrorKind::NotFound.into());
            }
            let origin = control.origin();
            return Ok((ForkProcess::InPod(control), origin));
        }
        let origin = if shows_origin { Some(sender(&self.socket).await?) } else { None };
        let leader = greet(&mut self.socket).await?.guarded();
        let origin = origin.map(|origin| origin.as_raw_nonzero().get().unsigned_abs());
        Ok((ForkProcess::Here(leader), origin))
    }
}

impl KernelFork {
    /// Leaves the conversation to somebody else.
    pub(super) fn left_alone(self, report: EndReport) -> SilentFork {
        let Self { process, socket, pipe, .. } = self;
        SilentFork { holder: process.holder(Some(report), None), socket, pipe }
    }

    /// The host's side of the kernel that the fork is, once it is ready. Its parent may report its end, and it may have a place
    /// `inside` a sandbox.
    pub(super) async fn welcomed(
        self,
        report: Option<EndReport>,
        inside: Option<BranchInside>,
        limits: KernelLimits,
        held: Arc<HeldLimits>,
    ) -> Result<OwnKernel, BranchError> {
        let Self { process, socket, pipe, mark, deadline, .. } = self;
        let holder = process.holder(report, inside);
        let mut kernel = OwnKernel::new(holder, limits, held, &mark, socket, pipe);
        let welcomed = timeout_at(deadline, kernel.welcomed()).await;
        welcomed.map_err(|_| BranchError::Unanswered)?.map_err(BranchError::Kernel)?;
        Ok(kernel)
    }
}

/// Waits for the kernel's answer; what else comes is put to the `others`.
async fn reply(
    origin: &mut OwnKernel,
    id: &str,
    others: &mut Vec<Result<KernelEvent, Error>>,
) -> Result<BranchReply, BranchError> {
    loop {
        match origin.next().await {
            Ok(KernelEvent::Message(KernelMessage {
                content: MessageContent::BranchReply(reply),
                parent: Some(parent),
                ..
            })) if parent == id => return Ok(reply),
            Ok(event @ (KernelEvent::Message(_) | KernelEvent::Torn)) => others.push(Ok(event)),
            ended => {
                others.push(ended);
                return Err(BranchError::Unanswered);
            }
        }
    }
}

/// Finds out which process is at the other end. It says so twice: that it is still there the second time proves that the
/// process we have taken in between is the one that has spoken, and none that has got its id since.
pub(super) async fn greet(socket: &mut UnixStream) -> io::Result<AdoptedLeader> {
    let speaker = sender(socket).await?;
    let leader = AdoptedLeader::open(speaker)?;
    socket.write_all(b"1").await?;
    let is_same = sender(socket).await? == speaker && !leader.has_ended();
    // Signals go to its group: it must be its own.
    let leads = rustix::process::getpgid(Some(speaker))? == speaker;
    sockopt::set_socket_passcred(&*socket, false)?;
    if is_same && leads { Ok(leader) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The process that has sent the next byte.
pub(super) async fn sender(socket: &UnixStream) -> io::Result<Pid> {
    let receive = || {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut byte)];
        let received = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Descriptors that come with it are closed.
        control
            .drain()
            .find_map(|message| match message {
                RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
                _ => None,
            })
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    socket.async_io(Interest::READABLE, receive).await
}

/// The notes of an answer, or the reasons why there is no branch.
fn notes_of(reply: BranchReply) -> Result<Vec<String>, BranchError> {
    let sentences = |texts: Vec<String>| -> Vec<String> {
        let short = |text: &String| line(&text[..text.floor_char_boundary(SENTENCE_BYTES)]);
        texts.iter().take(SENTENCES).map(short).collect()
    };
    if reply.refusals.is_empty() {
        Ok(sentences(reply.notes))
    } else {
        Err(BranchError::Refused(sentences(reply.refusals)))
    }
}
