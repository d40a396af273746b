//! Resources: what answers name is read by clients, and nothing else is, whatever code in the kernel makes of the files.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::support::{Ipybox, Place, eventually, kernel_python, probe};

/// The content of a resource.
async fn read(ipybox: &mut Ipybox, uri: &str) -> Value {
    let response = ipybox.request("resources/read", json!({ "uri": uri })).await.response().await.unwrap();
    assert!(response["error"].is_null(), "{uri}: {response}");
    response["result"]["contents"][0].clone()
}

/// The error of a resource that is not read.
async fn refused(ipybox: &mut Ipybox, uri: &str) -> (i64, String) {
    let response = ipybox.request("resources/read", json!({ "uri": uri })).await.response().await.unwrap();
    let error = &response["error"];
    assert!(error.is_object(), "{uri} is read: {response}");
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

/// The URIs of the listed resources that begin with `ipybox://<kind>/`, the newest first.
async fn listed(ipybox: &mut Ipybox, kind: &str) -> Vec<String> {
    let response = ipybox.request("resources/list", json!({})).await.response().await.unwrap();
    let resources = response["result"]["resources"].as_array().unwrap();
    let uris = resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned());
    uris.filter(|uri| uri.starts_with(&format!("ipybox://{kind}/"))).collect()
}

/// The path that an answer names for what is behind these words.
fn path_in(text: &str, begin: &str, end: char) -> PathBuf {
    let (_, after) = text.split_once(begin).unwrap_or_else(|| panic!("no `{begin}`: {text}"));
    after.split_once(end).unwrap().0.into()
}

#[tokio::test]
pub(crate) async fn a_file_that_a_cell_shows_is_a_resource() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let code = "
with open('numbers.csv', 'w') as file: file.write('a,b\\n1,2\\n')
show_file('numbers.csv')
show_file(bytes(range(256)), 'all bytes.bin')
class Table:
    def to_csv(self): return 'é\\n'
show_file(Table())
'the end'";
    let text = ipybox.cell(code).await.ok();
    assert!(text.contains("'the end'") && text.contains("Shown files (copies):"), "{text}");
    let copy = path_in(&text, "[numbers.csv](", ')');
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "a,b\n1,2\n");
    assert!(copy.starts_with(place.workspace().join(".ipybox/files")));

    let uris = listed(&mut ipybox, "files").await;
    let [table, bytes, numbers] = &uris[..] else { panic!("{uris:?}") };
    assert!(numbers.ends_with(copy.file_name().unwrap().to_str().unwrap()));
    let content = read(&mut ipybox, numbers).await;
    assert_eq!(content, json!({"uri": numbers, "mimeType": "text/csv", "text": "a,b\n1,2\n"}));
    assert!(bytes.ends_with("-all_bytes.bin"), "{bytes}");
    let content = read(&mut ipybox, bytes).await;
    let sent = BASE64.decode(content["blob"].as_str().unwrap()).unwrap();
    assert!(sent == Vec::from_iter(0..=255), "{content}");
    assert_eq!(read(&mut ipybox, table).await["text"], "é\n");

    // A copy is what was shown, whatever becomes of the file.
    ipybox.cell("with open('numbers.csv', 'w') as file: file.write('changed')").await.ok();
    assert_eq!(read(&mut ipybox, numbers).await["text"], "a,b\n1,2\n");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn what_cannot_be_shown_is_an_error_with_the_reason() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("import os; os.mkfifo('pipe'); os.symlink('/etc/passwd', 'far')").await.ok();
    for (argument, reason) in [
        ("'/etc/passwd'", "is outside of the workspace"),
        ("'../' * 20 + 'etc/passwd'", "is outside of the workspace"),
        ("'far'", "is outside of the workspace"),
        ("'pipe'", "is not a regular file"),
        ("'.'", "Is a directory"),
        ("'missing'", "No such file"),
        ("b'bytes'", "needs a name for bytes"),
        ("5", "takes the path of a file"),
        ("bytes(24 * 1024 * 1024 + 1), 'big'", "at most 25,165,824 can be shown"),
    ] {
        let text = ipybox.cell(&format!("show_file({argument})")).await.error();
        assert!(text.contains(reason), "show_file({argument}): {text}");
    }
    let none = Vec::<String>::new();
    assert_eq!(listed(&mut ipybox, "files").await, none);
    ipybox.stop().await;
}

