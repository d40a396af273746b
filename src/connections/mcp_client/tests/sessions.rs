//! Sessions over HTTP that the server no longer knows, in all forms in which servers say so.

use super::hostile::over_http_by;
use super::*;

const FORGETFUL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/forgetful.py");

/// All of `FORMS` there.
const FORMS: [&str; 17] = [
    "text",
    "uninitialized",
    "other-id",
    "own-id",
    "unauthorized",
    "not-found",
    "not-found-own-id",
    "gone",
    "unprocessable",
    "internal",
    "unavailable",
    "ok-own-id",
    "ok-no-id",
    "ok-bare",
    "ok-text",
    "ok-events",
    "ok-events-no-id",
];

#[tokio::test]
async fn a_lost_session_is_known_in_each_form_and_the_call_may_be_made_again() {
    let (_server, url) = over_http_by(&[FORGETFUL]).await;
    for form in FORMS {
        let parameters = parameters(json!({"url": format!("{url}/{form}/mcp")}));
        let connector = connector(Path::new("/"));
        let connection = connector.connect("forgetful", &parameters).await.unwrap();
        assert_eq!(text(&connection, "count", json!({})).await, "1", "{form}");
        connection.call("forget", Map::new()).await.unwrap();
        let error = connection.call("count", Map::new()).await.unwrap_err();
        assert!(matches!(error, CallError::Disconnected { may_have_run: false, .. }), "{form}: {error:?}");
        assert!(error.to_string().contains("no longer knows the session"), "{form}: {error}");
        assert!(!connection.is_alive(), "{form}");
        let connection = connector.connect("forgetful", &parameters).await.unwrap();
        assert_eq!(text(&connection, "count", json!({})).await, "2", "{form}");
        connection.close().await;
    }
}

#[tokio::test]
async fn what_a_tool_says_about_a_session_of_its_own_is_its_answer() {
    let (_server, url) = over_http_by(&[FORGETFUL]).await;
    let parameters = parameters(json!({"url": format!("{url}/text/mcp")}));
    let connection = connector(Path::new("/")).connect("forgetful", &parameters).await.unwrap();
    let error = connection.call("expire", Map::new()).await.unwrap_err();
    assert!(matches!(error, CallError::Protocol { code: -32000, .. }), "{error:?}");
    assert!(connection.is_alive());
    assert_eq!(text(&connection, "count", json!({})).await, "2", "it was called once");
    connection.close().await;
}
