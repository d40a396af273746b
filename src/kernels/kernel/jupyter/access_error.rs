//! Errors in the settings of a Jupyter server. No value of a header gets into them.

use std::path::PathBuf;

/// Why a server cannot be accessed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    /// The URL is invalid, or has parts that it must not have.
    #[error(
        "use `{url}` as the URL of a Jupyter server: {reason}\n\
         hint: as in `https://host:8888/` or, with a base path, `https://host/user/name/`"
    )]
    Url {
        /// The URL as given.
        url: String,
        /// The fault of the address.
        reason: String,
    },
    /// The variable that should hold the token is not set.
    #[error(
        "take the token of the Jupyter server from `{variable}`: it is not set\nhint: set it in the environment of ipybox, or in the workspace's `.env`"
    )]
    NoToken {
        /// The variable's name.
        variable: String,
    },
    /// The given name of the variable is invalid.
    #[error(
        "take the token of the Jupyter server from a variable: that is no name of one\n\
         hint: give the name of a variable that holds the token, not the token"
    )]
    NoVariable,
    /// The token cannot stand in a header.
    #[error(
        "send the token of the Jupyter server: it is empty, or has characters that no HTTP header can hold"
    )]
    Token,
    /// The text is no name of a header.
    #[error(
        "send a header to the Jupyter server: `{beginning}…` is no name of one\n\
         hint: name it, and the variable that holds its value: `--kernel-gateway-header-env X-Api-Key=API_KEY`"
    )]
    HeaderName {
        /// The beginning, without what may be a secret.
        beginning: String,
    },
    /// Requests have this header in any case.
    #[error("send the header `{name}` to the Jupyter server: ipybox sets it itself")]
    OwnHeader {
        /// The header.
        name: String,
    },
    /// Two values were given for it.
    #[error("send the header `{name}` twice to the Jupyter server: it can have one value")]
    RepeatedHeader {
        /// The header.
        name: String,
    },
    /// Two values were given for `Authorization`.
    #[error(
        "send the token of the Jupyter server: there is a header `Authorization` already\n\
         hint: leave out either `--kernel-gateway-token-env` or `Authorization` in `--kernel-gateway-header-env`; Jupyter's \
         own token is `token …` there"
    )]
    TwoTokens,
    /// The given name of the variable is invalid.
    #[error(
        "take the header `{name}` for the Jupyter server from a variable: that is no name of one\n\
         hint: give the name of a variable that holds the value, not the value: `--kernel-gateway-header-env X-Api-Key=API_KEY`"
    )]
    NoHeaderVariable {
        /// The header.
        name: String,
    },
    /// The variable that should hold the header's value is not set.
    #[error(
        "take the header `{name}` for the Jupyter server from `{variable}`: it is not set\n\
         hint: set it in the environment of ipybox, or in the workspace's `.env`"
    )]
    NoHeader {
        /// The header.
        name: String,
        /// The variable's name.
        variable: String,
    },
    /// No header can hold the value.
    #[error(
        "send the header `{name}` to the Jupyter server: its value is empty, or has characters that no HTTP header can hold"
    )]
    HeaderValue {
        /// The header.
        name: String,
    },
    /// The file with root certificates cannot be used.
    #[error("read root certificates in PEM from `{file}`: {reason}", file = file.display())]
    Roots {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// TLS cannot be configured.
    #[error("prepare encrypted connections: {0}")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be created.
    #[error("make an HTTP client: {0}")]
    HttpClient(String),
}