#[tokio::test]
async fn only_the_first_files_are_kept_and_the_answer_says_so() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.cell("for number in range(40): show_file(b'x', f'{number}.bin')").await.ok();
    assert!(text.contains("Only the first 32 of the files were kept"), "{text}");
    assert!(text.contains("[31.bin]") && !text.contains("[32.bin]"), "{text}");
    // A file that is cleared is gone.
    let text = ipybox
        .cell("from IPython.display import clear_output\nshow_file(b'x', 'gone')\nclear_output()")
        .await
        .ok();
    assert_eq!(text, "[no output]");
    ipybox.stop().await;
}

#[tokio::test]
async fn long_output_and_images_are_resources_too() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    ipybox.initialize().await;
    let code =
        "for i in range(500_000): print(i)\nimport matplotlib.pyplot as plt\nplt.plot([1]); plt.show()";
    let text = ipybox.cell(code).await.ok();
    let whole = std::fs::read_to_string(path_in(&text, " characters are in ", ']')).unwrap();
    let uri = listed(&mut ipybox, "outputs").await.remove(0);
    assert!(read(&mut ipybox, &uri).await["text"] == whole);

    let (mut next, mut parts) = (Some(format!("{uri}?from=0")), Vec::new());
    while let Some(uri) = next {
        let part = read(&mut ipybox, &uri).await;
        parts.push(part["text"].as_str().unwrap().to_owned());
        assert_eq!(part["_meta"]["ipybox/size"], whole.len());
        next = part["_meta"]["ipybox/next"].as_str().map(str::to_owned);
    }
    assert!(parts.len() == 4 && parts.concat() == whole, "{} parts", parts.len());
    let part = read(&mut ipybox, &format!("{uri}?from=2&bytes=4")).await;
    assert_eq!(part["text"], "1\n2\n");

    let image = std::fs::read(path_in(&text, "](", ')')).unwrap();
    let uri = listed(&mut ipybox, "images").await.remove(0);
    let content = read(&mut ipybox, &uri).await;
    assert_eq!(content["mimeType"], "image/png");
    assert!(BASE64.decode(content["blob"].as_str().unwrap()).unwrap() == image);
    ipybox.stop().await;
}

#[tokio::test]
async fn generated_modules_are_resources() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.register("probe", probe()).await.ok();
    assert_eq!(listed(&mut ipybox, "mcptools").await, ["ipybox://mcptools/probe/__init__.py"]);
    let content = read(&mut ipybox, "ipybox://mcptools/probe/add.py").await;
    assert_eq!(content["text"], place.read("mcptools/probe/add.py"));
    assert_eq!(content["mimeType"], "text/x-python");
    ipybox.stop().await;
}

/// Runs a cell with files in the request's `_meta`.
async fn cell_with(ipybox: &mut Ipybox, files: Value, code: &str) -> String {
    let params = json!({
        "name": "execute_ipython_cell", "arguments": {"code": code}, "_meta": {"ipybox/files": files},
    });
    ipybox.request("tools/call", params).await.answer().await.text
}

#[tokio::test]
pub(crate) async fn files_that_a_client_passes_are_there_for_the_cell() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let blob = BASE64.encode(vec![7; 2_500_000]);
    let files =
        json!([{"uri": "file:///home/me/data.csv", "text": "a,b\n"}, {"uri": "big.bin", "blob": blob}]);
    let code = "
