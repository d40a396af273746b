//! The listener on this machine to which the browser brings the authorization server's answer (RFC 8252 §7.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::callback_answer::{ArrivedCallback, CallbackAnswer, read};
use super::front_callback::FrontCallback;
use super::{Error, foreign};
use crate::ground::files::FrontSocket;
use crate::ground::web::listener::{self, BusyRequest, ListenerLimits};

/// The attempts to find a free port: it has to be free for both addresses of `localhost`.
const PORTS: usize = 16;
/// The time that the browser's page waits to say how the login has ended.
const PAGE_TIMEOUT: Duration = Duration::from_secs(45);
/// The time that the end of a login waits for the browser to take its page. No connection outlives it.
const LAST_PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time in which the server of a team has to know of a login.
const FRONT_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of answers that may wait to be looked at.
const WAITING: usize = 4;

/// Listens while it lives.
pub(super) struct LoginCallback {
    /// The redirect URI, with its port.
    pub(super) uri: String,
    arriving: mpsc::Receiver<ArrivedCallback>,
    expected: Arc<std::sync::OnceLock<String>>,
    /// The server of a team, if the answer comes there.
    front: Option<FrontCallback>,
    listening: TaskTracker,
    stop: DropGuard,
}

#[derive(Clone)]
struct CallbackPage {
    hosts: Arc<Vec<String>>,
    path: Arc<str>,
    expected: Arc<std::sync::OnceLock<String>>,
    arrived: mpsc::Sender<ArrivedCallback>,
}

impl LoginCallback {
    /// Listens on the redirect URI that the client was registered with, or on a free port.
    pub(super) async fn listen(redirect_uri: Option<&str>) -> Result<Self, Error> {
        let uri = redirect_uri.unwrap_or("http://localhost/callback");
        let failed = |cause: std::io::Error| Error::Listen { uri: foreign(uri), cause };
        let wrong = |why: &str| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, why.to_owned()));
        let mut url = check_redirect_uri(uri).map_err(wrong)?;
        let (listeners, port) = bind(url.port().unwrap_or_default()).await.map_err(failed)?;
        if url.set_port(Some(port)).is_err() {
            return Err(wrong("it takes no port"));
        }
        let (arrived, arriving) = mpsc::channel(WAITING);
        let expected = Arc::default();
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
        let path = Arc::from(url.path());
        let page =
            CallbackPage { hosts: Arc::new(hosts.to_vec()), path, expected: Arc::clone(&expected), arrived };
        let router = Router::new().fallback(answered).with_state(page);
        let stop = CancellationToken::new();
        let listening = TaskTracker::new();
        // Both addresses share their connections.
        let limits = ListenerLimits::of_browsers("listener for a login", LAST_PAGE_TIMEOUT);
        for listener in listeners {
            listening.spawn(listener::serve(listener, router.clone(), limits.clone(), stop.clone()));
        }
        listening.close();
        let stop = stop.drop_guard();
        Ok(Self { uri: url.to_string(), arriving, expected, front: None, listening, stop })
    }

    /// Waits for the browser at the server of a team. `server` is the host of the MCP server.
    pub(super) fn at_front(front: FrontSocket, server: &str) -> Self {
        let (arrived, arriving) = mpsc::channel(WAITING);
        let uri = front.callback.clone();
        let front = Some(FrontCallback { front, server: server.to_owned(), arrived });
        let listening = TaskTracker::new();
        let stop = CancellationToken::new().drop_guard();
        listening.close();
        Self { uri, arriving, expected: Arc::default(), front, listening, stop }
    }

    /// Whether the browser comes to this machine.
    pub(super) fn is_here(&self) -> bool {
        self.front.is_none()
    }

    /// Answers with another `state` are not ours: anybody can send a browser here.
    ///
    /// # Errors
    /// The server of a team cannot be reached.
    pub(super) async fn expect(&mut self, state: &str) -> Result<(), Error> {
        // It is set once, by the login that has made this.
        self.expected.set(state.to_owned()).ok();
        if let Some(front) = self.front.take() {
            let (begun, has_begun) = oneshot::channel();
            self.listening.spawn(front.wait(state.to_owned(), begun));
            if !matches!(tokio::time::timeout(FRONT_TIMEOUT, has_begun).await, Ok(Ok(()))) {
                return Err(Error::Listen {
                    uri: self.uri.clone(),
                    cause: std::io::ErrorKind::TimedOut.into(),
                });
            }
        }
        Ok(())
    }

    /// Ends, once the browser has its page, and with it all connections.
    pub(super) async fn end(self) {
        drop((self.arriving, self.stop));
        self.listening.wait().await;
    }

    pub(super) async fn answer(&mut self) -> Option<ArrivedCallback> {
        self.arriving.recv().await
    }
}

