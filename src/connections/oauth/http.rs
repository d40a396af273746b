//! The HTTP requests of the protocol: to which addresses they may go, and how long and large answers may be.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};

use super::published::{self, PublishedServers};
use super::token_request::TokenRequest;
use super::{Error, foreign, with_causes};
use crate::ground::text::Redactor;
use crate::ground::web::{self, ClosedAddress, RequestProxies, closed, literal};

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer, in bytes.
const LONGEST_ANSWER: usize = 1024 * 1024;

/// Which addresses the metadata of a server may lead to: those of the internet, and of the kind that the server's own
/// URL names. The rest is what a hostile server would have us ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReachableAddresses {
    loopback: bool,
    private: bool,
}

impl ReachableAddresses {
    pub(super) fn from(server: &Url, private_addresses: bool) -> Self {
        let is_private =
            literal(server).is_some_and(|address| closed(address) == Some(ClosedAddress::Private));
        Self { loopback: web::is_loopback(server), private: private_addresses || is_private }
    }

    fn allows(self, address: IpAddr) -> bool {
        match closed(address) {
            None => true,
            Some(ClosedAddress::Loopback) => self.loopback,
            Some(ClosedAddress::Private) => self.private,
            Some(_) => false,
        }
    }

    /// Whether an unencrypted request may go to the address: on this machine, or in a private network.
    fn allows_unencrypted(self, address: IpAddr) -> bool {
        closed(address).is_some() && self.allows(address)
    }

    /// Whether the URL has a private address that may be reached.
    pub(super) fn is_private(self, url: &Url) -> bool {
        literal(url)
            .is_some_and(|address| closed(address) == Some(ClosedAddress::Private) && self.allows(address))
    }

    /// Why a secret may not be sent to `url`, nor a user; the reason follows "which".
    pub(super) fn why_not(self, url: &Url) -> Option<&'static str> {
        let is_loopback = web::is_loopback(url);
        // `https://bank.example@evil.example` looks like another address than it is.
        if web::has_user(url) {
            return Some("hides where it leads behind a user name");
        }
        match url.scheme() {
            "https" => {}
            "http" if is_loopback && self.loopback => {}
            // The addresses of a name are looked at when it is resolved.
            "http"
                if self.private
                    && !is_loopback
                    && literal(url).is_none_or(|it| self.allows_unencrypted(it)) => {}
            "http" => return Some("is not encrypted (`https`)"),
            _ => return Some("is not the address of a web page"),
        }
        match literal(url) {
            Some(address) if !self.allows(address) => Some("is an address that is not the internet's"),
            None if is_loopback && !self.loopback => Some("is this machine, and the server is not"),
            _ => None,
        }
    }

    pub(super) fn check(self, what: &'static str, url: &str) -> Result<Url, Error> {
        let parsed =
            Url::parse(url).map_err(|_| Error::Address { what, url: foreign(url), why: "is not a URL" })?;
        match self.why_not(&parsed) {
            None => Ok(parsed),
            Some(why) => Err(Error::Address { what, url: shown(&parsed), why }),
        }
    }
}

/// The URL as far as it holds no values.
pub(super) fn shown(url: &Url) -> String {
    foreign(web::bare(url).as_str())
}

/// Sends the requests of one conversation with a server and its authorization server.
pub(super) struct OauthHttp {
    clients: OauthClients,
    reachable: ReachableAddresses,
    redactor: Redactor,
    failure: Mutex<Option<String>>,
    /// The documents of metadata.
    pub(super) published: PublishedServers,
    /// Whether requests for tokens leave out the parameter `resource`.
    omits_resource: bool,
}

/// The clients of one server.
#[derive(Clone)]
pub(super) struct OauthClients {
    encrypted: Client,
    /// Reaches this machine and private networks alone, and through no proxy, which would resolve names by itself.
    unencrypted: Client,
}

/// Why a request was not made, or its answer is not used.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("`{url}` {why}")]
    Address { url: String, why: &'static str },
    #[error("the answer is longer than {LONGEST_ANSWER} bytes")]
    TooLong,
    #[error("`{0}` has no address that may be reached")]
    Name(String),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Silent,
}

impl OauthClients {
    /// Clients for requests that `server` leads to.
    pub(super) fn new(server: &Url, reachable: ReachableAddresses) -> Result<Self, Error> {
        let client = |proxies, is_encrypted| {
            let client = web::client(proxies, |builder| {
                let builder = if is_encrypted { builder } else { builder.tls_certs_only([]) };
                let resolver = Guarded { reachable, is_encrypted };
                builder.redirect(redirect::Policy::none()).dns_resolver(resolver)
            });
            client.map_err(Error::Unavailable)
        };
        Ok(Self {
            encrypted: client(RequestProxies::to(server), true)?,
            unencrypted: client(RequestProxies::None, false)?,
        })
    }
}