print(open(uploaded_file('data.csv')).read())
data = open(uploaded_file('big.bin'), 'rb').read()
len(data), set(data)";
    assert_eq!(cell_with(&mut ipybox, files, code).await, "a,b\n\n(2500000, {7})");
    // Or the client puts it there.
    place.write("uploads/data.csv", "newer");
    assert_eq!(ipybox.cell("print(open(uploaded_file('data.csv')).read())").await.ok(), "newer");
    for (name, reason) in [("missing", "missing"), ("../.env", "is not the name"), (".", ".")] {
        let text = ipybox.cell(&format!("uploaded_file({name:?})")).await.error();
        assert!(text.contains("Error") && text.contains(reason), "{text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn files_that_a_client_passes_replace_no_other() {
    let place = Place::new();
    place.write("victim", "as it was");
    let mut ipybox = place.ipybox().await;
    let code = "import os; os.mkdir('uploads'); os.symlink('../victim', 'uploads/data.csv')";
    ipybox.cell(code).await.ok();
    let file = json!([{"uri": "data.csv", "text": "passed"}]);
    let text = cell_with(&mut ipybox, file.clone(), "print(open('uploads/data.csv').read())").await;
    assert_eq!((text.as_str(), place.read("victim").as_str()), ("passed", "as it was"));
    ipybox.cell("import shutil; shutil.rmtree('uploads'); os.symlink('.', 'uploads')").await.ok();
    let text = cell_with(&mut ipybox, file, "print('it runs')").await;
    assert!(text.contains("`uploads` is no directory") && !text.contains("it runs"), "{text}");
    assert!(!place.workspace().join("data.csv").exists());
    ipybox.stop().await;
}

/// Code in the kernel replaces the files behind resources.
#[tokio::test]
async fn nothing_else_is_read_whatever_code_makes_of_the_files() {
    let place = Place::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "a secret word").unwrap();
    place.write(".env", "KEY=a secret word");
    place.write("inner/secret", "a secret word");
    let mut ipybox = place.ipybox().await;
    let uri = |name: &str| format!("ipybox://files/0a1b2c3d-{name}");
    let code = format!(
        "
import os, socket
outside, files = {:?}, '.ipybox/files/0a1b2c3d-'
os.symlink(f'{{outside}}/secret', files + 'far')
os.symlink('../../.env', files + 'near')
os.symlink('/dev/zero', files + 'zero')
os.symlink('/proc/self/environ', files + 'environ')
os.mkfifo(files + 'fifo')
os.mkdir(files + 'directory')
os.link('.env', files + 'hard')
socket.socket(socket.AF_UNIX).bind(files + 'socket')
os.symlink(outside, '.ipybox/outputs')
os.symlink('inner', 'images')
os.makedirs('mcptools/loop')
os.symlink('../../.env', 'mcptools/loop/leak.py')
os.symlink(outside, 'mcptools/far')",
        outside.path()
    );
    ipybox.cell("show_file(b'x', 'x')").await.ok();
    ipybox.cell(&code).await.ok();
    std::fs::write(outside.path().join("0a1b2c3d.txt"), "a secret word").unwrap();
    std::fs::write(outside.path().join("secret.py"), "a secret word").unwrap();
    std::fs::rename(place.workspace().join("inner/secret"), place.workspace().join("inner/0a1b2c3d.png"))
        .unwrap();
    let replaced = ["far", "near", "zero", "environ", "fifo", "directory", "hard", "socket"].map(uri);
    let others = [
        "ipybox://outputs/0a1b2c3d.txt",
        "ipybox://images/0a1b2c3d.png",
        "ipybox://mcptools/loop/leak.py",
        "ipybox://mcptools/far/secret.py",
    ];
    for uri in replaced.iter().map(String::as_str).chain(others) {
        let (code, message) = refused(&mut ipybox, uri).await;
        assert_eq!(code, -32002, "{uri}: {message}");
        assert!(message.contains("is not read: "), "{uri}: {message}");
    }
    for uri in [
        "",
        "ipybox://files/../../.env",
        "ipybox://files/..%2f..%2f.env",
        "ipybox://files//etc/passwd",
        "ipybox://outputs/../.env",
        "ipybox://mcptools/../.env",
        "file:///etc/passwd",
        "skill://codeact/../../.env",
        &format!("ipybox://files/0a1b2c3d-{}", "x".repeat(100_000)),
    ] {
        let (code, message) = refused(&mut ipybox, uri).await;
        assert!(code == -32002 && message.contains("there is no resource"), "{message}");
    }
    assert!(refused(&mut ipybox, &format!("{}?from=-1", uri("x"))).await.1.contains("?from=<byte>"));
    // It serves on.
    assert_eq!(ipybox.cell("1 + 1").await.ok(), "2");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_file_that_is_swapped_while_it_is_read_is_never_another_one() {
    let place = Place::new();
    place.write("secret", "a secret word");
    let mut ipybox = place.ipybox().await;
    ipybox.cell("show_file(b'shown', 'a.txt')").await.ok();
    let uri = listed(&mut ipybox, "files").await.remove(0);
    let copy = place.workspace().join(".ipybox/files").join(uri.rsplit_once('/').unwrap().1);
    let swap = |to: &Path| {
        let spare = place.workspace().join("spare");
        symlink(to, &spare).unwrap();
        std::fs::rename(spare, &copy).unwrap();
    };
    for _ in 0..50 {
        std::fs::remove_file(&copy).unwrap();
        std::fs::write(&copy, "shown").unwrap();
        let reply = ipybox.request("resources/read", json!({ "uri": uri })).await;
        swap(&place.workspace().join("secret"));
        let response = reply.response().await.unwrap();
        assert!(!response.to_string().contains("secret word"), "{response}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn links_are_for_clients_that_show_them() {
    let links_for = async |flags: &[&str], client: &str| {
        let place = Place::new();
        let python = kernel_python();
        let mut ipybox = place.start(&[&["--python", python.to_str().unwrap()], flags].concat()).await;
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "0"},
        });
        ipybox.request("initialize", params).await.response().await.unwrap();
        let reply = ipybox.start_cell("show_file(b'content', 'a.txt')").await.response().await.unwrap();
        let content = reply["result"]["content"].as_array().unwrap();
        assert!(content[0]["text"].as_str().unwrap().contains("[a.txt]("), "{reply}");
        let links = content[1..].to_vec();
        for link in &links {
            assert_eq!(read(&mut ipybox, link["uri"].as_str().unwrap()).await["text"], "content");
        }
        ipybox.stop().await;
        links
    };
    let [link] = &links_for(&[], "Visual Studio Code").await[..] else { panic!("no link") };
    assert_eq!((&link["type"], &link["title"]), (&json!("resource_link"), &json!("a.txt")));
    assert_eq!((&link["mimeType"], &link["size"]), (&json!("text/plain"), &json!(7)));
    assert_eq!(links_for(&[], "codex-mcp-client").await, Vec::<Value>::new());
    assert_eq!(links_for(&["--resource-links", "never"], "Visual Studio Code").await, Vec::<Value>::new());
    assert_eq!(links_for(&["--resource-links", "always"], "codex-mcp-client").await.len(), 1);
}

