//! HTTP servers that refuse the newest revision of the protocol, each in its own way, or `initialize` itself.

use std::sync::Mutex;

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::*;

/// The revisions that were asked for by `initialize`, and the other methods.
type Asked = Arc<Mutex<Vec<String>>>;

async fn serve(asked: Asked) -> String {
    let app = Router::new()
        .route("/{form}/mcp", post(answer).delete(|| async { StatusCode::NOT_FOUND }))
        .with_state(asked);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

const SUPPORTED: [&str; 2] = ["2025-03-26", "2024-11-05"];
const WORDS: &str = "Bad Request: Unsupported protocol version (supported versions: 2025-03-26, 2024-11-05)";

async fn answer(
    State(asked): State<Asked>,
    UrlPath(form): UrlPath<String>,
    headers: HeaderMap,
    body: axum::Json<Value>,
) -> Response {
    let (method, id) = (body["method"].as_str().unwrap_or_default(), body["id"].clone());
    let revision = body["params"]["protocolVersion"].as_str().unwrap_or(method);
    asked.lock().unwrap().push(revision.to_owned());
    let header = headers.get("mcp-protocol-version").map(|header| header.to_str().unwrap().to_owned());
    let knows = |revision: &str| SUPPORTED.contains(&revision);
    let reply =
        |result: Value| axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response();
    let refuse = |id: Value, code: i32, message: &str, data: Value| {
        axum::Json(
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}}),
        )
    };
    let bad = StatusCode::BAD_REQUEST;
    match (form.as_str(), method) {
        ("text", "initialize") if !knows(revision) => (bad, WORDS).into_response(),
        ("no-id", "initialize") if !knows(revision) => {
            (bad, refuse(Value::Null, -32000, WORDS, Value::Null)).into_response()
        }
        ("data", "initialize") if !knows(revision) => {
            let data = json!({"supported": SUPPORTED, "requested": revision});
            refuse(id, -32022, "Unsupported protocol version", data).into_response()
        }
        ("unnamed", "initialize") if revision != "2024-11-05" => {
            (bad, "unsupported protocolVersion").into_response()
        }
        ("header", method) if method != "initialize" && !header.as_deref().is_some_and(knows) => {
            (bad, WORDS).into_response()
        }
        ("initialized", "notifications/initialized") => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        ("no-method", "initialize") => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        ("server-error", "initialize") => refuse(id, -32000, "no", Value::Null).into_response(),
        ("no-method" | "server-error", "server/discover") => reply(json!({"capabilities": {"tools": {}}})),
        (_, "initialize") => reply(json!({"protocolVersion": revision, "capabilities": {"tools": {}}})),
        (_, "tools/list") => reply(json!({"tools": [{"name": "a", "inputSchema": {"type": "object"}}]})),
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

async fn check(form: &str, expected: &str, expected_asked: &[&str]) {
    let asked = Asked::default();
    let url = serve(Arc::clone(&asked)).await;
    let parameters = parameters(json!({"url": format!("{url}/{form}/mcp")}));
    let connection = connector(Path::new("/")).connect("fake", &parameters).await.unwrap();
    assert_eq!(connection.identity().protocol_version, expected, "{form}");
    assert_eq!(connection.list_tools().await.unwrap().len(), 1, "{form}");
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked[..expected_asked.len()], *expected_asked, "{form}");
    connection.close().await;
}

#[tokio::test]
async fn a_server_that_refuses_the_newest_revision_is_asked_for_the_newest_one_that_it_has() {
    for form in ["text", "no-id", "data"] {
        check(form, "2025-03-26", &["2025-11-25", "2025-03-26", "notifications/initialized", "tools/list"])
            .await;
    }
    check("unnamed", "2024-11-05", &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]).await;
}

#[tokio::test]
async fn a_server_that_refuses_the_header_of_the_revision_is_asked_for_an_older_one() {
    check("header", "2025-03-26", &["2025-11-25", "notifications/initialized", "2025-03-26"]).await;
}

#[tokio::test]
async fn a_refused_notification_does_not_end_the_connection() {
    check("initialized", "2025-11-25", &["2025-11-25", "notifications/initialized", "tools/list"]).await;
}

#[tokio::test]
async fn a_server_that_has_no_initialize_may_have_discover_with_few_words() {
    for form in ["no-method", "server-error"] {
        check(form, "2026-07-28", &["2025-11-25", "server/discover", "tools/list"]).await;
    }
}
