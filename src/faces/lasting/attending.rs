//! The connection of a session's process to its client.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio_util::sync::CancellationToken;

/// The connection to a client. Before the first one it has not ended.
#[derive(Default)]
pub(super) struct AttendingClient {
    /// Cancelled when its end was noticed.
    closed: CancellationToken,
    /// `None` if the client is not served any more.
    socket: Option<OwnedFd>,
}

impl AttendingClient {
    pub(super) fn new(closed: CancellationToken, socket: OwnedFd) -> Self {
        Self { closed, socket: Some(socket) }
    }

    /// The client is not served any more. Only now its side can see that.
    pub(super) fn end(&mut self) {
        self.closed.cancel();
        self.socket = None;
    }

    /// Whether the client has gone, also if nobody has noticed it yet.
    pub(super) fn has_ended(&self) -> bool {
        #[cfg(target_os = "linux")]
        let asked = PollFlags::HUP | PollFlags::RDHUP;
        #[cfg(not(target_os = "linux"))]
        let asked = PollFlags::HUP;
        let is_hung_up = self.socket.as_ref().is_some_and(|socket| {
            let mut polled = [PollFd::new(socket, asked)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(asked | PollFlags::ERR)
        });
        self.closed.is_cancelled() || is_hung_up
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_end_of_a_client_shows_before_anybody_reads() {
        assert!(!AttendingClient::default().has_ended());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection = AttendingClient::new(CancellationToken::new(), ours.into());
        assert!(!connection.has_ended());
        drop(theirs);
        assert!(connection.has_ended());
    }
}
