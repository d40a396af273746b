//! Connections to a server: directly or through a proxy, encrypted where the URL says so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use super::quick_ack::quick_ack;
use crate::ground::text::describe;

/// The timeout for connecting.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes both ways.
pub(crate) trait DuplexStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> DuplexStream for T {}

/// Makes connections.
pub(super) struct JupyterDialer {
    proxies: Matcher,
    tls: TlsConnector,
}

impl std::fmt::Debug for JupyterDialer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl JupyterDialer {
    /// Takes the proxies that the environment names: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`; none for loopback.
    pub(super) fn new(tls: Arc<rustls::ClientConfig>, is_loopback: bool) -> Self {
        let proxies = if is_loopback { Matcher::builder().build() } else { Matcher::from_system() };
        Self { proxies, tls: tls.into() }
    }

    /// Connects to the host of `url`, or says why not.
    pub(super) async fn dial(&self, url: &Url) -> Result<Box<dyn DuplexStream>, String> {
        let dialled = tokio::time::timeout(TIMEOUT, self.try_dial(url)).await;
        dialled.unwrap_or_else(|_| Err(format!("no connection within {} seconds", TIMEOUT.as_secs())))
    }

    async fn try_dial(&self, url: &Url) -> Result<Box<dyn DuplexStream>, String> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(80);
        let uri: http::Uri =
            url.as_str().parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        let stream = match self.proxies.intercept(&uri) {
            None => connect(host, port).await?,
            Some(proxy) => self.tunnel(&proxy, host, port).await?,
        };
        if url.scheme() == "https" { self.encrypt(stream, host).await } else { Ok(stream) }
    }

    async fn encrypt(
        &self,
        stream: Box<dyn DuplexStream>,
        host: &str,
    ) -> Result<Box<dyn DuplexStream>, String> {
        let name = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| innermost_text(&error))?;
        Ok(Box::new(stream))
    }

    /// Asks a proxy for a tunnel to the host.
    async fn tunnel(
        &self,
        proxy: &Intercept,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn DuplexStream>, String> {
        let uri = proxy.uri();
        let proxy_host = uri.host().unwrap_or_default();
        let scheme = uri.scheme_str().unwrap_or("http");
        let failed = |reason: String| format!("the proxy `{proxy_host}` gives no tunnel: {reason}");
        let (is_encrypted, default_port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            other => return Err(failed(format!("proxies of the scheme `{other}` are not spoken to"))),
        };
        let mut stream =
            connect(proxy_host, uri.port_u16().unwrap_or(default_port)).await.map_err(&failed)?;
        if is_encrypted {
            stream = self.encrypt(stream, proxy_host).await.map_err(&failed)?;
        }
        let target = format!("{host}:{port}");
        let mut request = http::Request::connect(&target).header(http::header::HOST, &target);
        if let Some(credentials) = proxy.basic_auth() {
            request = request.header(http::header::PROXY_AUTHORIZATION, credentials);
        }
        let request =
            request.body(http_body_util::Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(describe(&error)))?;
        // This task ends with the tunnel.
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(request).await.map_err(|error| failed(describe(&error)))?;
        if !response.status().is_success() {
            return Err(failed(format!("it answers {}", response.status())));
        }
        let tunnel = hyper::upgrade::on(response).await.map_err(|error| failed(describe(&error)))?;
        Ok(Box::new(TokioIo::new(tunnel)))
    }
}

async fn connect(host: &str, port: u16) -> Result<Box<dyn DuplexStream>, String> {
    let address = (host.trim_matches(['[', ']']), port);
    let stream = TcpStream::connect(address).await.map_err(|error| innermost_text(&error))?;
    Ok(Box::new(quick_ack(stream).map_err(|error| innermost_text(&error))?))
}

/// TLS errors come wrapped in others that repeat them.
fn innermost_text(error: &io::Error) -> String {
    error.get_ref().map_or_else(|| error.to_string(), ToString::to_string)
}
