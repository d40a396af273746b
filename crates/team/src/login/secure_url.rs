//! URLs to which a secret may be sent, or from which keys may come: encrypted, or on this machine.

use std::fmt;

use serde::Deserialize;
use url::{Host, Url};

/// The URL of an identity provider or of this server: `https`, or `http` on this machine; without user name and fragment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct SecureUrl {
    /// As it was written: issuers and audiences are compared as texts (RFC 8414, 3.3).
    text: String,
    url: Url,
}

/// Why a text is no [`SecureUrl`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecureUrlError(&'static str);

impl SecureUrl {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The URL as it is requested.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.url)
    }

    /// The URL with another path, and no query.
    pub(crate) fn with_path(&self, path: &str) -> Self {
        let mut url = self.url.clone();
        url.set_path(path);
        url.set_query(None);
        Self { text: url.to_string(), url }
    }

    /// The URL of what has these names below it, one after the other.
    pub(crate) fn below(&self, names: &[&str]) -> Self {
        let mut url = self.url.clone();
        // A URL with a host has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(names);
        }
        Self { text: url.to_string(), url }
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

impl TryFrom<String> for SecureUrl {
    type Error = SecureUrlError;

    fn try_from(text: String) -> Result<Self, SecureUrlError> {
        let url = Url::parse(&text)
            .map_err(|_| SecureUrlError("not a URL; write one like `https://id.example`"))?;
        let is_private = match url.scheme() {
            "https" => true,
            "http" => is_loopback(&url),
            _ => false,
        };
        if !is_private {
            return Err(SecureUrlError(
                "not encrypted; write a URL with `https` (`http` is for this machine alone, `http://127.0.0.1:PORT`)",
            ));
        }
        if !url.has_host() {
            return Err(SecureUrlError("names no host; write a URL like `https://id.example`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SecureUrlError("contains a user name; leave out what is before the `@`"));
        }
        if url.fragment().is_some() {
            return Err(SecureUrlError("has a fragment; leave out what is after the `#`"));
        }
        Ok(Self { text, url })
    }
}

impl fmt::Display for SecureUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_https_or_to_this_machine() {
        for url in ["https://id.example", "http://127.0.0.1:1/", "http://[::1]:1/a?b=c", "http://localhost"] {
            assert_eq!(SecureUrl::try_from(url.to_owned()).unwrap().as_str(), url);
        }
        for (url, why) in [
            ("id.example", "not a URL"),
            ("http://id.example", "not encrypted"),
            ("http://10.0.0.1", "not encrypted"),
            ("http://localhost.example", "not encrypted"),
            ("ftp://127.0.0.1", "not encrypted"),
            ("https://id.example@evil.example", "contains a user name"),
            ("https://id.example/#a", "has a fragment"),
        ] {
            let error = SecureUrl::try_from(url.to_owned()).unwrap_err().to_string();
            assert!(error.starts_with(why), "{url}: {error}");
        }
    }
}
