//! Forks of kernels in a pod: the kernel gets a socket and a pipe with the session's message, and the fork is greeted here.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::net::sockopt;
use rustix::process::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

use super::super::endpoints::{KernelEndpoints, passed_on};
use super::super::fork::{greet, sender};
use super::super::holder::{AdoptedKernel, KernelHolder};
use super::hosted::HostedKernels;
use super::pumps::PumpedEndpoints;
use crate::ground::process::AdoptedLeader;
use crate::kernels::pod::{PodForkRequest, PodNotice};

/// The time that a fork may take to show which process it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(20);

/// Passes the message for a fork to a kernel, and greets the fork.
pub(super) async fn pass_fork(
    host: &Arc<HostedKernels>,
    kernel_socket: &mut OwnedWriteHalf,
    request: PodForkRequest,
) -> io::Result<()> {
    let PodForkRequest { kernel, message, shows_origin } = request;
    let message = BASE64.decode(message).map_err(io::Error::other)?;
    let KernelEndpoints { socket, pipe, their_socket, their_pipe } = KernelEndpoints::open()?;
    sockopt::set_socket_passcred(&socket, true)?;
    let sent =
        passed_on(kernel_socket.as_ref(), &message, &[their_socket.as_fd(), their_pipe.as_fd()]).await?;
    kernel_socket.write_all(message.get(sent..).unwrap_or_default()).await?;
    let host = Arc::clone(host);
    let signals = host.add(kernel);
    tokio::spawn(async move {
        let mut socket = socket;
        let greeting = tokio::time::timeout(GREETING_TIMEOUT, greeted(&mut socket, shows_origin));
        let (leader, origin) = match greeting.await {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(error)) => return host.give_up_fork(kernel, &error.to_string()),
            Err(_) => return host.give_up_fork(kernel, "it does not show itself"),
        };
        let process = leader.process();
        let origin = origin.map(|origin| origin.as_raw_nonzero().get().unsigned_abs());
        host.notify(PodNotice::Forked { kernel, process, origin });
        let adopted = AdoptedKernel { leader: leader.guarded(), report: None, _inside: None };
        let holder = KernelHolder::Adopted(Box::new(adopted));
        host.run_boxed(kernel, holder, PumpedEndpoints { socket, pipe }, signals).await;
    });
    Ok(())
}

async fn greeted(socket: &mut UnixStream, shows_origin: bool) -> io::Result<(AdoptedLeader, Option<Pid>)> {
    let origin = if shows_origin { Some(sender(socket).await?) } else { None };
    Ok((greet(socket).await?, origin))
}

impl HostedKernels {
    fn give_up_fork(&self, kernel: u64, why: &str) {
        tracing::debug!(why, "there is no fork");
        self.forget(kernel);
        self.notify(PodNotice::NotForked { kernel });
    }
}
