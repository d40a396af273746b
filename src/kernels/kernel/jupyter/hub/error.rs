//! Errors of a JupyterHub, with hints.

use super::super::{AccessError, Error};

/// Why there is no server of a JupyterHub to run kernels.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    /// The Hub cannot be connected to.
    #[error("connect to the JupyterHub at `{hub}`: {reason}\nhint: {}", super::super::error::advice(.reason))]
    Unreachable {
        hub: String,
        /// Why.
        reason: String,
    },
    /// Something else answers at its URL.
    #[error(
        "ask the JupyterHub at `{hub}`: there is none; what is there answers {status}\n\
         hint: give the URL of the Hub with its base path, as in `https://hub.example.org/`"
    )]
    NotHub { hub: String, status: String },
    /// It does not know our token.
    #[error(
        "ask the JupyterHub at `{hub}` whose token it has: it answers {status}\n\
         hint: the token is wrong or has expired; make one on the Hub's page `/hub/token`, and name the variable that holds \
         it by `--kernel-hub-token-env`"
    )]
    Token { hub: String, status: http::StatusCode },
    /// The token is a service's, which has no server of its own.
    #[error(
        "find a server at the JupyterHub at `{hub}`: its token is of the service `{service}`\n\
         hint: name the user whose server it is by `--kernel-hub-user`"
    )]
    Service { hub: String, service: String },
    /// The token may not do this.
    #[error(
        "{what} at the JupyterHub at `{hub}`: it answers {status}: {message}\n\
         hint: the token needs the scope `{scope}`"
    )]
    Scope { what: &'static str, hub: String, status: http::StatusCode, message: String, scope: &'static str },
    /// It has no such user.
    #[error("find the server of `{user}`: the JupyterHub at `{hub}` shows its token no such user")]
    NoUser { hub: String, user: String },
    /// It refuses a request.
    #[error("{what}: the JupyterHub at `{hub}` answers {status}: {message}")]
    Refused { what: &'static str, hub: String, status: http::StatusCode, message: String },
    /// The server has not started.
    #[error("start the Jupyter server: the JupyterHub at `{hub}` says: {message}")]
    Failed {
        hub: String,
        /// The Hub's words.
        message: String,
    },
    /// The server has not started in time.
    #[error("start the Jupyter server: the JupyterHub at `{hub}` has not done it after {seconds} seconds")]
    StartTimeout { hub: String, seconds: u64 },
    /// The server is said to be ready, and does not answer.
    #[error(
        "use the Jupyter server at `{server}`: the JupyterHub at `{hub}` says that it is ready, but after {seconds} seconds there is \
         still no use of it: {answer}\nhint: see the server's log, or stop it on the Hub's page `/hub/home`; the next cell starts \
         it again"
    )]
    Silent {
        hub: String,
        server: String,
        seconds: u64,
        /// The answer that comes in its place.
        answer: String,
    },
    /// The Hub names a server elsewhere, where its token would go.
    #[error(
        "use the server of the JupyterHub at `{hub}`: it is at `{url}`, and the token goes only to the Hub's own host and port, and to its subdomains"
    )]
    Elsewhere { hub: String, url: String },
    /// The server is there and refuses us.
    #[error(transparent)]
    Server(Error),
    /// There is no client for the server.
    #[error(transparent)]
    Access(AccessError),
}
