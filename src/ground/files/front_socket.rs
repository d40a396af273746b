//! The socket of the server of a team, at which the session of one of its users asks.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The socket of the server, and the session that asks there. `Debug` shows no token.
#[derive(Clone)]
pub(crate) struct FrontSocket {
    pub(crate) path: PathBuf,
    /// The session's token, which says whose it is.
    pub(crate) token: String,
    /// The session's id.
    pub(crate) session: String,
    /// The page of the server to which browsers come back from authorization servers.
    pub(crate) callback: String,
    /// Those who decide about what is published for everybody; `None` if nothing is.
    pub(crate) publishers: Option<FrontPublishers>,
}

/// The server of a team, as it describes itself to the processes of its users.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrontServer {
    /// Its socket.
    socket: PathBuf,
    /// Its page to which browsers come back from authorization servers.
    callback: String,
    /// Whether people decide there.
    pub(crate) approvals: bool,
    /// Those who decide there about what is published for everybody.
    #[serde(default)]
    publishers: Option<FrontPublishers>,
}

impl FrontServer {
    /// Its socket, for the session with this id and token.
    pub(crate) fn for_session(&self, session: String, token: &str) -> FrontSocket {
        let Self { socket, callback, publishers, .. } = self.clone();
        FrontSocket { path: socket, token: token.to_owned(), session, callback, publishers }
    }
}

/// The approvers of what users publish on the server of a team.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrontPublishers {
    /// As a rule of a policy names approvers.
    pub(crate) names: Vec<String>,
    /// Whether users may decide about what they publish themselves.
    pub(crate) includes_user: bool,
}

/// A session's purpose of a connection.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConnectionUse {
    /// Questions to approvers whom rules name.
    Approvers,
    /// The user's own page: the session speaks as to any page.
    OwnPage,
    /// A token of the user for an MCP server.
    Upstream,
    /// The answer that a browser brings.
    Login,
    /// Tokens of the user at a JupyterHub, which end with the connection.
    Hub,
    /// A sandbox of a cluster, which is the session's as long as the connection is open.
    #[cfg(feature = "kubernetes")]
    Sandbox,
}

#[derive(Serialize)]
struct FrontGreeting<'a> {
    want: ConnectionUse,
    token: &'a str,
    session: &'a str,
}

impl FrontSocket {
    /// Connects, and says whose session this is.
    pub(crate) async fn connect(
        &self,
        want: ConnectionUse,
    ) -> io::Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf)> {
        let stream = UnixStream::connect(&self.path).await?;
        // Where users have ids of their own, no program of this one can listen there.
        let peer = stream.peer_cred()?.uid();
        if peer != 0 && peer != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
        }
        let (input, mut output) = stream.into_split();
        let mut greeting =
            serde_json::to_vec(&FrontGreeting { want, token: &self.token, session: &self.session })?;
        greeting.push(b'\n');
        output.write_all(&greeting).await?;
        Ok((BufReader::new(input), output))
    }
}

impl fmt::Debug for FrontSocket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FrontSocket").field("path", &self.path).finish_non_exhaustive()
    }
}
