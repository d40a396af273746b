//! The proxy's HTTP/1: tunnels (`CONNECT`) and plain requests (`GET http://…`), which are sent on.
//!
//! Requests that are sent on lose what concerns this connection only (RFC 9110, 7.6.1), and get the `Host` of the URL
//! that was judged. Each has a connection of its own, so that none can end in another's.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::ProxyServer;
use super::dial::DialFailure;
use super::idle::ProxyClient;
use crate::kernels::sandbox::domain::DomainHost;

/// The longest head of a request: a long URL and some cookies.
const LONGEST_HEAD: usize = 64 * 1024;

/// Says in answers which of them are ours, and why.
const PROXY_ERROR: HeaderName = HeaderName::from_static("x-proxy-error");

/// The headers that concern one connection only. `Connection` names more.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

type ProxyBody = Either<Incoming, Full<Bytes>>;

/// A tunnel that has been confirmed to its client.
type Tunnel = (OnUpgrade, TcpStream);

/// Why a request is answered by us.
#[derive(Debug, thiserror::Error)]
enum ProxyRefusal {
    #[error("this is the sandbox's proxy, and no server: send the full URL, or `CONNECT host:port`")]
    NoTarget,
    #[error("the sandbox's proxy tunnels to `https` hosts by `CONNECT`, and sends on `http` only")]
    Scheme,
    #[error("`{0}` is no host name")]
    NoHost(String),
    #[error(transparent)]
    Dial(#[from] DialFailure),
    #[error("`{host}` did not answer: {source}")]
    NoAnswer { host: DomainHost, source: hyper::Error },
}

/// Serves one connection until it ends.
///
/// # Errors
///
/// If the client goes away or does not speak HTTP.
pub(super) async fn serve(client: impl ProxyClient, server: &Arc<ProxyServer>) -> io::Result<()> {
    let tunnel = Arc::new(Mutex::new(None));
    let service = service_fn(|request| answer(request, server, &tunnel));
    server::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(server.limits.handshake)
        .max_buf_size(LONGEST_HEAD)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades()
        .await
        .map_err(io::Error::other)?;
    let tunnel: Option<Tunnel> = tunnel.lock().take();
    if let Some((upgrade, mut server)) = tunnel {
        let mut client = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    }
    Ok(())
}

async fn answer(
    request: Request<Incoming>,
    server: &Arc<ProxyServer>,
    tunnel: &Mutex<Option<Tunnel>>,
) -> Result<Response<ProxyBody>, hyper::Error> {
    let answered = if request.method() == Method::CONNECT {
        connect(request, server, tunnel).await
    } else {
        forward(request, server).await
    };
    Ok(answered.unwrap_or_else(|error| error.into_response()))
}

/// Opens a tunnel, to be used when the client has its answer.
async fn connect(
    mut request: Request<Incoming>,
    server: &ProxyServer,
    tunnel: &Mutex<Option<Tunnel>>,
) -> Result<Response<ProxyBody>, ProxyRefusal> {
    let authority = request.uri().authority().ok_or(ProxyRefusal::NoTarget)?;
    let port = authority.port_u16().ok_or(ProxyRefusal::NoTarget)?;
    let (host, port) = target(authority, port)?;
    let stream = server.dialer.dial(&host, port).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    *tunnel.lock() = Some((upgrade, stream));
    Ok(Response::new(Either::Right(Full::default())))
}

/// Sends a plain request on.
async fn forward(
    mut request: Request<Incoming>,
    server: &ProxyServer,
) -> Result<Response<ProxyBody>, ProxyRefusal> {
    let authority = request.uri().authority().ok_or(ProxyRefusal::NoTarget)?;
    if request.uri().scheme() != Some(&Scheme::HTTP) {
        return Err(ProxyRefusal::Scheme);
    }
    let (host, port) = target(authority, authority.port_u16().unwrap_or(80))?;
    let named = if port == 80 { host.to_string() } else { format!("{host}:{port}") };
    let stream = server.dialer.dial(&host, port).await?;

    let no_answer = |source| ProxyRefusal::NoAnswer { host: host.clone(), source };
    let builder = client::Builder::new().max_buf_size(LONGEST_HEAD).preserve_header_case(true).clone();
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
    let stop = server.stop.clone();
    server.tasks.spawn(async move {
        // A failure shows in the answer, or in its body, which then ends early.
        if let Some(Err(error)) = stop.run_until_cancelled(connection).await {
            tracing::debug!(%error, "forwarded request failed");
        }
    });

    keep_end_to_end(request.headers_mut());
    let host_header = HeaderValue::try_from(&named).map_err(|_| ProxyRefusal::NoHost(named.clone()))?;
    request.headers_mut().insert(header::HOST, host_header);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|_| ProxyRefusal::NoTarget)?;
    *request.version_mut() = Version::HTTP_11;
    let mut response = sender.send_request(request).await.map_err(no_answer)?;
    keep_end_to_end(response.headers_mut());
    Ok(response.map(Either::Left))
}

fn target(authority: &Authority, port: u16) -> Result<(DomainHost, u16), ProxyRefusal> {
    let host = DomainHost::parse(authority.host())
        .ok_or_else(|| ProxyRefusal::NoHost(authority.host().to_owned()))?;
    if port == 0 { Err(ProxyRefusal::NoTarget) } else { Ok((host, port)) }
}

fn keep_end_to_end(headers: &mut HeaderMap) {
    // Who sends a length and chunks means the chunks (RFC 9112, 6.3); the length must not be believed by others.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        listed.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

impl ProxyRefusal {
    fn into_response(self) -> Response<ProxyBody> {
        let (status, kind) = match &self {
            Self::NoTarget | Self::Scheme | Self::NoHost(_) => (StatusCode::BAD_REQUEST, "bad-request"),
            Self::Dial(DialFailure::Refused(_)) => (StatusCode::FORBIDDEN, "blocked-by-ipybox-sandbox"),
            Self::Dial(DialFailure::Unknown { .. }) => (StatusCode::BAD_GATEWAY, "host-not-found"),
            Self::Dial(_) | Self::NoAnswer { .. } => (StatusCode::BAD_GATEWAY, "host-unreachable"),
        };
        let mut response = Response::new(Either::Right(Full::from(format!("{self}\n"))));
        *response.status_mut() = status;
        // Clients show the status line, and nothing else, of a tunnel that was refused.
        if let Ok(reason) = ReasonPhrase::try_from(self.to_string()) {
            response.extensions_mut().insert(reason);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(PROXY_ERROR, HeaderValue::from_static(kind));
        response
    }
}
