//! Metadata as authorization servers publish them: at a place of their own, with an issuer that ends with a slash or does not,
//! or not at all, while another server that the resource names is there.

use http::{Response, StatusCode};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};

/// The path below which metadata are published.
const WELL_KNOWN: &str = "/.well-known/";
const SERVER_METADATA: &str = "/.well-known/oauth-authorization-server/";

/// Which authorization servers a resource has named, and what came of them.
#[derive(Default)]
pub(super) struct PublishedServers {
    servers: Mutex<Vec<Url>>,
    /// The one that is taken if the resource names it.
    preferred: Mutex<Option<String>>,
    /// Issuers as they were asked for, and as they call themselves.
    spellings: Mutex<Vec<(String, String)>>,
    failures: Mutex<Vec<String>>,
}

impl PublishedServers {
    /// From now on the authorization server with this issuer is taken, whichever others the resource names.
    pub(super) fn prefer(&self, issuer: Option<String>) {
        *self.preferred.lock() = issuer;
    }

    /// Notes what an answer with metadata says, and gives it the issuer that was asked for if it differs by the slash at its
    /// end alone.
    pub(super) fn read(&self, url: &str, answer: Response<Vec<u8>>) -> Response<Vec<u8>> {
        let Ok(mut metadata) = serde_json::from_slice::<Value>(answer.body()) else { return answer };
        if let Some(Value::Array(servers)) = metadata.get_mut("authorization_servers") {
            let preferred = self.preferred.lock();
            let is_preferred = |server: &&Value| {
                let server = server.as_str().unwrap_or_default();
                preferred.as_ref().is_some_and(|issuer| is_same_issuer(issuer, server))
            };
            let only = servers.iter().find(is_preferred).cloned();
            let is_found = only.is_some();
            *servers = only.map_or_else(|| std::mem::take(servers), |only| vec![only]);
            let parsed = servers.iter().filter_map(|server| Url::parse(server.as_str()?).ok());
            self.servers.lock().extend(parsed);
            return if is_found { answer.map(|_| metadata.to_string().into_bytes()) } else { answer };
        }
        let Some(issuer) = metadata.get("issuer").and_then(Value::as_str).map(str::to_owned) else {
            return answer;
        };
        let Some(expected) = self.expected(url, &issuer).filter(|expected| *expected != issuer) else {
            return answer;
        };
        metadata["issuer"] = json!(expected);
        self.spellings.lock().push((expected, issuer));
        answer.map(|_| metadata.to_string().into_bytes())
    }

    /// The issuer that is asked for at `url`, if it is this one but for the slash: one that the resource has named, or that
    /// the place is of.
    fn expected(&self, url: &str, issuer: &str) -> Option<String> {
        let is_it = |expected: &String| is_same_issuer(expected, issuer);
        let named: Vec<String> = self.servers.lock().iter().map(Url::to_string).collect();
        if !named.is_empty() {
            return named
                .iter()
                .find(|named| *named == issuer)
                .or(named.iter().find(|named| is_it(named)))
                .cloned();
        }
        let mut url = Url::parse(url).ok()?;
        let (before, after) = url.path().split_once(WELL_KNOWN)?;
        let inserted = after.split_once('/').map(|(_, path)| path).unwrap_or_default();
        let path = format!("{}/{inserted}", before.trim_end_matches('/'));
        url.set_path(path.trim_end_matches('/'));
        Some(url.to_string()).filter(is_it)
    }

    /// An issuer as it calls itself.
    pub(super) fn own_spelling(&self, issuer: Option<String>) -> Option<String> {
        let spellings = self.spellings.lock();
        let own = |issuer: &String| {
            spellings.iter().find(|(expected, _)| expected == issuer).map(|it| it.1.clone())
        };
        issuer.as_ref().and_then(own).or(issuer)
    }

    /// The answer of nothing in place of a failure at `url`, if the resource names other authorization servers.
    pub(super) fn passed_over(&self, url: &str, failure: &str) -> Option<Response<Vec<u8>>> {
        let url = Url::parse(url).ok()?;
        let servers = self.servers.lock();
        let is_one = |server: &Url| server.origin() == url.origin();
        if !servers.iter().any(is_one) || servers.iter().all(is_one) {
            return None;
        }
        let origin = url.origin().ascii_serialization();
        tracing::warn!(server = origin, failure, "an authorization server is passed over");
        self.failures.lock().push(format!("{origin}: {failure}"));
        let mut answer = Response::new(Vec::new());
        *answer.status_mut() = StatusCode::NOT_FOUND;
        Some(answer)
    }

