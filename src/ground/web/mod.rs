//! HTTP: the client for servers that others run, which addresses are the internet's, and our own listeners.

mod address;
pub(crate) mod listener;
mod trust;

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Client, ClientBuilder};

pub(crate) use self::address::{AddressRange, ClosedAddress, RangeError, closed, deliveries};
use crate::ground::text::describe;

/// The timeout for one TCP and TLS connection.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

/// The proxies of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestProxies {
    /// Through those that the environment names.
    OfEnvironment,
    /// Through none.
    None,
}

impl RequestProxies {
    /// The proxies for requests to `url`: this machine is reached without one.
    pub(crate) fn to(url: &reqwest::Url) -> Self {
        if is_loopback(url) { Self::None } else { Self::OfEnvironment }
    }
}

/// Whether the URL's host is this machine: a proxy cannot reach it, and need not see our requests.
pub(crate) fn is_loopback(url: &reqwest::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        _ => literal(url).is_some_and(|address| address.is_loopback()),
    }
}

/// The address that the URL has in place of a name.
pub(crate) fn literal(url: &reqwest::Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(address.into()),
        url::Host::Domain(_) => None,
    }
}

/// Whether the URL has a user name or a password, which make it look like another address than it is.
pub(crate) fn has_user(url: &reqwest::Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The URL without the parts that may hold a secret: user name, password, query and fragment.
pub(crate) fn bare(url: &reqwest::Url) -> reqwest::Url {
    let mut bare = url.clone();
    // Only a URL without a host has neither.
    bare.set_username("").ok();
    bare.set_password(None).ok();
    bare.set_query(None);
    bare.set_fragment(None);
    bare
}

/// An HTTP client with what `configure` adds.
///
/// # Errors
/// It could not be set up; the error is a text.
pub(crate) fn client(
    proxies: RequestProxies,
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, String> {
    // An error means that a provider is installed already, which is as good.
    rustls::crypto::ring::default_provider().install_default().ok();
    let trusted = trust::config();
    let builder = || {
        let builder = Client::builder();
        let builder = if proxies == RequestProxies::None { builder.no_proxy() } else { builder };
        configure(
            builder
                .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(TCP_TIMEOUT),
        )
    };
    let trusting = match &trusted {
        Some(config) => builder().tls_backend_preconfigured(config.clone()),
        None => builder(),
    };
    trusting.build().or_else(|error| {
        // A machine without CA certificates can still reach servers by plain HTTP.
        tracing::debug!(error = describe(&error), "no TLS trust anchors");
        builder().tls_certs_only([]).build().map_err(|error| describe(&error))
    })
}

/// An HTTP client for a program of ours beside the library, with the system's proxies and what `configure` adds.
///
/// # Errors
/// It could not be set up; the error is a text.
pub fn http_client(configure: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    client(RequestProxies::OfEnvironment, configure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_url_has_no_secret() {
        for (url, kept) in [
            ("http://me:pass@a.example:1/mcp?k=1#f", "http://a.example:1/mcp"),
            ("https://me@a.example", "https://a.example/"),
            ("https://a.example/@me", "https://a.example/@me"),
        ] {
            assert_eq!(bare(&reqwest::Url::parse(url).unwrap()).as_str(), kept);
        }
    }
}
