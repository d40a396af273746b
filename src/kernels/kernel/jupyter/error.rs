//! Errors of requests to a Jupyter server, with hints.

/// Why a request to a server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It cannot be connected to.
    #[error("connect to the Jupyter server at `{server}`: {reason}\nhint: {}", advice(.reason))]
    Unreachable {
        server: String,
        /// Why.
        reason: String,
    },
    /// It refuses our credentials.
    #[error("{what} at `{server}`: the Jupyter server answers {status}\nhint: {advice}")]
    Refused { what: &'static str, server: String, status: http::StatusCode, advice: &'static str },
    /// The server of a team gives no token for it.
    #[error("get a token for `{server}`: {reason}")]
    NoToken { server: String, reason: String },
    /// Something else answers at its URL.
    #[error(
        "{what} at `{server}`: there is no Jupyter server; what is there answers {status}\n\
         hint: give the URL of a Jupyter Server, Kernel Gateway or Enterprise Gateway with its base path, as in \
         `http://host:8888/base/`"
    )]
    NotJupyter { what: &'static str, server: String, status: String },
    /// It has no such kernel spec.
    #[error("start a kernel: the Jupyter server at `{server}` has no kernel spec `{name}`\nhint: {known}")]
    NoSuchKernelSpec { server: String, name: String, known: String },
    /// It no longer has the kernel.
    #[error(
        "the Jupyter server at `{server}` no longer has the kernel: it was shut down or culled, or the server restarted"
    )]
    KernelGone { server: String },
    /// A proxy, or the Hub, answers in its place.
    #[error(
        "the Jupyter server at `{server}` no longer runs: JupyterHub, its culler or somebody else has stopped it, or it has ended"
    )]
    ServerStopped { server: String },
    /// It has failed.
    #[error("{what} at `{server}`: the Jupyter server answers {status}: {message}")]
    Failed { what: &'static str, server: String, status: http::StatusCode, message: String },
    /// It does not know the subprotocol that was asked for.
    #[error("open the channels of a kernel with a subprotocol that the server does not know")]
    NoSubprotocol,
}

impl Error {
    /// Whether the server knows our token no more, or does not let it in.
    pub(super) fn is_of_credentials(&self) -> bool {
        let refusals = [http::StatusCode::UNAUTHORIZED, http::StatusCode::FORBIDDEN];
        matches!(self, Self::Refused { status, .. } if refusals.contains(status))
    }

    /// Whether the kernel has ended, and not only the connection to it.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::KernelGone { .. } | Self::ServerStopped { .. })
    }
}

/// The hint for a failed connection.
pub(super) fn advice(reason: &str) -> &'static str {
    if reason.contains("certificate") {
        "the server's certificate is not trusted: if it is your own, or its authority is, name it in PEM by `--kernel-gateway-ca`"
    } else if reason.contains("InvalidContentType") || reason.contains("corrupt message") {
        "the server speaks no TLS on this port: is its URL one of `http://`?"
    } else {
        "is the server running, and the URL's host and port right? A tunnel to it may have ended"
    }
}
