//! Logins at a real identity provider, `oidc-provider`: of MCP clients by tokens, of browsers by redirects.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use url::Url;

use super::approvals::PageBrowser;
use super::support::TeamPlace;
use crate::support::{Browser, PATIENCE, test_server, tool};

const SECRET: &str = "s3cret";
/// Stands for the issuer, which needs the address of the server.
const UNKNOWN: &str = "https://issuer.invalid";
/// The redirects of a login: two pages, each with a way there and back.
const MOST_REDIRECTS: usize = 20;

/// A provider whose only user is Alice, who consents. Killed when dropped.
struct IdentityProvider {
    child: Child,
    issuer: String,
    /// Open as long as it lives: it may print more.
    _output: BufReader<ChildStdout>,
}

impl IdentityProvider {
    fn start(resource: &str) -> Self {
        let mut command = Command::new(tool("bin/node"));
        command.arg(test_server("oidc.mjs")).arg("--packages").arg(tool("npm"));
        command.args(["--client-id", "ipybox", "--client-secret", SECRET, "--resource", resource]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self { child, issuer: ready["issuer"].as_str().unwrap().to_owned(), _output: output }
    }
}

impl Drop for IdentityProvider {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A server whose users log in at a provider.
fn with_provider() -> (TeamPlace, IdentityProvider) {
    let web =
        "web = { client_id = \"ipybox\", client_secret_env = \"IPYBOX_WEB_SECRET\", scopes = [\"openid\"] }";
    let login = format!("required_scopes = [\"mcp\"]\n[[login.issuer]]\nissuer = {UNKNOWN:?}\n{web}");
    let place = TeamPlace::with_login(&login, "[approvals]\nwait = \"10m\"\n");
    let provider = IdentityProvider::start(&format!("http://127.0.0.1:{}/mcp", place.port));
    place.change(UNKNOWN, &provider.issuer);
    (place, provider)
}

/// A browser without a page: it follows redirects by hand, and has the cookies of all ports of this machine.
struct RedirectedBrowser {
    http: reqwest::Client,
    cookies: BTreeMap<String, String>,
}

impl RedirectedBrowser {
    fn new() -> Self {
        let http =
            ipybox::http_client(|client| client.no_proxy().redirect(reqwest::redirect::Policy::none()));
        Self { http: http.unwrap(), cookies: BTreeMap::new() }
    }

    async fn get(&mut self, url: &Url) -> Response {
        let sent: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = self.http.get(url.clone()).timeout(PATIENCE).header("cookie", sent.join("; "));
        let response = request.send().await.unwrap();
        for cookie in response.headers().get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        response
    }

    /// Logs in at the provider. The address with which it leads back, which is not requested yet.
    async fn callback(&mut self, place: &TeamPlace) -> Url {
        let mut url = page(place, "login");
        for _ in 0..MOST_REDIRECTS {
            let response = self.get(&url).await;
            let status = response.status();
            let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned());
            let Some(location) = location else {
                panic!("{url}: {status} {}", response.text().await.unwrap())
            };
            url = url.join(&location).unwrap();
            if url.path() == "/approvals/callback" {
                return url;
            }
        }
        panic!("it leads nowhere");
    }
}

fn page(place: &TeamPlace, path: &str) -> Url {
    Url::parse(&format!("http://127.0.0.1:{}/approvals/{path}", place.port)).unwrap()
}

/// The address with another value of a parameter.
fn with_other(url: &Url, name: &str) -> Url {
    let mut other = url.clone();
    let pairs = url.query_pairs().map(|(key, value)| {
        let value = if key == name { "another".to_owned() } else { value.into_owned() };
        (key.into_owned(), value)
    });
    let pairs: Vec<(String, String)> = pairs.collect();
    assert!(pairs.iter().any(|(_, value)| value == "another"), "{url} has no `{name}`");
    other.query_pairs_mut().clear().extend_pairs(pairs);
    other
}

#[tokio::test]
async fn a_client_finds_the_provider_and_works_with_its_tokens() {
    let (place, provider) = with_provider();
    let server = place.serve_in(&[("IPYBOX_WEB_SECRET", SECRET)]);
    let stranger = place.client("a.b.c");
    let refused = stranger.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
    let metadata = challenge.split("resource_metadata=\"").nth(1).unwrap().split('"').next().unwrap();
    let http = ipybox::http_client(reqwest::ClientBuilder::no_proxy).unwrap();
    let told = http.get(metadata).send().await.unwrap().text().await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["authorization_servers"], json!([provider.issuer]), "{told}");

