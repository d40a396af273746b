//! Addresses of this machine on which nothing listens.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpSocket;

/// The first port that tests choose, and how many there are: the system itself gives those from 32768 on, to listeners and
/// to connections of all programs.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// A port for a program that is told where to listen. Neither the system nor this process gives it to anybody else.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Another process of tests begins elsewhere.
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let number = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// An address that refuses connections: while the socket lives, nobody else can listen there.
pub(crate) fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}
