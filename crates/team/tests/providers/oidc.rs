//! `oidc-provider`, a complete authorization server.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::*;

const CALLBACK: &str = "http://127.0.0.1/callback";
const VERIFIER: &str = "a-verifier-of-a-test-that-is-long-enough-for-the-provider";
/// The redirects of a login: two pages, each with a way there and back.
const MOST_REDIRECTS: usize = 20;

struct Oidc(RealProvider);

impl Oidc {
    fn start(tokens: &str) -> Self {
        let mut command = Command::new(tool("bin/node"));
        command.arg(server("oidc.mjs")).arg("--packages").arg(tool("npm"));
        command.args(["--tokens", tokens, "--client-id", "ipybox", "--client-secret", SECRET]);
        Self(RealProvider::start(command))
    }

    fn authenticator(&self, table: &str) -> UserAuthenticator {
        authenticator(self.0.text("url"), self.0.text("issuer"), table)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0.text("issuer"))
    }

    /// Plays the browser of Alice, who consents: the code that the provider sends her back with.
    async fn code(&self) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
        let fields = [
            ("response_type", "code"),
            ("client_id", "ipybox"),
            ("redirect_uri", CALLBACK),
            ("scope", "openid mcp"),
            ("resource", self.0.text("url")),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("nonce", "once"),
        ];
        let mut url = Url::parse_with_params(&self.at("/auth"), fields).unwrap();
        let mut cookies = Cookies::new();
        for _ in 0..MOST_REDIRECTS {
            if url.path() == "/callback" {
                let code = url.query_pairs().find(|(name, _)| name == "code");
                return code.unwrap_or_else(|| panic!("{url}")).1.into_owned();
            }
            url = followed(&url, &mut cookies).await;
        }
        panic!("it leads nowhere");
    }

    /// The tokens that Alice gets.
    async fn tokens(&self) -> Value {
        let code = self.code().await;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
            ("resource", self.0.text("url")),
        ];
        post(&self.at("/token"), &fields).await
    }
}

/// The address that a page leads to.
async fn followed(url: &Url, cookies: &mut Cookies) -> Url {
    let sent: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let answer = client().get(url.clone()).header(COOKIE, sent.join("; ")).send().await.unwrap();
    for cookie in answer.headers().get_all(SET_COOKIE) {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap_or_default();
        let (name, value) = pair.split_once('=').unwrap();
        cookies.insert(name.to_owned(), value.to_owned());
    }
    let location = answer.headers().get(LOCATION).map(|value| value.to_str().unwrap().to_owned());
    url.join(&location.unwrap_or_else(|| panic!("{url} answers {}", answer.status()))).unwrap()
}

#[tokio::test]
async fn its_web_tokens_make_users_and_its_other_tokens_do_not() {
    let oidc = Oidc::start("jwt");
    let authenticator = oidc.authenticator("");
    let tokens = oidc.tokens().await;
    let alice = user(&authenticator, tokens["access_token"].as_str().unwrap()).await.unwrap();
    assert_eq!(
        (alice.identity.subject.as_str(), alice.identity.issuer.as_str()),
        ("alice", oidc.0.text("issuer"))
    );
    assert!(alice.scopes.contains("mcp") && alice.expires_at.is_some());
    // The ID token is for the client, and signed by another algorithm with another key of the same provider.
    let id_token = tokens["id_token"].as_str().unwrap();
    assert_eq!(user(&authenticator, id_token).await, refused(TokenFault::Kind));
    let to_client = oidc.authenticator("audience = \"ipybox\"");
    assert_eq!(user(&to_client, id_token).await, refused(TokenFault::Kind));
    let refresh_token = tokens["refresh_token"].as_str().unwrap();
    assert_eq!(user(&authenticator, refresh_token).await, refused(TokenFault::Unknown));
    assert!(authenticator.check().await[0].result.is_ok());
}

#[tokio::test]
async fn a_client_may_have_tokens_for_itself() {
    let oidc = Oidc::start("jwt");
    let fields = [("grant_type", "client_credentials"), ("resource", oidc.0.text("url")), ("scope", "mcp")];
    let token = token(&oidc.at("/token"), &fields).await;
    assert_eq!(user(&oidc.authenticator(""), &token).await.unwrap().identity.subject, "ipybox");
}

#[tokio::test]
async fn its_opaque_tokens_are_looked_up_and_can_be_revoked() {
    let oidc = Oidc::start("opaque");
    let table = "introspection = { client_id = \"ipybox\", client_secret_env = \"IPYBOX_SECRET\" }";
    let authenticator = oidc.authenticator(table);
    let tokens = oidc.tokens().await;
    let access_token = tokens["access_token"].as_str().unwrap();
    let alice = user(&authenticator, access_token).await.unwrap();
    assert_eq!(
        (alice.identity.subject.as_str(), alice.identity.issuer.as_str()),
        ("alice", oidc.0.text("issuer"))
    );
    assert!(alice.scopes.contains("mcp") && alice.expires_at.is_some());
    let refresh_token = user(&authenticator, tokens["refresh_token"].as_str().unwrap()).await;
    assert!(matches!(refresh_token, Err(TokenLoginError::Token(_))), "{refresh_token:?}");
    post(&oidc.at("/token/revocation"), &[("token", access_token)]).await;
    let later = oidc.authenticator(table);
    assert_eq!(user(&later, access_token).await, refused(TokenFault::Unknown));
    let other = oidc.authenticator(&table.replace("\"ipybox\"", "\"other\""));
    assert!(later.check().await[0].result.is_ok() && other.check().await[0].result.is_err());
    match user(&other, access_token).await {
        Err(TokenLoginError::Unavailable(fault)) => {
            assert!(fault.to_string().contains("refuses this server's `client_id`"), "{fault}");
        }
        other => panic!("{other:?}"),
    }
}