/// What a client of revision 2026-07-28 says with each request.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[tokio::test]
async fn revision_2026_07_28_has_its_own_errors_and_cache_hints() {
    let place = Place::new();
    let mut ipybox = place.start(&["--python", kernel_python().to_str().unwrap()]).await;
    let mut request = async |method: &str, mut params: Value| {
        params["_meta"] = meta();
        ipybox.request(method, params).await.response().await.unwrap()
    };
    let capabilities = request("server/discover", json!({})).await["result"]["capabilities"].clone();
    assert!(capabilities["resources"].is_object(), "{capabilities}");
    assert!(capabilities["extensions"]["io.modelcontextprotocol/skills"].is_object(), "{capabilities}");
    let cell =
        json!({"name": "execute_ipython_cell", "arguments": {"code": "show_file(b'content', 'a.txt')"}});
    request("tools/call", cell).await;
    let listed = request("resources/list", json!({})).await["result"].clone();
    assert_eq!((&listed["ttlMs"], &listed["cacheScope"]), (&json!(0), &json!("private")));
    let uri = listed["resources"][1]["uri"].clone();
    let content = request("resources/read", json!({ "uri": uri })).await["result"].clone();
    assert_eq!(
        (&content["contents"][0]["text"], &content["resultType"]),
        (&json!("content"), &json!("complete"))
    );
    assert!(content["ttlMs"].as_u64().unwrap() > 0 && content["cacheScope"] == "private", "{content}");
    let missing = request("resources/read", json!({"uri": "ipybox://files/0a1b2c3d-x"})).await;
    assert_eq!(missing["error"]["code"], -32602);
    let missing = request("skills/get", json!({"uri": "skill://other/SKILL.md"})).await;
    assert_eq!(missing["error"]["code"], -32602);
    let skill = request("skills/list", json!({})).await["result"]["skills"][0].clone();
    assert_eq!(skill["frontmatter"]["name"], "codeact");
    assert_eq!(skill["resources"].as_array().unwrap().len(), 3);
    ipybox.stop().await;
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    for (method, params, words) in [
        ("resources/read", json!({}), "a string `uri`"),
        ("resources/read", json!({"uri": 5}), "a string `uri`"),
        ("resources/list", json!({"cursor": "x"}), "there is no page `x`"),
        ("tasks/get", json!({"taskId": 5}), "a string `taskId`"),
        ("tasks/update", json!({"taskId": "x"}), "an object `inputResponses`"),
        ("tasks/cancel", json!({}), "a string `taskId`"),
    ] {
        let response = ipybox.request(method, params).await.response().await.unwrap();
        assert_eq!(response["error"]["code"], -32602, "{response}");
        assert!(response["error"]["message"].as_str().unwrap().contains(words), "{response}");
    }
    let listed = ipybox.request("resources/templates/list", json!({})).await.response().await.unwrap();
    assert_eq!(listed["result"]["resourceTemplates"].as_array().unwrap().len(), 4);
    ipybox.stop().await;
}

