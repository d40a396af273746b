//! Connects to the requested host, if the filter allows it.
//!
//! A name is resolved once, and one of the checked addresses is dialled: the name cannot be changed between
//! the check and the connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpStream;

use super::filter::{ConnectionRefusal, HostFilter};
use super::timely;
use crate::kernels::sandbox::domain::DomainHost;

/// The time that the look-up of a name may take.
const RESOLVE: Duration = Duration::from_secs(10);

/// The time that one address may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Addresses of one name that are tried. More would let a name hold a connection for long.
const MOST_ATTEMPTS: usize = 4;

/// Looks up the addresses of a name.
pub(crate) type NameResolver =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// The resolver of the operating system, with its hosts file.
pub(crate) fn system_resolver() -> NameResolver {
    Arc::new(|name| {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    })
}

/// Makes the connections of a proxy.
pub(super) struct ProxyDialer {
    filter: HostFilter,
    resolver: NameResolver,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialFailure {
    #[error(transparent)]
    Refused(#[from] ConnectionRefusal),
    #[error("`{host}` cannot be resolved: {source}")]
    Unknown { host: DomainHost, source: io::Error },
    #[error("`{host}` (port {port}) cannot be reached: {source}")]
    Unreachable { host: DomainHost, port: u16, source: io::Error },
    #[error("the addresses of the computer that runs the sandbox cannot be listed: {0}")]
    OwnAddresses(io::Error),
}

impl ProxyDialer {
    pub(super) fn new(filter: HostFilter, resolver: NameResolver) -> Self {
        Self { filter, resolver }
    }

    /// Connects to `port` of `host`.
    pub(super) async fn dial(&self, host: &DomainHost, port: u16) -> Result<TcpStream, DialFailure> {
        let dialled = self.try_dial(host, port).await;
        match &dialled {
            Ok(_) => tracing::debug!(%host, port, "connection out of the sandbox"),
            Err(failure) => tracing::debug!(%host, port, %failure, "no connection out of the sandbox"),
        }
        dialled
    }

    async fn try_dial(&self, host: &DomainHost, port: u16) -> Result<TcpStream, DialFailure> {
        self.filter.judge(host, port)?;
        let addresses = match host {
            // The filter lets an address through only if it is listed as such.
            DomainHost::Address(address) => vec![*address],
            DomainHost::Name(name) => self.judged(host, name, port).await?,
        };
        let mut source = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses.into_iter().take(MOST_ATTEMPTS) {
            match timely(CONNECT, TcpStream::connect(SocketAddr::new(address, port))).await {
                Ok(stream) => {
                    // Small packets should not wait: requests and answers alternate in most tunnels.
                    stream.set_nodelay(true).map_err(|source| unreachable(host, port, source))?;
                    return Ok(stream);
                }
                Err(error) => source = error,
            }
        }
        Err(unreachable(host, port, source))
    }

    /// The addresses of `name` that may be dialled, of which there is one at least.
    async fn judged(&self, host: &DomainHost, name: &str, port: u16) -> Result<Vec<IpAddr>, DialFailure> {
        let unknown = |source| DialFailure::Unknown { host: host.clone(), source };
        let addresses = if host.is_localhost() {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            timely(RESOLVE, (self.resolver)(name.to_owned())).await.map_err(unknown)?
        };
        let own = own_addresses().map_err(DialFailure::OwnAddresses)?;
        let mut refusal = None;
        let mut judged = Vec::new();
        for address in addresses {
            match self.filter.judge_address(host, address, port, &own) {
                Ok(()) => judged.push(address.to_canonical()),
                Err(refused) => refusal = refusal.or(Some(refused)),
            }
        }
        match refusal {
            _ if !judged.is_empty() => Ok(judged),
            Some(refusal) => Err(refusal.into()),
            None => Err(unknown(io::Error::from(io::ErrorKind::NotFound))),
        }
    }
}

impl fmt::Debug for ProxyDialer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Dialer").field("filter", &self.filter).finish_non_exhaustive()
    }
}

fn unreachable(host: &DomainHost, port: u16, source: io::Error) -> DialFailure {
    DialFailure::Unreachable { host: host.clone(), port, source }
}

/// The addresses of this computer's interfaces, now: they change when networks do.
fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let addresses = nix::ifaddrs::getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    });
    Ok(addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_addresses_are_known() {
        assert!(own_addresses().unwrap().contains(&IpAddr::from(Ipv4Addr::LOCALHOST)));
    }
}
