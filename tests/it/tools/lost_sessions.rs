//! Servers over HTTP that have forgotten the session, as after a restart.

use serde_json::json;
use tokio::process::Command;

use super::newest::over_http;
use crate::support::{Place, kernel_python, test_server};

#[tokio::test]
async fn a_call_in_a_forgotten_session_is_made_once_more_in_a_new_one() {
    let (_child, server) = over_http(Command::new(kernel_python()).arg(test_server("forgetful.py"))).await;
    let url = server["url"].as_str().unwrap();
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (form, name) in [("text", "text"), ("unavailable", "unavailable"), ("ok-events", "ok_events")] {
        ipybox.register(name, json!({"url": url.replace("/mcp", &format!("/{form}/mcp"))})).await.ok();
        let code = format!(
            "from mcptools.{name} import CLIENT, count, expire, forget\n\
             print(count.run())\n\
             forget.run()\n\
             print(count.run())\n\
             try: expire.run()\n\
             except Exception as error: print(error)\n\
             forget.run()\n\
             CLIENT.run_sync('count', {{'large': 'x' * 2_000_000}})\n\
             print(count.run())"
        );
        let shown = ipybox.cell(&code).await.ok();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!((lines[0], lines[1], lines.last()), ("1", "2", Some(&"5")), "{form}: {shown}");
        assert!(shown.contains("log in to the bank again"), "{form}: {shown}");
    }
    ipybox.stop().await;
}