/// Whether `uri` can be a redirect URI: a page on this machine, with a port or, for a free one, without.
///
/// # Errors
/// Why it cannot; the text follows "`redirect_uri`: ".
pub(crate) fn check_redirect_uri(uri: &str) -> Result<Url, &'static str> {
    let url = Url::parse(uri).map_err(|_| "it is not a URL; write `http://localhost:PORT/callback`")?;
    let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if url.scheme() == "http" && is_here && is_bare && url.fragment().is_none() && url.port() != Some(0) {
        Ok(url)
    } else {
        Err("the browser brings the answer to this machine; write `http://localhost:PORT/callback`")
    }
}

/// Listens on both addresses of `localhost`, as browsers may try either; another program may have neither of them.
/// Where there is no IPv6, one is enough. 0 is a free port.
async fn bind(port: u16) -> std::io::Result<(Vec<TcpListener>, u16)> {
    let mut tries = 0;
    loop {
        let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), port)).await?;
        let found = listener.local_addr()?.port();
        match TcpListener::bind((IpAddr::V6(Ipv6Addr::LOCALHOST), found)).await {
            Ok(other) => return Ok((vec![listener, other], found)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                tries += 1;
                if port != 0 || tries == PORTS {
                    return Err(error);
                }
            }
            Err(_) => return Ok((vec![listener], found)),
        }
    }
}