impl OauthHttp {
    pub(super) fn new(clients: OauthClients, reachable: ReachableAddresses, redactor: Redactor) -> Self {
        let published = PublishedServers::default();
        Self { clients, reachable, redactor, failure: Mutex::default(), published, omits_resource: false }
    }

    /// The same without the parameter `resource` in requests for tokens, if it is to be left out.
    pub(super) fn omitting_resource(self, omits_resource: bool) -> Self {
        Self { omits_resource, ..self }
    }

    /// Checks a page that a user is to visit.
    pub(super) async fn check_page(&self, what: &'static str, url: &str) -> Result<Url, Error> {
        let url = self.reachable.check(what, url)?;
        if url.scheme() == "http"
            && let Some(name) = url.domain()
        {
            let found = tokio::net::lookup_host((name, 0)).await;
            let is_near =
                found.is_ok_and(|mut found| found.all(|it| self.reachable.allows_unencrypted(it.ip())));
            if !is_near {
                let why = "is neither encrypted (`https`) nor in a private network";
                return Err(Error::Address { what, url: shown(&url), why });
            }
        }
        Ok(url)
    }

    pub(super) fn reachable(&self) -> ReachableAddresses {
        self.reachable
    }

    /// Why the last request has no answer that can be used, or else `error`, which is rmcp's: it names no causes.
    pub(super) fn why(&self, error: &str) -> String {
        let failure = self.failure.lock().clone();
        failure.unwrap_or_else(|| foreign(error))
    }

    /// Sends a request, which goes nowhere else than its URL says. No error repeats its secrets.
    pub(super) async fn send(
        &self,
        mut request: Request<Vec<u8>>,
    ) -> Result<http::Response<Vec<u8>>, BoxError> {
        let answer = match TokenRequest::of(&request) {
            Some(token_request) => {
                token_request.note(&self.redactor);
                if self.omits_resource {
                    token_request.leave_out_resource(&mut request);
                }
                self.token_answer(request).await.and_then(|answer| Ok(token_request.read(answer)?))
            }
            None => self.answer(request).await,
        };
        let failure = answer.as_ref().err().map(|error| with_causes(error.as_ref()));
        *self.failure.lock() = failure;
        answer
    }

    /// The answer to a request for a token. Where a server does not know the client, its secret is written in other ways.
    async fn token_answer(&self, request: Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, BoxError> {
        let ways = TokenRequest::other_ways(&request);
        let first = self.answer(request).await?;
        if !TokenRequest::is_unknown_client(&first) {
            return Ok(first);
        }
        for way in ways {
            // Of errors the first is shown: it repeats no other secrets than those that are looked for.
            if let Ok(answer) = self.answer(way).await
                && answer.status().is_success()
                && !TokenRequest::is_unknown_client(&answer)
            {
                return Ok(answer);
            }
        }
        Ok(first)
    }

    /// The answer to a request for metadata, which may be at another place, of a server that is away, or spell its issuer in
    /// another way.
    async fn metadata(&self, request: Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, BoxError> {
        let url = request.uri().to_string();
        let other = published::other_place(&url).and_then(|url| {
            let mut other = request.clone();
            *other.uri_mut() = url.parse().ok()?;
            Some(other)
        });
        let mut answer = self.send(request).await;
        if let (Ok(first), Some(other)) = (&answer, other)
            && first.status().is_client_error()
            && let Ok(found) = self.send(other).await
            && found.status().is_success()
        {
            answer = Ok(found);
        }
        let failure = match &answer {
            Ok(answer) if answer.status().is_server_error() => format!("HTTP {}", answer.status()),
            Ok(_) => return answer.map(|answer| self.published.read(&url, answer)),
            Err(error) => with_causes(error.as_ref()),
        };
        self.published.passed_over(&url, &failure).map_or(answer, Ok)
    }

    async fn answer(&self, request: Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, BoxError> {
        let request = reqwest::Request::try_from(request)?;
        if let Some(why) = self.reachable.why_not(request.url()) {
            return Err(Unsent::Address { url: shown(request.url()), why }.into());
        }
        let answering = async {
            let OauthClients { encrypted, unencrypted } = &self.clients;
            let client = if request.url().scheme() == "http" { unencrypted } else { encrypted };
            let mut response = client.execute(request).await.map_err(reqwest::Error::without_url)?;
            let mut answer = http::Response::builder().status(response.status());
            for (name, value) in response.headers() {
                answer = answer.header(name, value);
            }
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
                if chunk.len() > LONGEST_ANSWER - body.len() {
                    return Err(Unsent::TooLong.into());
                }
                body.extend_from_slice(&chunk);
            }
            Ok(answer.body(body)?)
        };
        tokio::time::timeout(TIMEOUT, answering).await.unwrap_or_else(|_| Err(Unsent::Silent.into()))
    }
}

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl OAuthHttpClient for OauthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        // No redirect is followed: the protocol needs none, and each is a way to another server.
        if request.request.method() == http::Method::GET {
            return Box::pin(self.metadata(request.request));
        }
        Box::pin(self.send(request.request))
    }
}

