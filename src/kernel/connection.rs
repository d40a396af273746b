//! The ZeroMQ sockets of a kernel on this machine.
//!
//! Sends requests and reads messages; it does not know what they are for, nor that the kernel is a
//! child process.

use jupyter_protocol::{ConnectionInfo, JupyterMessage};
use jupyter_zmq_client::{
    ClientControlConnection, ClientIoPubConnection, ClientShellConnection, Connection as Socket, RawMessage,
    create_client_control_connection, create_client_iopub_connection,
    create_client_shell_connection_with_identity, peer_identity_for_session,
};
use zeromq::SocketRecv;

use super::Error;
use super::wire::{self, Parts};

/// A client's end of a kernel's shell, iopub and control channels.
pub(super) struct Connection {
    shell: ClientShellConnection,
    iopub: ClientIoPubConnection,
    control: ClientControlConnection,
}

impl Connection {
    /// Connects to a kernel whose sockets are bound.
    pub(super) async fn open(info: &ConnectionInfo) -> Result<Self, Error> {
        let session = uuid::Uuid::new_v4().to_string();
        let identity =
            peer_identity_for_session(&session).map_err(|source| Error::Connection(Box::new(source)))?;
        let (iopub, shell, control) = tokio::try_join!(
            create_client_iopub_connection(info, "", &session),
            create_client_shell_connection_with_identity(info, &session, identity),
            create_client_control_connection(info, &session),
        )
        .map_err(|source| Error::Connection(Box::new(source)))?;
        Ok(Self { shell, iopub, control })
    }

    /// Sends a request over the shell or the control channel.
    pub(super) async fn send(
        &mut self,
        channel: wire::Channel,
        request: JupyterMessage,
    ) -> Result<(), Error> {
        let sent = match channel {
            wire::Channel::Control => self.control.send(request).await,
            wire::Channel::Shell | wire::Channel::Iopub => self.shell.send(request).await,
        };
        sent.map_err(|source| Error::Connection(Box::new(source)))
    }

    /// The next message of any channel. Cancellation safe.
    pub(super) async fn read(&mut self) -> Result<Parts, Error> {
        tokio::select! {
            message = receive(&mut self.iopub, wire::Channel::Iopub) => message,
            message = receive(&mut self.shell, wire::Channel::Shell) => message,
            message = receive(&mut self.control, wire::Channel::Control) => message,
        }
    }
}

async fn receive<S: SocketRecv>(socket: &mut Socket<S>, channel: wire::Channel) -> Result<Parts, Error> {
    let frames = socket.socket.recv().await.map_err(|source| Error::Connection(Box::new(source)))?;
    // An interrupt can hit the kernel between two frames of a message; what it sends next is joined to the torso.
    let raw = RawMessage::from_multipart(frames, &socket.mac)
        .map_err(|source| Error::Malformed(Box::new(source)))?;
    Parts::new(channel, raw.jparts)
}
