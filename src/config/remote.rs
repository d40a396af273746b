//! The Jupyter server that runs the kernels, from its settings.

use std::sync::Arc;

use super::{Error, RemoteSettings};
use crate::ground::env::{self, Variables};
use crate::kernels::kernel::jupyter;

/// The Jupyter server that runs the kernels.
#[derive(Debug, Clone)]
pub(crate) struct RemoteServer {
    pub(crate) server: Arc<jupyter::JupyterServer>,
    /// The kernel spec; `None` for the server's default.
    pub(crate) kernel_name: Option<String>,
}

impl RemoteServer {
    pub(super) fn new(settings: RemoteSettings, variables: &Variables) -> Result<Self, Error> {
        let RemoteSettings { url, token, token_env, kernel_name, ca } = settings;
        let access = || {
            let token = match (&token, &token_env) {
                (Some(token), _) => Some(token.as_str()),
                (None, Some(variable)) if !env::is_variable_name(variable) => {
                    return Err(jupyter::AccessError::NoVariable);
                }
                (None, Some(variable)) => {
                    let missing = || jupyter::AccessError::NoToken { variable: variable.clone() };
                    Some(variables.get(variable).ok_or_else(missing)?)
                }
                (None, None) => None,
            };
            jupyter::JupyterServer::new(jupyter::Access::new(&url, token, ca)?)
        };
        let server = access().map_err(|error| Error::Remote(error.into()))?;
        Ok(Self { server: Arc::new(server), kernel_name })
    }
}
