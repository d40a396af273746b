//! Packages come from the indexes of the configuration, whatever users write.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use serde_json::json;

use super::support::{TeamClient, TeamPlace, text_of, user_directory};
use crate::support::{kernel_python, repository};

/// Writes a wheel with one module of the same name.
const WHEEL: &str = "import sys, zipfile
path, name = sys.argv[1:]
with zipfile.ZipFile(path, 'w') as wheel:
    info = f'{name}-1.0.dist-info'
    files = {
        f'{name}.py': 'word = \"of the index\"\\n',
        f'{info}/METADATA': f'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n',
        f'{info}/WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',
    }
    files[f'{info}/RECORD'] = ''.join(f'{name},,\\n' for name in [*files, f'{info}/RECORD'])
    for name, text in files.items():
        wheel.writestr(name, text)
";

/// An index (PEP 503) with one package, and the requests that it has had.
struct PackageIndex {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
struct Served {
    name: &'static str,
    wheel: Arc<Vec<u8>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl PackageIndex {
    async fn start(directory: &Path, name: &'static str) -> Self {
        let file = directory.join(format!("{name}-1.0-py3-none-any.whl"));
        let made = Command::new(kernel_python()).args(["-c", WHEEL]).arg(&file).arg(name).status();
        assert!(made.unwrap().success());
        let wheel = Arc::new(std::fs::read(&file).unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let served = Served { name, wheel, requests: Arc::clone(&requests) };
        let routes = Router::new().fallback(serve).with_state(served);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { port, requests }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/simple", self.port)
    }
}

async fn serve(State(served): State<Served>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    served.requests.lock().unwrap().push(path.clone());
    let file = format!("{}-1.0-py3-none-any.whl", served.name);
    if path.trim_end_matches('/') == format!("/simple/{}", served.name) {
        return Html(format!("<html><body><a href=\"/files/{file}\">{file}</a></body></html>"))
            .into_response();
    }
    if path == format!("/files/{file}") {
        return served.wheel.as_ref().clone().into_response();
    }
    StatusCode::NOT_FOUND.into_response()
}

async fn install(client: &mut TeamClient, package: &str) -> String {
    let call = json!({"name": "install_package", "arguments": {"package_name": package}});
    text_of(&client.call("tools/call", call).await)
}

/// An environment that all users may install into.
fn open_python(place: &TeamPlace) -> PathBuf {
    // The place's own, if it has one.
    let mut directory = place.path("python");
    if !place.python().starts_with(&directory) {
        directory = place.path("open");
        let mut layer = Command::new(repository().join("tests/tools/layer"));
        assert!(layer.arg(place.python()).arg(&directory).status().unwrap().success());
    }
    // Installers look for what is required in the environment itself, and not below.
    let library = std::fs::read_dir(directory.join("lib")).unwrap().next().unwrap().unwrap().path();
    for (name, version) in [("ipython", "9.0"), ("pydantic", "2.12")] {
        let info = library.join(format!("site-packages/{name}-{version}.dist-info"));
        std::fs::create_dir(&info).unwrap();
        let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        std::fs::write(info.join("METADATA"), text).unwrap();
        std::fs::write(info.join("RECORD"), "").unwrap();
    }
    let opened = Command::new("chmod").args(["-R", "a+rwX"]).arg(&directory).status();
    assert!(opened.unwrap().success());
    directory.join("bin/python")
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_come_from_the_allowed_index_alone() {
    let place = TeamPlace::new("");
    let ours = PackageIndex::start(&place.path(""), "ours").await;
    let foreign = PackageIndex::start(&place.path(""), "foreign").await;
    let python = open_python(&place);
    place.change(&format!("python = {:?}", place.python()), &format!("python = {python:?}"));
    place.change("[login]", &format!("[packages]\nindexes = [{:?}]\n[login]", ours.url()));
    let token = place.token("ann");
    let server = place.serve();
    let mut ann = place.begun(&token).await;
    assert_eq!(ann.cell("1").await, "1");
    // As her own programs could write it, and her code.
    let directory = user_directory(&place, &place.user("ann")["key"]);
    let (uv, pip) = (
        format!("index-url = {0:?}\n[[index]]\nurl = {0:?}\n", foreign.url()),
        format!("[global]\nindex-url = {0}\nextra-index-url = {0}\n", foreign.url()),
    );
    for (file, text) in [
        ("home/.config/uv/uv.toml", &uv),
        ("home/.config/pip/pip.conf", &pip),
        ("home/.pip/pip.conf", &pip),
        ("workspace/uv.toml", &uv),
        ("workspace/pyproject.toml", &format!("[tool.uv]\n{uv}")),
        ("workspace/.env", &format!("UV_INDEX_URL={0}\nUV_INDEX={0}\nPIP_INDEX_URL={0}\n", foreign.url())),
    ] {
        let file = directory.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    // Settings are read when a session starts.
    let mut ann = place.begun(&token).await;
    let installed = install(&mut ann, "ours").await;
    assert!(ann.cell("import ours; ours.word").await.ends_with("'of the index'"), "{installed}");
    assert!(ours.requests.lock().unwrap().iter().any(|path| path.ends_with(".whl")));
    let wheel = format!("http://127.0.0.1:{}/files/foreign-1.0-py3-none-any.whl", foreign.port);
    for package in [
        "foreign".to_owned(),
        format!("--index-url {} foreign", foreign.url()),
        format!("foreign @ {wheel}"),
        wheel,
    ] {
        let said = install(&mut ann, &package).await;
        let found = ann.cell("import importlib.util; print(importlib.util.find_spec('foreign'))").await;
        assert!(found.ends_with("None"), "{package}: {said}: {found}");
    }
    assert_eq!(*foreign.requests.lock().unwrap(), Vec::<String>::new());
    server.stop().await;
}
