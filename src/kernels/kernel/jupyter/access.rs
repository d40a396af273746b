//! The address of a Jupyter server, and the credentials for it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::{Host, Url};

use super::access_error::AccessError;
use super::front_token::FrontHubToken;
use super::headers::JupyterHeaders;
use crate::ground::files::small;
use crate::ground::text::Redactor;

/// The address of a server, and the headers for it. Their values are in no output of `Debug`.
#[derive(Clone)]
pub(crate) struct JupyterAccess {
    /// With a path that ends in a slash.
    base: Url,
    /// Without that slash, for people.
    name: String,
    headers: JupyterHeaders,
    /// The token beside them, if the server of a team gives it.
    token: Option<Arc<FrontHubToken>>,
    /// Knows the values of the headers: a server may repeat them.
    redactor: Redactor,
    roots: Vec<CertificateDer<'static>>,
}

impl JupyterAccess {
    /// Checks what a user has given. The values of `headers` are from now on unknown to all texts that `redactor` sees.
    pub(crate) fn new(
        url: &str,
        headers: JupyterHeaders,
        roots: Option<PathBuf>,
        redactor: Redactor,
    ) -> Result<Self, AccessError> {
        let base =
            parse(url).map_err(|reason| AccessError::Url { url: url_without_password(url), reason })?;
        let name = base.as_str().trim_end_matches('/').to_owned();
        if !headers.is_empty() && base.scheme() == "http" && !is_loopback(&base) {
            tracing::warn!(
                server = name,
                "the token of the Jupyter server travels unencrypted; use https, or a tunnel to a loopback address"
            );
        }
        let roots = roots.map_or_else(|| Ok(Vec::new()), read_roots)?;
        Ok(Self { base, name, headers, token: None, redactor, roots })
    }

    /// The same with a token that the server of a team gives.
    pub(crate) fn with_token(self, token: Arc<FrontHubToken>) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Whether it is on this machine, or reached through a tunnel that ends here.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.base)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn headers(&self) -> &JupyterHeaders {
        &self.headers
    }

    pub(super) fn token(&self) -> Option<&FrontHubToken> {
        self.token.as_deref()
    }

    /// Replaces secrets in a text of the server.
    pub(super) fn redacted(&self, said: &str) -> String {
        self.redactor.redact(said).into_owned()
    }

    pub(super) fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// The same server with a Hub's base, which may have been given with the Hub's own path.
    pub(super) fn of_hub(mut self) -> Self {
        if let Some(path) = self.base.path().strip_suffix("/hub/").map(|path| format!("{path}/")) {
            self.base.set_path(&path);
            self.base.as_str().trim_end_matches('/').clone_into(&mut self.name);
        }
        self
    }

    /// The address of another server below the base.
    pub(super) fn below(&self, path: &[&str]) -> Self {
        let mut base = self.url(path);
        if let Ok(mut segments) = base.path_segments_mut() {
            segments.push("");
        }
        let name = base.as_str().trim_end_matches('/').to_owned();
        Self { base, name, ..self.clone() }
    }

    /// The address of a server that the Hub names, where our credentials may go: at the Hub's own host and port, or at those of a
    /// subdomain, as Hubs give users by `subdomain_host`.
    pub(super) fn at_hub(&self, url: &str) -> Option<Self> {
        let base = parse(self.base.join(url).ok()?.as_str()).ok()?;
        let is_same = base.scheme() == self.base.scheme()
            && base.port_or_known_default() == self.base.port_or_known_default();
        let is_there = match (self.base.host()?, base.host()?) {
            (hub, server) if hub == server => true,
            // Who has `hub.example.org` has its subdomains; of a name like `localhost` that is not so.
            (Host::Domain(hub), Host::Domain(server)) => {
                hub.contains('.') && server.strip_suffix(hub).is_some_and(|below| below.ends_with('.'))
            }
            _ => false,
        };
        let name = base.as_str().trim_end_matches('/').to_owned();
        (is_same && is_there).then(|| Self { base, name, ..self.clone() })
    }

    /// The same server with further headers.
    ///
    /// # Errors
    /// There is one of the same name already.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn with_headers(&self, headers: &[(&str, &str)]) -> Result<Self, AccessError> {
        let mut access = self.clone();
        for (name, value) in headers {
            access.headers.add(name, value)?;
        }
        Ok(access)
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

