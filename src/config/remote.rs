//! The Jupyter server that runs the kernels, from its settings.

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "kubernetes")]
use std::{ops::RangeInclusive, time::Duration};

#[cfg(feature = "kubernetes")]
use super::RemotePool;
use super::{Error, RemoteHeader, RemoteHeaderValue, RemoteHub, RemoteSettings, pools};
use crate::ground::env::{self, Variables};
#[cfg(feature = "kubernetes")]
use crate::ground::files::FrontSocket;
use crate::ground::text::Redactor;
#[cfg(feature = "kubernetes")]
use crate::kernels::claims::{ClaimOwner, ClaimSettings, FrontClaims, SandboxClaims};
use crate::kernels::kernel::PodSource;
use crate::kernels::kernel::jupyter::{
    AccessError, FrontHubToken, HubServer, HubServerName, JupyterAccess, JupyterHeaders, JupyterServer,
    KernelServer, header_name,
};
#[cfg(feature = "kubernetes")]
use crate::kernels::kernel::{PodClaims, PodPool, PodRoute};
use crate::kernels::pod::LinkKey;

/// The leases of claims that are possible: each is renewed three times in it, and ends at a date.
#[cfg(feature = "kubernetes")]
const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 3600);

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

/// The pods that run the kernels.
#[derive(Debug, Clone)]
pub(crate) struct PodServer {
    pub(crate) source: PodSource,
    /// The name with which the source was chosen; `None` for that of sessions that choose none.
    pub(crate) chosen: Option<String>,
    /// The sources that further sessions can choose.
    pub(crate) named: BTreeMap<String, PodSource>,
}

impl PodServer {
    pub(super) fn new(settings: &RemoteSettings, variables: &Variables) -> Result<Self, Error> {
        if let Some(pool) = &settings.pool {
            pool.named.keys().try_for_each(|name| pools::check_name(name))?;
            #[cfg(feature = "kubernetes")]
            return Self::of_pool(settings, pool, variables);
            #[cfg(not(feature = "kubernetes"))]
            return Err(Error::NoKubernetes { pool: pool.name.clone() });
        }
        let server = || {
            let headers = headers(settings, variables)?;
            let redactor = variables.redactor().clone();
            JupyterServer::new(JupyterAccess::new(&settings.url, headers, settings.ca.clone(), redactor)?)
        };
        let server = server().map_err(|error: AccessError| Error::Remote(error.into()))?;
        let token = match (&settings.pod_token, &settings.pod_token_env) {
            (Some(token), _) => Some(("pod token", token.as_str())),
            (None, Some(variable)) => {
                let missing = || AccessError::NoToken { variable: variable.clone() };
                let token = variables.get(variable).ok_or_else(missing);
                Some((variable.as_str(), token.map_err(|error| Error::Remote(error.into()))?))
            }
            (None, None) => None,
        };
        let secret = token.map(|(source, token)| {
            withhold(variables.redactor(), source, token);
            LinkKey::of_secret(token)
        });
        let source = PodSource::Address { server: Arc::new(server), secret };
        Ok(Self { source, chosen: None, named: BTreeMap::new() })
    }

    /// Has the server of a team claim the sandboxes, if the session has no credentials.
    #[cfg(feature = "kubernetes")]
    pub(super) fn ask_front(&self, front: &FrontSocket) {
        let sources = [&self.source].into_iter().chain(self.named.values());
        sources.filter_map(PodSource::of_front).for_each(|claims| claims.ask_at(front.clone()));
    }

    /// The same with the pods of this name; `None` if there is none.
    pub(super) fn with_pool(&self, name: &str) -> Option<Self> {
        let source = self.named.get(name)?.clone();
        Some(Self { source, chosen: Some(name.to_owned()), named: self.named.clone() })
    }

    #[cfg(feature = "kubernetes")]
    fn of_pool(settings: &RemoteSettings, pool: &RemotePool, variables: &Variables) -> Result<Self, Error> {
        let source = |name: Option<&str>, warm_pool: &str| {
            let claims = if pool.of_team {
                let name = name.map(str::to_owned);
                PodClaims::Front(FrontClaims::new(warm_pool.to_owned(), name, pool.timeout))
            } else {
                PodClaims::Cluster(claims(pool, warm_pool, variables)?)
            };
            let route = route(settings, variables);
            let route = route.map_err(|error: AccessError| Error::Remote(error.into()))?;
            Ok::<_, Error>(PodSource::Pool(Arc::new(PodPool::new(claims, pool.port, route))))
        };
        let named = pool.named.iter();
        let named = named.map(|(name, warm_pool)| Ok((name.clone(), source(Some(name), warm_pool)?)));
        let named = named.collect::<Result<_, Error>>()?;
        Ok(Self { source: source(None, &pool.name)?, chosen: None, named })
    }
}

/// The route to the sandboxes of all pools.
#[cfg(feature = "kubernetes")]
fn route(settings: &RemoteSettings, variables: &Variables) -> Result<PodRoute, AccessError> {
    let headers = headers(settings, variables)?;
    let roots = settings.ca.clone();
    let redactor = variables.redactor().clone();
    Ok(if settings.url.is_empty() {
        PodRoute::Direct { headers, roots, redactor }
    } else {
        PodRoute::Router(Box::new(JupyterAccess::new(&settings.url, headers, roots, redactor)?))
    })
}

/// The claims from a `SandboxWarmPool`, of a session that has credentials for the cluster.
#[cfg(feature = "kubernetes")]
fn claims(pool: &RemotePool, warm_pool: &str, variables: &Variables) -> Result<SandboxClaims, Error> {
    let owner = variables.in_process("POD_NAME").zip(variables.in_process("POD_UID"));
    let claims = SandboxClaims::new(ClaimSettings {
        pool: warm_pool.to_owned(),
        namespace: pool.namespace.clone(),
        lease: pool.lease.clamp(*LEASES.start(), *LEASES.end()),
        patience: pool.timeout,
        owner: owner.map(|(name, uid)| ClaimOwner { name: name.to_owned(), uid: uid.to_owned() }),
        labels: BTreeMap::new(),
    });
    claims.map_err(|error| Error::Remote(error.into()))
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
        // The router of sandboxes wants another scheme than Jupyter.
        let is_bearer = settings.pool.is_some() && !token.trim().contains(' ');
        if is_bearer {
            headers.add_token(&format!("Bearer {}", token.trim()))?;
        } else {
            headers.add_token(token)?;
        }
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