async fn answered(State(page): State<CallbackPage>, request: Request) -> Response {
    if request.method() != Method::GET || request.uri().path() != &*page.path {
        return shown(StatusCode::NOT_FOUND, "There is nothing here.");
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !page.hosts.iter().any(|known| known == host) {
        return shown(StatusCode::MISDIRECTED_REQUEST, "This is not the address of a login.");
    }
    let expected = page.expected.get().map(String::as_str).unwrap_or_default();
    let answer = match read(request.uri().query().unwrap_or_default(), expected) {
        _ if expected.is_empty() => return shown(StatusCode::NOT_FOUND, "No login is waiting for this."),
        Err(None) => {
            let text = "This answer belongs to another login (its state is another), and is not used.";
            return shown(StatusCode::BAD_REQUEST, text);
        }
        Err(Some(error)) => Err(error),
        Ok(answer) => Ok(answer),
    };
    // Only the authorization server's answer has the state.
    let busy = BusyRequest::begin(request.extensions());
    busy.until_written(outcome(&page, answer).await)
}

/// Passes the answer on, and waits for the page that says how the login has ended.
async fn outcome(page: &CallbackPage, answer: Result<CallbackAnswer, Error>) -> Response {
    let (sender, outcome) = oneshot::channel();
    if page.arrived.send(ArrivedCallback { answer, page: sender }).await.is_err() {
        return shown(StatusCode::GONE, "This login is over.");
    }
    match tokio::time::timeout(PAGE_TIMEOUT, outcome).await {
        Ok(Ok(Ok(()))) => shown(StatusCode::OK, "ipybox is logged in. You can close this page."),
        Ok(Ok(Err(why))) => shown(StatusCode::OK, &format!("ipybox is not logged in: {why}")),
        Ok(Err(_)) | Err(_) => shown(StatusCode::OK, "This login is over."),
    }
}

/// A page with a text, without a way to anywhere.
fn shown(status: StatusCode, text: &str) -> Response {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>ipybox</title><style>body{{font:1.1rem system-ui;margin:20vh auto;max-width:36rem;padding:0 1rem;\
         color-scheme:light dark}}</style><p>{text}</p></html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
        ),
    ];
    (status, headers, page).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn only_an_answer_to_our_question_is_one() {
        let answer = read("code=c&state=s&iss=https%3A%2F%2Fas", "s").unwrap();
        assert_eq!((answer.code.as_str(), answer.issuer.as_deref()), ("c", Some("https://as")));
        for query in ["", "code=c", "code=c&state=t", "error=access_denied&state=t"] {
            assert!(read(query, "s").unwrap_err().is_none(), "{query}");
        }
        let check = |query: &str, expected: &str| {
            let error = read(query, "s").unwrap_err().unwrap().to_string();
            assert!(error.contains(expected) && !error.contains('\x1b'), "{query}: {error}");
        };
        check("state=s", "no `code`");
        check("state=s&code=", "no `code`");
        check("state=s&code=a&code=b", "`code` is in it twice");
        assert!(read("a=1&a=2", "s").unwrap_err().is_none());
        assert!(read("state=s&state=s&code=c", "s").unwrap_err().is_none());
        check("state=s&error=access_denied&error_description=no%1b%5b31m", "access_denied: no");
    }

    #[tokio::test]
    async fn half_requests_keep_no_answer_out_and_end_with_the_login() {
        let mut callback = LoginCallback::listen(None).await.unwrap();
        callback.expect("s").await.unwrap();
        let address = format!("127.0.0.1:{}", Url::parse(&callback.uri).unwrap().port().unwrap());
        let connect = async |text: &str| {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        };
        let mut held = Vec::new();
        let mut is_closed_for_others = false;
        // After five seconds it is closed in any case, also on a machine that stood still meanwhile: several tries.
        for _ in 0..20 {
            held.clear();
            let begin = Instant::now();
            for _ in 0..listener::BROWSER_CONNECTIONS + 10 {
                held.push(connect("GET /callback?code=a&state=s HTTP/1.1\r\n").await);
            }
            let closed = tokio::time::timeout(Duration::from_secs(60), held[0].read(&mut [0])).await;
            assert_eq!(closed.expect("the first is closed").unwrap_or(0), 0);
            is_closed_for_others = begin.elapsed() < Duration::from_secs(3);
            if is_closed_for_others {
                break;
            }
        }
        assert!(is_closed_for_others, "the first is closed for others");
        let answer = format!("GET /callback?code=c&state=s HTTP/1.1\r\nhost: {address}\r\n\r\n");
        let mut browser = connect(&answer).await;
        let arrived = callback.answer().await.unwrap();
        for _ in 0..listener::BROWSER_CONNECTIONS + 10 {
            held.push(connect("GET /callback").await);
        }
        assert_eq!(arrived.answer.unwrap().code, "c");
        arrived.page.send(Ok(())).unwrap();
        let mut page = vec![0; 12];
        browser.read_exact(&mut page).await.unwrap();
        assert_eq!(page, b"HTTP/1.1 200");
        callback.end().await;
        for mut stream in held {
            // They may be reset.
            stream.read_to_end(&mut Vec::new()).await.ok();
        }
    }

    #[tokio::test]
    async fn the_redirect_uri_is_on_this_machine() {
        for uri in [
            "https://localhost/callback",
            "http://example.com/callback",
            "http://localhost/c?x=1",
            "http://localhost:1@evil.example/",
            "http://127.0.0.2:1/c",
            "http://a.localhost:1/c",
            "http://u@localhost:1/c",
            "x",
        ] {
            assert!(LoginCallback::listen(Some(uri)).await.is_err(), "{uri}");
        }
        let free = LoginCallback::listen(None).await.unwrap();
        assert!(free.uri.starts_with("http://localhost:") && free.uri.ends_with("/callback"), "{}", free.uri);
        let error = LoginCallback::listen(Some(&free.uri)).await.err().unwrap().to_string();
        assert!(error.contains(&free.uri), "{error}");
    }
}