#[tokio::test]
async fn the_notebook_of_the_session_is_a_resource() {
    const URI: &str = "ipybox://notebook/session.ipynb";
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    ipybox.cell("1").await.ok();
    assert!(listed(&mut ipybox, "notebook").await.is_empty());
    refused(&mut ipybox, URI).await;
    ipybox.stop().await;

    let python = kernel_python();
    let mut ipybox =
        place.start(&["--python", python.to_str().unwrap(), "--notebook", "notes/run.ipynb"]).await;
    ipybox.initialize().await;
    ipybox.cell("print('in the notebook')").await.ok();
    eventually("the notebook is written", || {
        let text = std::fs::read_to_string(place.workspace().join("notes/run.ipynb"));
        text.is_ok_and(|text| text.contains("in the notebook"))
    })
    .await;
    assert_eq!(listed(&mut ipybox, "notebook").await, [URI]);
    let content = read(&mut ipybox, URI).await;
    assert_eq!(content["mimeType"], "application/x-ipynb+json");
    let notebook: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
    assert_eq!(notebook["nbformat"], 4);
    // Code that puts a link in its place shows nothing else.
    ipybox.cell("import os\nos.rename('notes', 'moved')\nos.symlink('/etc', 'notes')").await.ok();
    assert!(refused(&mut ipybox, URI).await.1.contains("no directory"));
    ipybox.stop().await;
}
