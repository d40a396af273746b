//! Servers that speak the protocol's newest revision alone (2026-07-28): well-behaved ones, made with the TypeScript SDK, and
//! others.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::{Ipybox, PATIENCE, Place, all_fail, all_say, kernel_python, test_server, tool};

fn server(transport: &str) -> [String; 3] {
    let (script, packages) = (test_server("newest.mjs"), tool("npm"));
    [script.to_str().unwrap().to_owned(), packages.to_str().unwrap().to_owned(), transport.to_owned()]
}

fn by_stdio() -> Value {
    json!({"command": tool("bin/node"), "args": server("stdio")})
}

async fn session(place: &Place, capabilities: Value) -> Ipybox {
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    ipybox.initialize_with(capabilities).await;
    ipybox
}

/// Everything that goes the same way over both transports.
async fn is_used(ipybox: &mut Ipybox, server: Value) {
    ipybox.register("newest", server).await.ok();
    all_say(
        ipybox,
        &[
            ("from mcptools.newest import add, book, think, wait\nprint(add.run(a=1, b=2))", "3"),
            ("print(wait.run(rounds=3))", "after 3"),
            ("from mcptools.newest import resources\nprint(resources.read('note://1')[:])", "a note"),
        ],
    )
    .await;
    let booking = ipybox.start_cell("print(book.run(place='Rome'))").await;
    let asked = ipybox.question().await;
    assert_eq!(asked["params"]["message"], "The MCP server `newest` asks:\n\nWhich day?", "{asked}");
    ipybox.respond(&asked, json!({"action": "accept", "content": {"day": "Friday"}})).await;
    assert_eq!(booking.answer().await.ok(), r#"Rome: {"day":"Friday","seats":2} (asked)"#);
    let booking = ipybox.start_cell("print(book.run(place='Rome'))").await;
    let asked = ipybox.question().await;
    ipybox.respond(&asked, json!({"action": "decline"})).await;
    assert_eq!(booking.answer().await.ok(), "Rome: decline (asked)");
    all_fail(ipybox, &[("think.run()", "do not declare the required capability")]).await;
    // The connection lives on.
    all_say(ipybox, &[("print(add.run(a=2, b=2))", "4")]).await;
}

#[tokio::test]
async fn a_program_is_used_as_any_other() {
    let place = Place::new();
    let mut ipybox = session(&place, json!({"elicitation": {"form": {}}})).await;
    is_used(&mut ipybox, by_stdio()).await;
    all_fail(&mut ipybox, &[("wait.run(rounds=1000)", "wanted the request again 30 times")]).await;
    let changed = ipybox.cell("from mcptools.newest import change\nprint(change.run())").await.ok();
    assert!(changed.contains("Added: added"), "{changed}");
    ipybox.stop().await;
}

/// A server that prints its port, and its parameters.
pub(super) async fn over_http(command: &mut Command) -> (Child, Value) {
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.next_line().await.unwrap().unwrap();
    (child, json!({"url": format!("http://127.0.0.1:{port}/mcp")}))
}

#[tokio::test]
async fn a_server_over_http_is_used_as_any_other() {
    let (_child, server) = over_http(Command::new(tool("bin/node")).args(server("http"))).await;
    let place = Place::new();
    let mut ipybox = session(&place, json!({"elicitation": {"form": {}}})).await;
    is_used(&mut ipybox, server).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn arguments_are_repeated_in_headers_in_later_sessions_too() {
    let mut command = Command::new(tool("mcp2/bin/python"));
    let (_child, server) = over_http(command.arg(test_server("headers.py"))).await;
    let place = Place::new();
    let many = "from mcptools.headers import where
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print({called.result for called in pool.map(lambda _: where.run(region='é north'), range(8))})";
    for is_new in [true, false] {
        let mut ipybox = session(&place, json!({})).await;
        if is_new {
            ipybox.register("headers", server.clone()).await.ok();
        }
        all_say(&mut ipybox, &[(many, "{'in é north'}")]).await;
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn questions_are_refused_where_nobody_can_be_asked() {
    let place = Place::new();
    let mut ipybox = session(&place, json!({})).await;
    ipybox.register("newest", by_stdio()).await.ok();
    let refused = ipybox.cell("from mcptools.newest import book\nbook.run(place='Rome')").await.error();
    assert!(refused.contains("the MCP client does not support elicitation"), "{refused}");
    ipybox.stop().await;
}

/// Wants what was not offered to it, and never has enough. Its arguments say how it answers first requests.
const HOSTILE: &str = r#"
import json, os, sys
token = os.environ.get("TOKEN", "")
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
form = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
wanted = {
    "sample": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    "roots": {"method": "roots/list"},
    "ask": {"method": "elicitation/create", "params": form},
    "measure": {"method": "weather/get"},
    "remember": {"method": "elicitation/create", "params": form},
}
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            send(id=message["id"], error={"code": int(sys.argv[1]), "message": "no " + "initialize"})
        case "server/discover" if sys.argv[2] == "yes":
            send(method="notifications/message", params={"level": "info", "data": "early"})
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}, "resultType": "complete"}
            send(id=message["id"], result=result | {"ttlMs": 0, "cacheScope": "private"})
        case "server/discover" if sys.argv[2] == "no":
            send(id=message["id"], error={"code": -32601, "message": "no discover " + token})
        case "subscriptions/listen":
            send(id=message["id"], error={"code": -32601, "message": "no subscription " + token})
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in wanted]
            send(id=message["id"], result={"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
        case "tools/call":
            name, state = message["params"]["name"], message["params"].get("requestState")
            if name == "remember" and state:
                content = [{"type": "text", "text": f"{len(state)} characters"}]
                send(id=message["id"], result={"resultType": "complete", "content": content})
            else:
                needed = {"inputRequests": {"key": wanted[name]}, "requestState": "x" * (2_000_000 if name == "remember" else 1)}
                send(id=message["id"], result={"resultType": "input_required"} | needed)
"#;

fn hostile(code: &str, discovers: &str) -> Value {
    json!({"command": tool("python/bin/python"), "args": ["-c", HOSTILE, code, discovers]})
}

#[tokio::test]
async fn a_server_gets_no_more_than_was_offered() {
    let place = Place::new();
    let mut ipybox = session(&place, json!({"elicitation": {"form": {}}})).await;
    ipybox.register("hostile", hostile("-32601", "yes")).await.ok();
    let refused = [
        ("roots.run()", "no directories (roots)"),
        ("sample.run()", "no language model"),
        ("measure.run()", "asks for input of an unknown kind"),
    ];
    ipybox.cell("from mcptools.hostile import ask, measure, remember, roots, sample").await.ok();
    all_fail(&mut ipybox, &refused).await;
    let remembering = ipybox.start_cell("print(remember.run())").await;
    let asked = ipybox.question().await;
    ipybox.respond(&asked, json!({"action": "decline"})).await;
    assert_eq!(remembering.answer().await.ok(), "2000000 characters");
    let asking = ipybox.start_cell("ask.run()").await;
    for _ in 0..20 {
        let asked = ipybox.question().await;
        ipybox.respond(&asked, json!({"action": "accept", "content": {}})).await;
    }
    let refused = asking.answer().await.error();
    assert!(refused.contains("too many questions in one call"), "{refused}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_server_with_neither_beginning_is_refused_with_its_first_words() {
    let place = Place::new();
    let mut ipybox = session(&place, json!({})).await;
    for (code, discovers) in [("-32601", "no"), ("-32022", "never"), ("-32603", "yes")] {
        let refused = ipybox.register("hostile", hostile(code, discovers)).await.error();
        assert!(refused.contains("with an error: no initialize") && refused.contains(code), "{refused}");
        let is_about_revisions = refused.contains("hint: ipybox speaks revisions 2024-11-05 to 2026-07-28");
        // An error in the server itself: it knows `initialize`.
        assert_eq!(is_about_revisions, code != "-32603", "{refused}");
    }
    ipybox.stop().await;
}

/// Shows the credentials that it was asked with.
const ECHO: &str = r#"
from http.server import BaseHTTPRequestHandler, HTTPServer
class Echo(BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_POST(self):
        self.send_response(400)
        self.end_headers()
        self.wfile.write(b"you sent " + self.headers["Authorization"].encode())
server = HTTPServer(("127.0.0.1", 0), Echo)
print(server.server_port, flush=True)
server.serve_forever()
"#;

#[tokio::test]
async fn refusals_that_repeat_a_secret_are_not_logged() {
    let (_child, mut echo) = over_http(Command::new(tool("python/bin/python")).args(["-c", ECHO])).await;
    echo["headers"] = json!({"Authorization": "Bearer ${TOKEN}"});
    let place = Place::new();
    let python = kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--log-level", "DEBUG"];
    let mut ipybox = place.start_with(&flags, &[("TOKEN", "s3cret-of-the-environment")]).await;
    ipybox.initialize().await;
    let with_token = |discovers| {
        let mut server = hostile("-32601", discovers);
        server["env"] = json!({"TOKEN": "${TOKEN}"});
        server
    };
    for server in [echo, with_token("no")] {
        let refused = ipybox.register("hostile", server).await.error();
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    ipybox.register("hostile", with_token("yes")).await.ok();
    let log = ipybox.logged("will not say when its tools change").await;
    assert!(!log.contains("s3cret"), "{log}");
    ipybox.stop().await;
}

/// Wants an argument in a header, whose name is longer after each call of its tool `rename`. `sys.argv[1]` is how long the
/// description of that tool is.
const RENAMING: &str = r#"
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
header = "Of"
class Server(BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def answer(self, status, **answer):
        body = json.dumps({"jsonrpc": "2.0", "id": self.id, **answer}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def complete(self, **result):
        self.answer(200, result={"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result})
    def do_POST(self):
        global header
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.id, params = message["id"], message["params"]
        match message["method"]:
            case "server/discover":
                self.complete(supportedVersions=["2026-07-28"], capabilities={"tools": {}})
            case "tools/list":
                region = {"type": "string", "x-mcp-header": header}
                where = {"name": "where", "inputSchema": {"type": "object", "properties": {"region": region}}}
                rename = {"name": "rename", "inputSchema": {"type": "object"}, "description": "x" * int(sys.argv[1])}
                self.complete(tools=[where, rename])
            case "tools/call" if params["name"] == "rename":
                header += "-New"
                self.complete(content=[])
            case "tools/call" if self.headers.get("Mcp-Param-" + header) != params["arguments"]["region"]:
                self.answer(400, error={"code": -32020, "message": "no header " + header})
            case "tools/call":
                self.complete(content=[{"type": "text", "text": header}])
            case _:
                self.answer(404, error={"code": -32601, "message": "unknown"})
server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
print(server.server_port, flush=True)
server.serve_forever()
"#;

async fn is_renamed(description: &str) {
    let (_child, server) =
        over_http(Command::new(tool("python/bin/python")).args(["-c", RENAMING, description])).await;
    let place = Place::new();
    let mut ipybox = session(&place, json!({})).await;
    ipybox.register("renaming", server).await.ok();
    let code = "from mcptools.renaming import rename, where
for region in 'abc':
    print(where.run(region=region), where.run(region=region))
    rename.run()";
    all_say(&mut ipybox, &[(code, "Of Of\nOf-New Of-New\nOf-New-New Of-New-New")]).await;
    // In a connection for calls.
    ipybox.reset().await;
    all_say(
        &mut ipybox,
        &[("from mcptools.renaming import where\nprint(where.run(region='d'))", "Of-New-New-New")],
    )
    .await;
    ipybox.stop().await;
}

#[tokio::test]
async fn headers_are_those_that_the_server_wants_now() {
    is_renamed("0").await;
}

#[tokio::test]
async fn headers_are_known_from_long_lists_too() {
    is_renamed("2000000").await;
}

/// Is replaced by a version with another tool once `restart` is called: its subscriptions end, and it takes none at first.
const RESTARTING: &str = r#"
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
restarted, names, refusals = Event(), ["restart"], 1
class Server(BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def begin(self, status, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
    def answer(self, **answer):
        self.begin(404 if "error" in answer else 200, "application/json")
        self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": self.id, **answer}).encode())
    def complete(self, **result):
        self.answer(result={"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result})
    def do_POST(self):
        global refusals
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.id, params = message["id"], message["params"]
        match message["method"]:
            case "server/discover":
                self.complete(supportedVersions=["2026-07-28"], capabilities={"tools": {"listChanged": True}})
            case "tools/list":
                self.complete(tools=[{"name": name, "inputSchema": {"type": "object"}} for name in names])
            case "tools/call":
                names.append("added")
                restarted.set()
                self.complete(content=[])
            case "subscriptions/listen" if restarted.is_set() and refusals:
                refusals -= 1
                self.begin(503, "text/plain")
            case "subscriptions/listen":
                meta = {"io.modelcontextprotocol/subscriptionId": self.id}
                params = {"_meta": meta, "notifications": params["notifications"]}
                taken = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
                self.begin(200, "text/event-stream")
                self.wfile.write(f"data: {json.dumps(taken)}\n\n".encode())
                if restarted.is_set(): Event().wait()
                restarted.wait()
            case _:
                self.answer(error={"code": -32601, "message": "unknown"})
server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
"#;

#[tokio::test]
async fn tools_of_a_server_that_was_restarted_are_noticed() {
    let (_child, server) = over_http(Command::new(tool("python/bin/python")).args(["-c", RESTARTING])).await;
    let place = Place::new();
    let mut ipybox = session(&place, json!({})).await;
    ipybox.register("restarting", server).await.ok();
    ipybox.cell("from mcptools.restarting import restart\nrestart.run()").await.ok();
    let noticed = async {
        loop {
            let answer = ipybox.cell("import time; time.sleep(0.5)").await.ok();
            if answer.contains("Added: added") {
                return;
            }
        }
    };
    timeout(PATIENCE, noticed).await.unwrap();
    ipybox.stop().await;
}