    /// The documents that were passed over, to be told if no server is left.
    pub(super) fn failures(&self) -> String {
        self.failures.lock().join("; ")
    }
}

/// Whether two spellings of an issuer are the same but for the slash at their end.
pub(super) fn is_same_issuer(left: &str, right: &str) -> bool {
    left.trim_end_matches('/') == right.trim_end_matches('/')
}

/// The other place of the metadata at `url`: below the path of their issuer.
pub(super) fn other_place(url: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    let path = url.path().strip_prefix(SERVER_METADATA)?.trim_matches('/').to_owned();
    url.set_path(&format!("/{path}{}", SERVER_METADATA.trim_end_matches('/')));
    Some(url.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: Value) -> Response<Vec<u8>> {
        Response::new(body.to_string().into_bytes())
    }

    #[test]
    fn an_issuer_is_read_as_it_was_asked_for_and_keeps_its_own_spelling() {
        for (named, issuer, url, expected) in [
            (
                "https://as/t",
                "https://as/t/",
                "https://as/.well-known/openid-configuration/t",
                "https://as/t",
            ),
            (
                "https://as/t/",
                "https://as/t",
                "https://as/.well-known/openid-configuration/t",
                "https://as/t/",
            ),
            ("", "https://as/t/", "https://as/.well-known/oauth-authorization-server/t", "https://as/t"),
            ("", "https://as/t/", "https://as/t/.well-known/openid-configuration", "https://as/t"),
            (
                "https://as/t",
                "https://evil/t/",
                "https://as/.well-known/openid-configuration/t",
                "https://evil/t/",
            ),
            (
                "https://as/t",
                "https://as/u/",
                "https://as/.well-known/openid-configuration/t",
                "https://as/u/",
            ),
        ] {
            let published = PublishedServers::default();
            published.read("https://mcp/x", answer(json!({"authorization_servers": [named]})));
            let read =
                published.read(url, answer(json!({"issuer": issuer, "token_endpoint": "https://as/token"})));
            let read: Value = serde_json::from_slice(read.body()).unwrap();
            assert_eq!(read["issuer"], expected, "{named} {issuer}");
            let own = published.own_spelling(Some(expected.to_owned()));
            assert_eq!(own.as_deref(), Some(issuer), "{named} {issuer}");
        }
    }

    #[test]
    fn of_several_servers_the_preferred_one_is_taken() {
        for (preferred, expected) in [
            (Some("https://two"), json!(["https://two/"])),
            (Some("https://three"), json!(["https://one", "https://two/"])),
            (None, json!(["https://one", "https://two/"])),
        ] {
            let published = PublishedServers::default();
            published.prefer(preferred.map(str::to_owned));
            let named = json!({"resource": "r", "authorization_servers": ["https://one", "https://two/"]});
            let read = published.read("https://mcp/x", answer(named));
            let read: Value = serde_json::from_slice(read.body()).unwrap();
            assert_eq!(read, json!({"resource": "r", "authorization_servers": expected}));
        }
    }

    #[test]
    fn a_failure_is_passed_over_if_there_is_another_server() {
        let published = PublishedServers::default();
        published.read("https://mcp/x", answer(json!({"authorization_servers": ["https://one/"]})));
        assert!(published.passed_over("https://one/.well-known/x", "away").is_none());
        published.read("https://mcp/x", answer(json!({"authorization_servers": ["https://two/"]})));
        assert_eq!(published.passed_over("https://one/.well-known/x", "away").unwrap().status(), 404);
        assert!(published.passed_over("https://mcp/.well-known/x", "away").is_none());
        assert_eq!(published.failures(), "https://one: away");
    }

    #[test]
    fn metadata_may_be_below_the_path_of_their_issuer() {
        let other = |url: &str| other_place(url);
        assert_eq!(
            other("https://as/.well-known/oauth-authorization-server/a/b").as_deref(),
            Some("https://as/a/b/.well-known/oauth-authorization-server")
        );
        assert_eq!(other("https://as/.well-known/oauth-authorization-server"), None);
        assert_eq!(other("https://as/.well-known/openid-configuration/a"), None);
    }
}
