//! The pipes of a stdio server: lines of JSON-RPC.
//!
//! Not rmcp's: that one drops a line over its limit, and what it cannot parse, and the call waits for ever.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinHandle;

use crate::connections::mcp_client::messages::{ExpectedAnswers, IncompleteMessage, READ_BYTES, outgoing};
use crate::ground::text::Secrets;

/// Messages read ahead of rmcp: enough that reading and handling overlap.
pub(super) const READ_AHEAD: usize = 4;
/// The size of a read: a pipe's capacity on Linux.
const CHUNK_BYTES: usize = 64 * 1024;
/// The part of stdout's beginning that is kept, to show the output of a program that is no MCP server.
const OPENING_BYTES: usize = 4_000;
/// The part of it that is shown. Less than is kept: a truncated secret would not be recognised.
const OPENING_CHARS: usize = 300;

/// The pipes of a stdio server, as rmcp wants them.
pub(crate) struct ServerPipes {
    stdin: Arc<AsyncMutex<Option<ChildStdin>>>,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    reader: JoinHandle<()>,
}

/// The beginning of a server's stdout, and what is wrong with it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct StdoutOpening(Arc<Mutex<StdoutBeginning>>);

#[derive(Default)]
struct StdoutBeginning {
    bytes: Vec<u8>,
    is_endless: bool,
}

impl ServerPipes {
    pub(crate) fn new(
        stdout: ChildStdout,
        stdin: ChildStdin,
        opening: StdoutOpening,
        answers: ExpectedAnswers,
    ) -> Self {
        let (sender, messages) = mpsc::channel(READ_AHEAD);
        let reader = tokio::spawn(read(stdout, opening, answers, sender));
        Self { stdin: Arc::new(AsyncMutex::new(Some(stdin))), messages, reader }
    }
}

/// Reads until the server closes its stdout or writes an endless line, or the receiver is dropped.
async fn read(
    mut stdout: ChildStdout,
    opening: StdoutOpening,
    answers: ExpectedAnswers,
    sender: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut incoming = IncompleteMessage::default();
    while let Ok(count @ 1..) = stdout.read(&mut buffer).await {
        opening.take(&buffer[..count]);
        for piece in buffer[..count].split_inclusive(|&byte| byte == b'\n') {
            answers.settle().await;
            incoming.push(piece).await;
            if incoming.is_endless() {
                opening.is_endless();
                return;
            }
            if piece.ends_with(b"\n")
                && let Some(message) = answers.admit(incoming.take())
                && sender.send(message).await.is_err()
            {
                return;
            }
        }
    }
}

impl Transport<RoleClient> for ServerPipes {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let stdin = Arc::clone(&self.stdin);
        async move {
            let mut line = outgoing::encode(message).await?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            stdin.write_all(&line).await?;
            stdin.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.reader.abort();
        drop(self.stdin.lock().await.take());
        Ok(())
    }
}

impl Drop for ServerPipes {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl StdoutOpening {
    fn take(&self, read: &[u8]) {
        let bytes = &mut self.0.lock().bytes;
        let room = OPENING_BYTES - bytes.len();
        bytes.extend_from_slice(&read[..read.len().min(room)]);
    }

    fn is_endless(&self) {
        self.0.lock().is_endless = true;
    }

    /// The fault of it, if there is one.
    pub(crate) fn note(&self, secrets: &Secrets) -> Option<String> {
        let beginning = self.0.lock();
        if beginning.is_endless {
            return Some(format!("it wrote a message of more than {READ_BYTES} bytes"));
        }
        let text = secrets.clean(String::from_utf8_lossy(&beginning.bytes).trim());
        let is_message = text.is_empty() || text.starts_with('{') || text.starts_with('[');
        let shown: String = text.chars().take(OPENING_CHARS).collect();
        (!is_message).then(|| format!("it wrote to stdout what is not an MCP message:\n{shown}"))
    }
}
