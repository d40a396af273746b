//! The ZeroMQ sockets of a kernel on this machine.
//!
//! Sends requests and reads messages; it does not know what they are for, nor that the kernel is a
//! child process.

use jupyter_protocol::{ConnectionInfo, ExecuteRequest, InterruptRequest, JupyterMessage};
use jupyter_zmq_client::{
    ClientControlConnection, ClientIoPubConnection, ClientShellConnection, Connection as Channel, RawMessage,
    create_client_control_connection, create_client_iopub_connection,
    create_client_shell_connection_with_identity, peer_identity_for_session,
};
use zeromq::SocketRecv;

use super::Error;
use super::message::{Message, Written};

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

    /// Asks for `code` to be run and returns the id that its messages will carry.
    pub(super) async fn send_execute(&mut self, code: String) -> Result<String, Error> {
        let request = ExecuteRequest {
            code,
            silent: false,
            store_history: true,
            user_expressions: None,
            allow_stdin: false,
            stop_on_error: false,
        };
        let message = JupyterMessage::from(request);
        let id = message.header.msg_id.clone();
        self.shell.send(message).await.map_err(|source| Error::Connection(Box::new(source)))?;
        Ok(id)
    }

    /// Asks for a KeyboardInterrupt in the running code.
    pub(super) async fn send_interrupt(&mut self) -> Result<(), Error> {
        let message = JupyterMessage::from(InterruptRequest {});
        self.control.send(message).await.map_err(|source| Error::Connection(Box::new(source)))
    }

    /// The next message of any channel, and how much its request had written by then. Cancellation safe.
    pub(super) async fn read(&mut self) -> Result<(Message, Option<Written>), Error> {
        tokio::select! {
            message = receive(&mut self.iopub) => message,
            message = receive(&mut self.shell) => message,
            message = receive(&mut self.control) => message,
        }
    }
}

async fn receive<S: SocketRecv>(channel: &mut Channel<S>) -> Result<(Message, Option<Written>), Error> {
    let frames = channel.socket.recv().await.map_err(|source| Error::Connection(Box::new(source)))?;
    // An interrupt can hit the kernel between two frames of a message; what it sends next is joined to the torso.
    let raw = RawMessage::from_multipart(frames, &channel.mac)
        .map_err(|source| Error::Malformed(Box::new(source)))?;
    match raw.jparts.as_slice() {
        [header, parent, _metadata, content, ..] => Message::decode(header, parent, content),
        _ => unreachable!("`from_multipart` refuses messages of fewer than four parts"),
    }
}
