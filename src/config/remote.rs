//! The Jupyter server that runs the kernels, from its settings.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::{Error, RemoteHeader, RemoteHeaderValue, RemoteHub, RemoteSettings};
use crate::ground::env::{self, Variables};
use crate::ground::text::{Redactor, describe};
use crate::kernels::kernel::jupyter::{
    self, AccessError, DuplexStream, FrontHubToken, HubServer, HubServerName, JupyterAccess, JupyterHeaders,
    JupyterServer, KernelServer, header_name,
};
use crate::kernels::pod::PodDialer;

/// The Jupyter server that runs the kernels.
#[derive(Debug, Clone)]
pub(crate) struct RemoteServer {
    pub(crate) server: KernelServer,
    /// The kernel spec; `None` for the server's default.
    pub(crate) kernel_name: Option<String>,
}

impl RemoteServer {
    pub(super) fn new(settings: RemoteSettings, variables: &Variables) -> Result<Self, Error> {
        let server = || {
            let headers = headers(&settings, variables)?;
            let redactor = variables.redactor().clone();
            let access = JupyterAccess::new(&settings.url, headers, settings.ca.clone(), redactor)?;
            Ok(match &settings.hub {
                None => KernelServer::Named(Arc::new(JupyterServer::new(access)?)),
                Some(RemoteHub { server, user, options }) => {
                    let options = options.clone();
                    let access = match user {
                        Some(user) if settings.token_of_team => {
                            let redactor = variables.redactor().clone();
                            access.with_token(Arc::new(FrontHubToken::new(user.clone(), redactor)))
                        }
                        _ => access,
                    };
                    let name = HubServerName { server: server.clone(), user: user.clone(), options };
                    KernelServer::OfHub(Arc::new(HubServer::new(access, name)?))
                }
            })
        };
        let server = server().map_err(|error: AccessError| Error::Remote(error.into()))?;
        Ok(Self { server, kernel_name: settings.kernel_name })
    }
}

/// The pod that runs the kernels, reached like a Jupyter server.
#[derive(Debug, Clone)]
pub(crate) struct PodServer {
    server: Arc<JupyterServer>,
}

impl PodDialer for PodServer {
    type Stream = Box<dyn DuplexStream>;

    fn dial(
        &self,
        config: WebSocketConfig,
    ) -> BoxFuture<'_, Result<WebSocketStream<Box<dyn DuplexStream>>, String>> {
        Box::pin(async move {
            self.server.root_socket(config).await.map_err(|error| match error {
                jupyter::Error::Unreachable { reason, .. } => reason,
                error => describe(&error).to_string(),
            })
        })
    }
}

impl PodServer {
    pub(super) fn new(settings: &RemoteSettings, variables: &Variables) -> Result<Self, Error> {
        let server = || {
            let headers = headers(settings, variables)?;
            let redactor = variables.redactor().clone();
            JupyterServer::new(JupyterAccess::new(&settings.url, headers, settings.ca.clone(), redactor)?)
        };
        let server = server().map_err(|error: AccessError| Error::Remote(error.into()))?;
        Ok(Self { server: Arc::new(server) })
    }

    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        self.server.name()
    }
}

impl RemoteHeader {
    /// Its value; `None` if it is in a variable that is not set.
    pub(crate) fn text<'a>(&'a self, variables: &'a Variables) -> Option<&'a str> {
        match &self.value {
            RemoteHeaderValue::Text(text) => Some(text),
            RemoteHeaderValue::Variable(variable) => variables.get(variable),
        }
    }

    fn add_to(&self, headers: &mut JupyterHeaders, variables: &Variables) -> Result<(), AccessError> {
        let name = header_name(&self.name)?.to_string();
        let source = match &self.value {
            RemoteHeaderValue::Variable(variable) if !env::is_variable_name(variable) => {
                return Err(AccessError::NoHeaderVariable { name });
            }
            RemoteHeaderValue::Variable(variable) => variable,
            RemoteHeaderValue::Text(_) => &name,
        };
        let missing = || AccessError::NoHeader { name: name.clone(), variable: source.clone() };
        let value = self.text(variables).ok_or_else(missing)?;
        headers.add(&name, value)?;
        withhold(variables.redactor(), source, value);
        Ok(())
    }
}

/// The headers of each request, with the token in one of them.
fn headers(settings: &RemoteSettings, variables: &Variables) -> Result<JupyterHeaders, AccessError> {
    let RemoteSettings { token, token_env, headers: further, .. } = settings;
    let mut headers = JupyterHeaders::default();
    for header in further {
        header.add_to(&mut headers, variables)?;
    }
    let token = match (token, token_env) {
        (Some(token), _) => Some(("token", token.as_str())),
        (None, Some(variable)) if !env::is_variable_name(variable) => return Err(AccessError::NoVariable),
        (None, Some(variable)) => {
            let missing = || AccessError::NoToken { variable: variable.clone() };
            Some((variable.as_str(), variables.get(variable).ok_or_else(missing)?))
        }
        (None, None) => None,
    };
    if let Some((source, token)) = token {
        headers.add_token(token)?;
        withhold(variables.redactor(), source, token);
    }
    Ok(headers)
}

/// From now on the value of a header is shown as `${source}`, and so is what follows its scheme.
fn withhold(redactor: &Redactor, source: &str, value: &str) {
    redactor.note(source, value);
    if let Some((_scheme, credentials)) = value.trim().split_once(' ') {
        redactor.note(source, credentials.trim());
    }
}
