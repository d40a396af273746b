//! The address of a Jupyter server, and the credentials for it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use crate::ground::files::small;

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

/// The address of a server, and the token for it. The token is in no output of `Debug`.
#[derive(Clone)]
pub(crate) struct Access {
    /// With a path that ends in a slash.
    base: Url,
    /// Without that slash, for people.
    name: String,
    authorization: Option<HeaderValue>,
    roots: Vec<CertificateDer<'static>>,
}

impl Access {
    /// Checks what a user has given. `token` may be the whole value of the header `Authorization`.
    pub(crate) fn new(url: &str, token: Option<&str>, roots: Option<PathBuf>) -> Result<Self, AccessError> {
        let base =
            parse(url).map_err(|reason| AccessError::Url { url: url_without_password(url), reason })?;
        let name = base.as_str().trim_end_matches('/').to_owned();
        let authorization = token.map(authorization).transpose()?;
        if authorization.is_some() && base.scheme() == "http" && !is_loopback(&base) {
            tracing::warn!(
                server = name,
                "the token of the Jupyter server travels unencrypted; use https, or a tunnel to a loopback address"
            );
        }
        Ok(Self { base, name, authorization, roots: roots.map_or_else(|| Ok(Vec::new()), read_roots)? })
    }

    /// Whether it is on this machine, or reached through a tunnel that ends here.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.base)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    pub(super) fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// The URL of a resource below the base.
    pub(super) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("name", &self.name).finish_non_exhaustive()
    }
}

fn parse(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("its scheme is `{}`, not `http` or `https`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user name or a password; name a variable that holds the token".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment; name a variable that holds the token".to_owned());
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push("");
    }
    Ok(url)
}

/// A URL that may hold secrets, in a form to be shown.
fn url_without_password(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        return text.split(['?', '#', '@']).next().unwrap_or_default().to_owned();
    };
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    if has_credentials {
        // Only a URL without a host has neither.
        url.set_username("…").ok();
        url.set_password(None).ok();
    }
    url.set_query(url.query().map(|_| "…").map(str::to_owned).as_deref());
    url.set_fragment(None);
    percent_encoding::percent_decode_str(url.as_str()).decode_utf8_lossy().into_owned()
}

/// Jupyter's scheme is `token`; a value with a blank contains its own scheme.
fn authorization(token: &str) -> Result<HeaderValue, AccessError> {
    let token = token.trim();
    let text = if token.contains(' ') { token.to_owned() } else { format!("token {token}") };
    let mut value = HeaderValue::from_str(&text).map_err(|_| AccessError::Token)?;
    if token.is_empty() {
        return Err(AccessError::Token);
    }
    value.set_sensitive(true);
    Ok(value)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The longest file of certificates; those of systems have a quarter of a MiB.
const MOST_ROOTS_BYTES: u64 = 16 * 1024 * 1024;

fn read_roots(file: PathBuf) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let fail = |file: PathBuf, reason: String| AccessError::Roots { file, reason };
    let bytes = match small::read(&file, MOST_ROOTS_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => return Err(fail(file, error.to_string())),
    };
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(roots) if roots.is_empty() => Err(fail(file, "there are no certificates in it".to_owned())),
        Ok(roots) => Ok(roots),
        Err(error) => Err(fail(file, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_url(given: &str, expected: &str) {
        let access = Access::new(given, None, None).unwrap();
        assert_eq!(access.url(&["api", "kernels", "a/b"]).as_str(), expected);
    }

    #[test]
    fn resources_are_below_the_base_path() {
        check_url("http://localhost:8888", "http://localhost:8888/api/kernels/a%2Fb");
        check_url("https://host/user/me", "https://host/user/me/api/kernels/a%2Fb");
        check_url("https://host/user/me/", "https://host/user/me/api/kernels/a%2Fb");
    }

    fn check_refused(url: &str, token: Option<&str>, expected: &str) {
        let error = Access::new(url, token, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused_and_secrets_are_not_repeated() {
        check_refused("localhost:8888", None, "its scheme is `localhost`");
        check_refused("ftp://host/", None, "its scheme is `ftp`");
        check_refused("not a url", None, "`not a url`");
        check_refused("http://me:secret@host/", None, "password");
        check_refused("http://host/?token=secret", None, "query");
        check_refused("http://host/", Some(" "), "empty");
        check_refused("http://host/", Some("a\nsecret"), "header");
    }

    #[test]
    fn a_token_may_be_a_whole_header() {
        let shown = |token| {
            let access = Access::new("http://localhost/", Some(token), None).unwrap();
            access.authorization().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(shown("abc"), "token abc");
        assert_eq!(shown("Bearer abc"), "Bearer abc");
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Access::new("https://host/", None, Some(file.path().to_owned())).unwrap_err().to_string();
        assert!(
            error.contains("no certificates") && error.contains(file.path().to_str().unwrap()),
            "{error}"
        );
    }
}