    let form = "grant_type=client_credentials&scope=mcp&resource=";
    let form =
        format!("{form}{}", told["resource"].as_str().unwrap().replace(':', "%3A").replace('/', "%2F"));
    let asked =
        http.request(Method::POST, format!("{}/token", provider.issuer)).basic_auth("ipybox", Some(SECRET));
    let asked = asked.header("content-type", "application/x-www-form-urlencoded").body(form);
    let given: Value = serde_json::from_str(&asked.send().await.unwrap().text().await.unwrap()).unwrap();
    let token = given["access_token"].as_str().unwrap_or_else(|| panic!("{given}"));
    let mut client = place.begun(token).await;
    assert_eq!(client.cell("1 + 1").await, "2");
    server.stop().await;
}

#[tokio::test]
async fn a_browser_logs_in_at_the_provider_once_and_for_itself() {
    let (place, provider) = with_provider();
    let server = place.serve_in(&[("IPYBOX_WEB_SECRET", SECRET)]);
    let mut browser = RedirectedBrowser::new();
    let callback = browser.callback(&place).await;
    // It is of this browser.
    let mut thief = RedirectedBrowser::new();
    assert_eq!(thief.get(&callback).await.status(), StatusCode::FORBIDDEN);
    let back = browser.get(&callback).await;
    assert_eq!(back.status(), StatusCode::OK);
    assert!(back.headers()["set-cookie"].to_str().unwrap().contains("; HttpOnly; SameSite=Strict; Path=/"));
    let name = format!("ipybox-approvals-{}", place.port);
    let mut page_browser = PageBrowser::stranger(&place);
    let unknown = page_browser.ask("events", &json!({})).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED);
    page_browser.cookie = format!("{name}={}", browser.cookies[&name]);
    let about = page_browser.all().await["about"]["client"].clone();
    let about = about.as_str().unwrap();
    assert!(about.contains("alice") && about.contains(&provider.issuer), "{about}");
    // It counts once.
    assert_eq!(browser.get(&callback).await.status(), StatusCode::FORBIDDEN);
    for name in ["state", "iss", "code"] {
        let mut browser = RedirectedBrowser::new();
        let callback = browser.callback(&place).await;
        assert_eq!(browser.get(&with_other(&callback, name)).await.status(), StatusCode::FORBIDDEN, "{name}");
        assert_eq!(browser.get(&callback).await.status(), StatusCode::FORBIDDEN, "it is over");
    }
    let elsewhere =
        browser.http.get(page(&place, "login")).header("host", "evil.example").send().await.unwrap();
    assert_eq!(elsewhere.status(), StatusCode::MISDIRECTED_REQUEST);
    let mut other = page(&place, "login");
    other.query_pairs_mut().append_pair("issuer", "https://evil.example");
    assert_eq!(browser.get(&other).await.status(), StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test]
async fn a_person_follows_the_link_of_the_page_and_logs_out() {
    let (place, provider) = with_provider();
    let server = place.serve_in(&[("IPYBOX_WEB_SECRET", SECRET)]);
    let mut browser = Browser::run_by("tests/it/page/browser.mjs", "page", &[]);
    let url = page(&place, "");
    let about = browser
        .run(&format!(
            "await page.goto({:?});
             await page.waitForSelector('#enter:not([hidden]) a');
             await page.click('#enter a');
             await page.waitForSelector('#inside:not([hidden])');
             await page.waitForFunction(() => document.getElementById('about').textContent.includes('alice'));
             return page.url() + ' ' + await page.$eval('#about', (about) => about.textContent);",
            url.as_str()
        ))
        .await;
    let about = about.as_str().unwrap();
    assert!(about.starts_with(&format!("{url} ")) && about.contains(&provider.issuer), "{about}");
    browser.run("await page.click('#leave'); await page.waitForSelector('#enter:not([hidden]) a');").await;
    server.stop().await;
}
