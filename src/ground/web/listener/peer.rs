//! Which user a connection on this machine comes from.

use std::net::SocketAddr;

use tokio::net::TcpStream;

/// Whose program has connected. Others leave before the user does, and are not refused for it: a browser may run as
/// another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListenerPeer {
    /// Another user's, or one that is gone.
    Other,
    /// The user's own, root's (as forwarded by sshd), or unknown, as outside of Linux.
    User,
}

impl ListenerPeer {
    /// The peer of a connection, of which this is our end.
    pub(super) fn of(stream: &TcpStream) -> Self {
        match (stream.local_addr(), stream.peer_addr()) {
            (Ok(ours), Ok(theirs)) if may_be_of_user(theirs, ours) => Self::User,
            _ => Self::Other,
        }
    }
}

#[cfg(target_os = "linux")]
fn may_be_of_user(from: SocketAddr, to: SocketAddr) -> bool {
    match linux::owner(from, to) {
        Ok(owner) => owner.is_some_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw()),
        Err(error) => {
            // Some systems that run Linux programs have no such question. Then all are the same.
            tracing::debug!(%error, "the system does not say which user has connected");
            true
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn may_be_of_user(_from: SocketAddr, _to: SocketAddr) -> bool {
    true
}

#[cfg(target_os = "linux")]
mod linux {
    //! One question about one socket, by sock_diag(7). `/proc/net/tcp` lists all of them, and any user can make it long.

    use std::io;
    use std::net::{IpAddr, SocketAddr};

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    };

    /// `SOCK_DIAG_BY_FAMILY`, of the question and its answer.
    const BY_FAMILY: u16 = 20;
    /// `NLM_F_REQUEST`.
    const REQUEST: u16 = 1;
    /// The length of `struct nlmsghdr` and `struct inet_diag_req_v2`.
    const QUESTION_BYTES: u32 = 72;
    /// `TCP_LISTEN`: it is found if there is no connection.
    const LISTENING: u8 = 10;
    /// `idiag_state`, `idiag_uid` and `idiag_inode` in the answer.
    const STATE: usize = 17;
    const USER: usize = 80;
    const INODE: usize = 84;

    /// The user who has the socket at `from` that is connected to `to`; `None` if no process has it any more.
    pub(super) fn owner(from: SocketAddr, to: SocketAddr) -> io::Result<Option<u32>> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = socket_with(kind.0, kind.1, kind.2, Some(netlink::SOCK_DIAG))?;
        send(&socket, &question(from, to), SendFlags::empty())?;
        let mut answer = [0; 512];
        let (length, _) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
        let answer = &answer[..length];
        let number = |at: usize| answer.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok();
        let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
        if kind == Some(BY_FAMILY)
            && let (Some(&state), Some(user), Some(inode)) = (answer.get(STATE), number(USER), number(INODE))
        {
            // Without an inode it is closed, and its user is said to be root.
            return Ok((state != LISTENING && inode != 0).then_some(user));
        }
        // An error: its number, negated, follows the header.
        match number(16).map(|code| io::Error::from_raw_os_error(code.wrapping_neg().cast_signed())) {
            Some(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Some(error) => Err(error),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let mut bytes = QUESTION_BYTES.to_ne_bytes().to_vec();
        bytes.extend([BY_FAMILY, REQUEST].map(u16::to_ne_bytes).as_flattened());
        // A number of the question and a sender, which are of no use here.
        bytes.extend([0; 8]);
        // The family, TCP, no extensions, all states.
        bytes.extend([family.as_raw().to_le_bytes()[0], 6, 0, 0]);
        bytes.extend(u32::MAX.to_ne_bytes());
        bytes.extend([from.port(), to.port()].map(u16::to_be_bytes).as_flattened());
        for address in [from.ip(), to.ip()] {
            match address {
                IpAddr::V4(address) => bytes.extend([&address.octets()[..], &[0; 12]].concat()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        // Any interface, and no cookie.
        bytes.extend([0, u32::MAX, u32::MAX].map(u32::to_ne_bytes).as_flattened());
        bytes
    }

    #[cfg(test)]
    mod tests {
        use std::net::{TcpListener, TcpStream};

        use super::owner;

        #[track_caller]
        fn check_owner(address: &str) {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { return };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (ours, theirs) = listener.accept().unwrap();
            let to = ours.local_addr().unwrap();
            assert_eq!(owner(theirs, to).unwrap(), Some(rustix::process::geteuid().as_raw()));
            assert_eq!(owner(to, to).unwrap(), None, "a listener is no peer");
            drop(client);
            assert_eq!(owner(theirs, to).unwrap(), None, "a closed socket is nobody's");
            drop((ours, listener));
            assert_eq!(owner(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()).unwrap(), None);
        }

        #[test]
        fn the_owner_of_a_connection_is_found() {
            check_owner("127.0.0.1:0");
            check_owner("[::1]:0");
        }
    }
}
