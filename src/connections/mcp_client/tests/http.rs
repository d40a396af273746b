//! HTTP servers that refuse, redirect, hang, or are no MCP servers at all.

use std::sync::Mutex;

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};

use super::*;

/// What the servers saw, and the address that redirects lead to.
#[derive(Default)]
struct Seen {
    paths: Mutex<Vec<String>>,
    redirect_target: Mutex<String>,
    finished: tokio::sync::Notify,
}

async fn serve(seen: Arc<Seen>) -> String {
    let app = Router::new()
        .route("/status/{code}/mcp", any(status))
        .route("/status/{code}/sse", any(status))
        .route("/oauth/{code}/mcp", any(oauth))
        .route("/oauth/{code}/sse", any(oauth))
        .route("/redirect/{code}/mcp", any(redirect))
        .route("/redirect/{code}/sse", any(redirect))
        .route("/moved/mcp", any(|| async { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/mcp")]) }))
        .route("/echo/mcp", any(echo))
        .route("/echo-late/{chars}/mcp", any(echo_late))
        .route("/html/mcp", any(|| async { ([(header::CONTENT_TYPE, "text/html")], "<html>hello</html>") }))
        .route("/html/sse", any(|| async { ([(header::CONTENT_TYPE, "text/html")], "<html>hello</html>") }))
        .route("/hang/mcp", any(std::future::pending::<()>))
        .route("/hang/sse", any(std::future::pending::<()>))
        .route("/mcp", post(minimal))
        .route("/cutting/mcp", post(cutting))
        .route("/plain/mcp", post(plain))
        .with_state(seen);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

async fn status(UrlPath(code): UrlPath<u16>) -> StatusCode {
    StatusCode::from_u16(code).unwrap()
}

/// Wants a token of an authorization server, or one with more rights.
async fn oauth(UrlPath(code): UrlPath<u16>) -> Response {
    let challenge = match code {
        401 => r#"Bearer realm="OAuth", resource_metadata="https://a/.well-known/oauth-protected-resource""#,
        _ => r#"Bearer error="insufficient_scope", scope="repo:write", resource_metadata="https://a/""#,
    };
    (StatusCode::from_u16(code).unwrap(), [(header::WWW_AUTHENTICATE, challenge)]).into_response()
}

async fn redirect(State(seen): State<Arc<Seen>>, UrlPath(code): UrlPath<u16>) -> Response {
    let target = format!("{}/mcp", seen.redirect_target.lock().unwrap());
    (StatusCode::from_u16(code).unwrap(), [(header::LOCATION, target)]).into_response()
}

/// A page that shows the credentials it was asked with, as careless servers do.
async fn echo(headers: HeaderMap, uri: Uri) -> Response {
    (StatusCode::BAD_REQUEST, format!("you sent {:?} {uri}", headers["authorization"])).into_response()
}

/// The same, after so many characters.
async fn echo_late(UrlPath(chars): UrlPath<usize>, headers: HeaderMap) -> Response {
    (StatusCode::BAD_REQUEST, format!("{} {:?}", "x".repeat(chars), headers["authorization"])).into_response()
}

/// The smallest Streamable HTTP server: no stream. It has forgotten its first session when a tool is called in it, and
/// refuses what the tool `pay` has done.
async fn minimal(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: axum::Json<Value>) -> Response {
    let method = body["method"].as_str().unwrap_or_default().to_owned();
    let mut paths = seen.paths.lock().unwrap();
    paths.push(method.clone());
    let sessions = paths.iter().filter(|method| *method == "initialize").count();
    let id = body["id"].clone();
    let version = body["params"]["protocolVersion"].clone();
    let reply =
        |result: Value| axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response();
    let refuse = |id: &Value, message: &str| {
        axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}}))
    };
    match method.as_str() {
        "initialize" => {
            let result = reply(json!({
                "protocolVersion": version,
                "capabilities": {},
                "serverInfo": {"name": "minimal", "version": "1"}
            }));
            ([("Mcp-Session-Id", sessions.to_string())], result).into_response()
        }
        // Without the request's id, as the servers do that this one imitates.
        "tools/call" if headers.get("Mcp-Session-Id").is_some_and(|session| session == "1") => {
            let refusal = refuse(&Value::Null, "Bad Request: No valid session ID provided");
            (StatusCode::BAD_REQUEST, refusal).into_response()
        }
        "tools/call" if body["params"]["name"] == "pay" => {
            refuse(&id, "paid, but the checkout session could not be closed").into_response()
        }
        "tools/call" if body["params"]["name"] == "pay-400" => {
            let refusal = refuse(&id, "paid, but the checkout session could not be closed");
            (StatusCode::BAD_REQUEST, refusal).into_response()
        }
        "tools/call" if body["params"]["name"] == "busy" => {
            (StatusCode::INTERNAL_SERVER_ERROR, refuse(&json!("server-error"), "busy")).into_response()
        }
        "tools/call" if body["params"]["name"] == "other" => {
            axum::Json(json!({"jsonrpc": "2.0", "id": 777, "result": {"content": []}})).into_response()
        }
        "tools/call" => reply(json!({"content": []})),
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

/// Calls its JSON a text.
async fn plain(seen: State<Arc<Seen>>, headers: HeaderMap, body: axum::Json<Value>) -> Response {
    let mut answer = minimal(seen, headers, body).await;
    answer.headers_mut().insert(header::CONTENT_TYPE, "text/plain; charset=utf-8".parse().unwrap());
    answer
}

/// Cuts the answers to some calls off, and waits with another one.
async fn cutting(State(seen): State<Arc<Seen>>, body: axum::Json<Value>) -> Response {
    let answer = json!({"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}}).to_string();
    match body["params"]["name"].as_str() {
        Some("cut") => ([(header::CONTENT_TYPE, "text/event-stream")], ": hello\n\n").into_response(),
        Some("broken") => {
            let pieces = futures::stream::iter([Ok("{"), Err(std::io::Error::other("cut"))]);
            let body = axum::body::Body::from_stream(pieces);
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Some("wait") => {
            seen.finished.notified().await;
            ([(header::CONTENT_TYPE, "application/json")], answer).into_response()
        }
        _ => minimal(State(seen), HeaderMap::new(), body).await,
    }
}

fn at(url: &str) -> ServerParameters {
    let headers = json!({"Authorization": "Bearer ${TOKEN}", "Accept": "application/json"});
    parameters(json!({"url": format!("{url}?key=${{TOKEN}}"), "headers": headers}))
}

async fn check_refusal(url: &str, expected: &str) {
    check_refusal_within(SOON, url, expected).await;
}

async fn check_refusal_within(timeout: Duration, url: &str, expected: &str) {
    let connector = connector(Path::new("/")).with_connect_timeout(timeout);
    let message = match connector.connect("fake", &at(url)).await {
        Ok(_) => panic!("connected to {url}"),
        Err(error) => error.to_string(),
    };
    assert!(message.contains(expected), "{url}: {message}");
    assert!(!message.contains("hunter2"), "{url}: {message}");
}

#[tokio::test]
async fn refusals_are_reported_with_their_status() {
    let base = serve(Arc::default()).await;
    for (code, expected) in [
        (401, "the server answered HTTP 401 Unauthorized\nhint: credentials go into `headers`"),
        (403, "the server answered HTTP 403 Forbidden\nhint: credentials"),
        (404, "the server answered HTTP 404 Not Found\nhint: is this the URL of an MCP endpoint"),
        (405, "HTTP 405 Method Not Allowed\nhint:"),
        (429, "HTTP 429 Too Many Requests"),
        (500, "HTTP 500 Internal Server Error"),
    ] {
        check_refusal(&format!("{base}/status/{code}/mcp"), expected).await;
        check_refusal(&format!("{base}/status/{code}/sse"), expected).await;
    }
}

#[tokio::test]
async fn the_refusal_of_a_server_that_wants_oauth_says_what_works() {
    let base = serve(Arc::default()).await;
    for transport in ["mcp", "sse"] {
        let url = format!("{base}/oauth/401/{transport}");
        check_refusal(
            &url,
            "HTTP 401 Unauthorized\nhint: without the header `Authorization` ipybox would log in",
        )
        .await;
        check_refusal(&url, "`\"Authorization\": \"Bearer ${TOKEN}\"`").await;
        let open = parameters(json!({"url": url}));
        let connecting = connector(Path::new("/")).connect("fake", &open).await;
        let error = connecting.err().unwrap().to_string();
        assert!(
            error.contains(
                "401 Unauthorized: it asks for a login\nhint: let the user run `ipybox login fake`"
            ),
            "{error}"
        );
        let url = format!("{base}/oauth/403/{transport}");
        check_refusal(&url, "HTTP 403 Forbidden: the token lacks the scope `repo:write`").await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_mcp_is_reported() {
    let base = serve(Arc::default()).await;
    check_refusal(&format!("{base}/html/mcp"), "the content type `text/html`").await;
    check_refusal(&format!("{base}/html/sse"), "the content type `text/html`").await;
    let second = Duration::from_secs(1);
    for transport in ["mcp", "sse"] {
        let url = format!("{base}/hang/{transport}");
        check_refusal_within(second, &url, "did not answer `initialize` within 1 s").await;
    }
    check_refusal("http://127.0.0.1:1/mcp", "Connection refused").await;
    check_refusal("http://127.0.0.1:1/sse", "Connection refused").await;
}

#[tokio::test]
async fn json_that_is_called_a_text_is_read() {
    let base = serve(Arc::default()).await;
    let connection =
        connector(Path::new("/")).connect("fake", &at(&format!("{base}/plain/mcp"))).await.unwrap();
    assert_eq!(connection.identity().name, "minimal");
    connection.close().await;
}

#[tokio::test]
async fn what_a_server_echoes_is_shown_without_secrets() {
    let base = serve(Arc::default()).await;
    check_refusal(&format!("{base}/echo/mcp"), "Bearer ${TOKEN}").await;
    // Wherever the text is cut, no part of the token is left.
    for chars in (200..500).step_by(5) {
        check_refusal(&format!("{base}/echo-late/{chars}/mcp"), "400 Bad Request").await;
    }
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_origin_only() {
    let (first, second) = (Arc::<Seen>::default(), Arc::<Seen>::default());
    *first.redirect_target.lock().unwrap() = serve(second.clone()).await;
    let base = serve(first.clone()).await;
    for code in [301, 302, 303, 307, 308] {
        let expected = "hint: the server redirects to another address";
        check_refusal(&format!("{base}/redirect/{code}/mcp"), expected).await;
        check_refusal(&format!("{base}/redirect/{code}/sse"), expected).await;
    }
    assert!(second.paths.lock().unwrap().is_empty());
    let connection =
        connector(Path::new("/")).connect("fake", &at(&format!("{base}/moved/mcp"))).await.unwrap();
    assert_eq!(connection.identity().name, "minimal");
    assert_eq!(*first.paths.lock().unwrap(), ["initialize", "notifications/initialized"]);
}

#[tokio::test]
async fn all_calls_of_a_session_that_the_server_forgot_may_be_made_again() {
    let seen = Arc::<Seen>::default();
    let base = serve(Arc::clone(&seen)).await;
    let connector = connector(Path::new("/"));
    let connection = connector.connect("fake", &at(&format!("{base}/mcp"))).await.unwrap();
    let calls = (0..5).map(|_| connection.call("any", Map::new()));
    for answer in futures::future::join_all(calls).await {
        let error = answer.unwrap_err();
        assert!(matches!(error, CallError::Disconnected { may_have_run: false, .. }), "{error:?}");
    }
    assert!(!connection.is_alive());
    let connection = connector.connect("fake", &at(&format!("{base}/mcp"))).await.unwrap();
    connection.call("any", Map::new()).await.unwrap();
    connection.close().await;
}

/// A connection in the second session, which the server does not forget.
async fn in_second_session(base: &str) -> Connection {
    let connector = connector(Path::new("/"));
    let parameters = at(&format!("{base}/mcp"));
    let first = connector.connect("fake", &parameters).await.unwrap();
    first.call("any", Map::new()).await.unwrap_err();
    connector.connect("fake", &parameters).await.unwrap()
}

#[tokio::test]
async fn an_error_of_a_tool_that_speaks_of_a_session_is_the_tools() {
    let seen = Arc::<Seen>::default();
    let base = serve(Arc::clone(&seen)).await;
    let connection = in_second_session(&base).await;
    seen.paths.lock().unwrap().clear();
    for tool in ["pay", "pay-400"] {
        let error = connection.call(tool, Map::new()).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { code: -32000, .. }), "{error:?}");
    }
    assert_eq!(*seen.paths.lock().unwrap(), ["tools/call", "tools/call"]);
    assert!(connection.is_alive());
    connection.close().await;
}

#[tokio::test]
async fn a_refusal_with_an_id_of_its_own_ends_the_call() {
    let base = serve(Arc::default()).await;
    let connection = in_second_session(&base).await;
    let busy = connection.call("busy", Map::new());
    let error = tokio::time::timeout(SOON, busy).await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Protocol { message, .. } if message == "busy"), "{error:?}");
    assert!(connection.is_alive());
    connection.close().await;
}

#[tokio::test]
async fn an_answer_to_another_request_fails_the_call() {
    let base = serve(Arc::default()).await;
    let connection = in_second_session(&base).await;
    let error = connection.call("other", Map::new()).await.unwrap_err();
    let expected = "the server's answer is not the one to the request";
    assert!(matches!(&error, CallError::Unusable { reason } if reason == expected), "{error:?}");
    assert!(connection.is_alive());
    connection.close().await;
}

#[tokio::test]
async fn a_call_whose_answer_is_cut_off_takes_no_other_along() {
    let seen = Arc::<Seen>::default();
    let base = serve(Arc::clone(&seen)).await;
    for (tool, is_known_to_live) in [("cut", true), ("broken", false)] {
        let connector = connector(Path::new("/"));
        let connection = connector.connect("fake", &at(&format!("{base}/cutting/mcp"))).await.unwrap();
        let cut = async {
            let error = connection.call(tool, Map::new()).await.unwrap_err();
            assert!(matches!(error, CallError::Disconnected { may_have_run: true, .. }), "{error:?}");
            assert_eq!(connection.is_alive(), is_known_to_live, "{tool}");
            seen.finished.notify_one();
        };
        let (waited, ()) = tokio::join!(connection.call("wait", Map::new()), cut);
        waited.unwrap();
        connection.close().await;
    }
}