impl fmt::Debug for JupyterAccess {
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

/// Stricter than `web::is_loopback`: some resolvers ask the network for names that end with `.localhost`, and the token would
/// go there.
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
    use http::header::AUTHORIZATION;

    use super::*;

    fn access(url: &str, token: Option<&str>, roots: Option<PathBuf>) -> Result<JupyterAccess, AccessError> {
        let mut headers = JupyterHeaders::default();
        token.map_or(Ok(()), |token| headers.add_token(token))?;
        JupyterAccess::new(url, headers, roots, Redactor::default())
    }

    fn check_url(given: &str, expected: &str) {
        let access = access(given, None, None).unwrap();
        assert_eq!(access.url(&["api", "kernels", "a/b"]).as_str(), expected);
    }

    #[test]
    fn resources_are_below_the_base_path() {
        check_url("http://localhost:8888", "http://localhost:8888/api/kernels/a%2Fb");
        check_url("https://host/user/me", "https://host/user/me/api/kernels/a%2Fb");
        check_url("https://host/user/me/", "https://host/user/me/api/kernels/a%2Fb");
    }

    #[test]
    fn a_hub_may_be_given_with_its_own_path() {
        for (given, expected) in [
            ("https://host", "https://host/user/me%2F/api"),
            ("https://host/hub", "https://host/user/me%2F/api"),
            ("https://host/lab/hub/", "https://host/lab/user/me%2F/api"),
            ("https://host/github/", "https://host/github/user/me%2F/api"),
        ] {
            let hub = access(given, None, None).unwrap().of_hub();
            assert_eq!(hub.below(&["user", "me/"]).url(&["api"]).as_str(), expected);
        }
    }

    #[test]
    fn a_hub_names_servers_at_its_host_and_at_subdomains_of_it_only() {
        for (hub, named, expected) in [
            ("https://host", "/user/me/", Some("https://host/user/me/api")),
            ("https://host:8000", "https://host:8000/user/me", Some("https://host:8000/user/me/api")),
            ("https://hub.org", "https://me.hub.org/user/me/", Some("https://me.hub.org/user/me/api")),
            ("https://hub.org", "//me.hub.org/user/me/", Some("https://me.hub.org/user/me/api")),
            ("https://hub.org", "https://hub.org.evil.org/", None),
            ("https://hub.org", "https://evilhub.org/", None),
            ("https://hub.org", "https://org/", None),
            ("https://hub.org", "http://me.hub.org/", None),
            ("https://hub.org", "https://me.hub.org:8443/", None),
            ("https://hub.org", "https://name:password@hub.org/", None),
            ("https://hub.org", "https://hub.org/?a=b", None),
            ("http://localhost:1", "http://me.localhost:1/", None),
            ("http://127.0.0.1:1", "http://1.127.0.0.1:1/", None),
            ("http://127.0.0.1:1", "http://127.0.0.2:1/", None),
        ] {
            let server = access(hub, None, None).unwrap().of_hub().at_hub(named);
            assert_eq!(server.map(|server| server.url(&["api"]).to_string()).as_deref(), expected, "{named}");
        }
    }

    fn check_refused(url: &str, token: Option<&str>, expected: &str) {
        let error = access(url, token, None).unwrap_err().to_string();
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
            let access = access("http://localhost/", Some(token), None).unwrap();
            access.headers().all()[AUTHORIZATION].to_str().unwrap().to_owned()
        };
        assert_eq!(shown("abc"), "token abc");
        assert_eq!(shown("Bearer abc"), "Bearer abc");
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = access("https://host/", None, Some(file.path().to_owned())).unwrap_err().to_string();
        assert!(
            error.contains("no certificates") && error.contains(file.path().to_str().unwrap()),
            "{error}"
        );
    }
}
