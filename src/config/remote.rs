//! The Jupyter server or the pods that run the kernels, from their settings.

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "kubernetes")]
use std::{ops::RangeInclusive, time::Duration};

#[cfg(feature = "kubernetes")]
use super::RemotePool;
use super::{
    Error, KernelChoices, RemoteHeader, RemoteHeaderValue, RemoteHub, RemoteSettings, kernel_choices,
};
use crate::ground::env::{self, Variables};
use crate::ground::text::Redactor;
#[cfg(feature = "kubernetes")]
use crate::kernels::claims::{ClaimOwner, ClaimSettings, FrontClaims, SandboxClaims};
use crate::kernels::kernel::PodSource;
use crate::kernels::kernel::jupyter::{
    AccessError, FrontHubToken, HubOptions, HubServer, HubServerName, JupyterAccess, JupyterHeaders,
    JupyterServer, KernelServer, header_name,
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
    pub(crate) servers: KernelChoices<KernelServer>,
    /// The kernel spec; `None` for the server's default.
    pub(crate) kernel_name: Option<String>,
}

impl RemoteServer {
    pub(super) fn new(settings: &RemoteSettings, variables: &Variables) -> Result<Self, Error> {
        if let Some(hub) = &settings.hub {
            hub.named.keys().try_for_each(|name| kernel_choices::check_name(name))?;
        }
        let servers = || {
            let headers = headers(settings, variables)?;
            let redactor = variables.redactor().clone();
            let access = JupyterAccess::new(&settings.url, headers, settings.ca.clone(), redactor)?;
            Ok(match &settings.hub {
                None => {
                    let server = KernelServer::Named(Arc::new(JupyterServer::new(access)?));
                    KernelChoices::new(server, BTreeMap::new())
                }
                Some(hub) if settings.token_of_team => {
                    servers_of(hub, &with_team_token(access, hub, variables))?
                }
                Some(hub) => servers_of(hub, &access)?,
            })
        };
        let servers = servers().map_err(|error: AccessError| Error::Remote(error.into()))?;
        Ok(Self { servers, kernel_name: settings.kernel_name.clone() })
    }
}

/// The same access, with the token that the server of a team gives for the user.
fn with_team_token(access: JupyterAccess, hub: &RemoteHub, variables: &Variables) -> JupyterAccess {
    match &hub.user {
        Some(user) => {
            let redactor = variables.redactor().clone();
            access.with_token(Arc::new(FrontHubToken::new(user.clone(), redactor)))
        }
        None => access,
    }
}

/// The servers of a Hub's user.
fn servers_of(hub: &RemoteHub, access: &JupyterAccess) -> Result<KernelChoices<KernelServer>, AccessError> {
    let server = |server: Option<&String>, options: &HubOptions| -> Result<KernelServer, AccessError> {
        let name =
            HubServerName { server: server.cloned(), user: hub.user.clone(), options: options.clone() };
        Ok(KernelServer::OfHub(Arc::new(HubServer::new(access.clone(), name)?)))
    };
    let named = hub.named.iter();
    let named = named.map(|(name, options)| Ok((name.clone(), server(Some(name), options)?)));
    let named = named.collect::<Result<_, AccessError>>()?;
    Ok(KernelChoices::new(server(hub.server.as_ref(), &hub.options)?, named))
}

/// The pods that run the kernels.
pub(super) fn pods(
    settings: &RemoteSettings,
    variables: &Variables,
) -> Result<KernelChoices<PodSource>, Error> {
    if let Some(pool) = &settings.pool {
        pool.named.keys().try_for_each(|name| kernel_choices::check_name(name))?;
        #[cfg(feature = "kubernetes")]
        return pods_of(settings, pool, variables);
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
    Ok(KernelChoices::new(PodSource::Address { server: Arc::new(server), secret }, BTreeMap::new()))
}

/// The sandboxes of a cluster's pools.
#[cfg(feature = "kubernetes")]
fn pods_of(
    settings: &RemoteSettings,
    pool: &RemotePool,
    variables: &Variables,
) -> Result<KernelChoices<PodSource>, Error> {
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
    Ok(KernelChoices::new(source(None, &pool.name)?, named))
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