/// Resolves names to addresses that may be reached.
struct Guarded {
    reachable: ReachableAddresses,
    is_encrypted: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let reachable = self.reachable;
        let is_encrypted = self.is_encrypted;
        let allows = move |address| {
            if is_encrypted { reachable.allows(address) } else { reachable.allows_unencrypted(address) }
        };
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<SocketAddr> = found.filter(|address| allows(address.ip())).collect();
            if addresses.is_empty() {
                Err(Unsent::Name(name.as_str().to_owned()).into())
            } else {
                Ok(Box::new(addresses.into_iter()) as Addrs)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(server: &str, private: bool, url: &str, expected: bool) {
        let reachable = ReachableAddresses::from(&Url::parse(server).unwrap(), private);
        assert_eq!(reachable.check("it", url).is_ok(), expected, "{server} {private} → {url}");
    }

    #[test]
    fn metadata_leads_to_the_internet_alone() {
        let public = "https://mcp.example.com/mcp";
        for url in ["https://as.example.com/token", "https://93.184.216.34/token"] {
            check(public, false, url, true);
        }
        for url in [
            "http://as.example.com/token",
            "https://127.0.0.1/token",
            "https://localhost/token",
            "https://a.localhost./token",
            "http://localhost:8080/token",
            "https://10.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fe80::1]/",
            "https://0/",
            "https://accounts.example.com@as.example.com/",
            "https://:password@as.example.com/",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "ssh://as.example.com/",
            "//as.example.com",
        ] {
            check(public, false, url, false);
        }
    }

    #[test]
    fn a_server_on_this_machine_or_in_a_private_network_may_have_its_like() {
        check("http://localhost:1/mcp", false, "http://127.0.0.1:2/token", true);
        check("http://localhost:1/mcp", false, "https://10.0.0.1/token", false);
        check("http://localhost:1/mcp", false, "http://as.example.com/token", false);
        check("https://10.0.0.2/mcp", false, "https://10.0.0.1/token", true);
        check("https://10.0.0.2/mcp", false, "https://127.0.0.1/token", false);
        check("https://mcp.corp/mcp", true, "https://10.0.0.1/token", true);
        check("https://mcp.corp/mcp", true, "http://sso.corp/token", true);
        check("https://mcp.corp/mcp", true, "http://10.0.0.1/token", true);
        check("https://mcp.corp/mcp", true, "http://169.254.169.254/", false);
        check("https://mcp.corp/mcp", true, "http://93.184.216.34/token", false);
        check("http://10.0.0.2/mcp", false, "http://93.184.216.34/token", false);
    }

    async fn resolved(host: &str, is_encrypted: bool) -> bool {
        let reachable = ReachableAddresses { loopback: false, private: true };
        let guarded = Guarded { reachable, is_encrypted };
        guarded.resolve(host.parse().unwrap()).await.is_ok()
    }

    #[tokio::test]
    async fn unencrypted_requests_stay_in_private_networks() {
        // `lookup_host` gives addresses back as they are.
        assert!(resolved("10.0.0.1", false).await && resolved("10.0.0.1", true).await);
        assert!(!resolved("93.184.216.34", false).await && resolved("93.184.216.34", true).await);
        assert!(!resolved("127.0.0.1", false).await && !resolved("127.0.0.1", true).await);
        let reachable = ReachableAddresses { loopback: false, private: true };
        let server = Url::parse("https://mcp.corp/mcp").unwrap();
        let http =
            OauthHttp::new(OauthClients::new(&server, reachable).unwrap(), reachable, Redactor::default());
        assert!(http.check_page("it", "http://10.0.0.1/authorize").await.is_ok());
        assert!(http.check_page("it", "http://no-such-name.invalid/authorize").await.is_err());
    }

    #[tokio::test]
    async fn an_answer_that_does_not_end_is_reported_with_the_time() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/token", listener.local_addr().unwrap())).unwrap();
        let answering = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_buf(&mut Vec::with_capacity(1024)).await.unwrap();
            socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n{").await.unwrap();
            tokio::time::pause();
            std::future::pending::<()>().await;
        });
        let reachable = ReachableAddresses::from(&url, false);
        let http =
            OauthHttp::new(OauthClients::new(&url, reachable).unwrap(), reachable, Redactor::default());
        let request = Request::post(url.as_str()).body(Vec::new()).unwrap();
        assert_eq!(http.send(request).await.unwrap_err().to_string(), "no answer within 30 s");
        assert_eq!(http.why("Request failed"), "no answer within 30 s");
        answering.abort();
    }
}
