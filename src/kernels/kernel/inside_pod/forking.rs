//! Forks of kernels in a pod: the kernel gets a socket and a pipe with the session's message, and the fork is greeted here.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::net::sockopt;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedWriteHalf, pipe};

use super::super::endpoints::{KernelEndpoints, passed_on};
use super::super::fork::{greet, sender};
use super::super::holder::{AdoptedKernel, KernelHolder};
use crate::kernels::pod::PodForkRequest;

/// The time that a fork may take to show which process it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(20);

/// A fork that a kernel has been asked for, with our ends of its socket and pipe.
pub(super) struct PassedFork {
    /// Its number.
    pub(super) kernel: u64,
    pub(super) socket: UnixStream,
    pub(super) pipe: pipe::Receiver,
    shows_origin: bool,
}

/// A fork that has shown which process it is.
pub(super) struct GreetedFork {
    pub(super) holder: KernelHolder,
    pub(super) process: u32,
    /// The process that it is a fork of, if that was to be shown.
    pub(super) origin: Option<u32>,
}

impl PassedFork {
    /// Passes the message for a fork to a kernel, with the fork's ends of a socket and a pipe.
    pub(super) async fn pass(
        kernel_socket: &mut OwnedWriteHalf,
        request: PodForkRequest,
    ) -> io::Result<Self> {
        let PodForkRequest { kernel, message, shows_origin } = request;
        let message = BASE64.decode(message).map_err(io::Error::other)?;
        let KernelEndpoints { socket, pipe, their_socket, their_pipe } = KernelEndpoints::open()?;
        sockopt::set_socket_passcred(&socket, true)?;
        let sent =
            passed_on(kernel_socket.as_ref(), &message, &[their_socket.as_fd(), their_pipe.as_fd()]).await?;
        kernel_socket.write_all(message.get(sent..).unwrap_or_default()).await?;
        Ok(Self { kernel, socket, pipe, shows_origin })
    }

    /// Waits until the fork has shown which process it is.
    pub(super) async fn greet(&mut self) -> io::Result<GreetedFork> {
        let greeting = async {
            let origin = if self.shows_origin { Some(sender(&self.socket).await?) } else { None };
            let leader = greet(&mut self.socket).await?.guarded();
            let origin = origin.map(|origin| origin.as_raw_nonzero().get().unsigned_abs());
            let process = leader.process();
            let adopted = AdoptedKernel { leader, report: None, _inside: None };
            Ok(GreetedFork { holder: KernelHolder::Adopted(Box::new(adopted)), process, origin })
        };
        let greeted = tokio::time::timeout(GREETING_TIMEOUT, greeting).await;
        greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
