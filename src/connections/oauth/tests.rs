//! Logins at providers with habits of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};

use super::{Account, Accounts, LoginOpener, OauthSettings, VisitedPage};
use crate::ground::text::Redactor;

/// What the endpoints for tokens and registrations are asked: the members of the body, and the header `Authorization`.
#[derive(Clone, Default)]
struct Asked {
    members: HashMap<String, String>,
    authorization: Option<String>,
}

impl Asked {
    fn get(&self, name: &str) -> &str {
        self.members.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The pair in the header `Authorization`.
    fn pair(&self) -> String {
        let encoded = self.authorization.as_deref().and_then(|value| value.strip_prefix("Basic "));
        String::from_utf8(STANDARD.decode(encoded.unwrap_or_default()).unwrap()).unwrap()
    }
}

type Answer = (u16, &'static str, String);
type Endpoint = fn(&Asked) -> Answer;

/// The habits of a provider. `{}` in its URLs is the origin of the server.
#[derive(Clone)]
struct Habits {
    servers: Vec<&'static str>,
    issuer: &'static str,
    metadata_path: &'static str,
    methods: Value,
    register: Endpoint,
    token: Endpoint,
}

/// An MCP server behind a login, and its authorization server.
struct Provider {
    habits: Habits,
    origin: String,
    asked: Mutex<Vec<Asked>>,
    /// An authorization server that is named before the others.
    named_first: Mutex<Option<String>>,
}

fn json_answer(status: u16, body: Value) -> Answer {
    (status, "application/json", body.to_string())
}

fn token_of(_: &Asked) -> Answer {
    json_answer(200, json!({"access_token": "t", "token_type": "Bearer", "refresh_token": "r"}))
}

fn scoped_token(_: &Asked) -> Answer {
    json_answer(
        200,
        json!({"access_token": "t", "token_type": "Bearer", "refresh_token": "r", "scope": "notes"}),
    )
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            servers: vec!["{}"],
            issuer: "{}",
            metadata_path: "/.well-known/oauth-authorization-server",
            methods: json!(["none"]),
            register: |_| json_answer(201, json!({"client_id": "me"})),
            token: token_of,
        }
    }
}

impl Provider {
    async fn start(habits: Habits) -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let provider =
            Arc::new(Self { habits, origin, asked: Mutex::default(), named_first: Mutex::default() });
        let router = axum::Router::new().fallback(answered).with_state(Arc::clone(&provider));
        // It ends with the test's runtime.
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    fn filled(&self, url: &str) -> String {
        url.replace("{}", &self.origin)
    }

    fn account(&self, settings: OauthSettings) -> Arc<Account> {
        let url = Url::parse(&self.filled("{}/mcp")).unwrap();
        Accounts::new(None, None, Redactor::default()).with(&url, settings)
    }

    async fn login(&self, account: &Arc<Account>) -> Result<String, String> {
        let timeout = Duration::from_secs(600);
        account.login(None, &[], &Browser, timeout).await.map_err(|error| error.to_string())?;
        Ok(account.token().await.unwrap().unwrap().header())
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock())
    }

    fn metadata(&self) -> Value {
        json!({
            "issuer": self.filled(self.habits.issuer),
            "authorization_endpoint": self.filled("{}/authorize"),
            "token_endpoint": self.filled("{}/token"),
            "registration_endpoint": self.filled("{}/register"),
            "token_endpoint_auth_methods_supported": self.habits.methods,
            "code_challenge_methods_supported": ["S256"],
        })
    }
}

async fn answered(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let members = match serde_json::from_slice::<Value>(&body) {
        Ok(Value::Object(members)) => {
            members.into_iter().map(|(name, value)| (name, value.to_string())).collect()
        }
        _ => url::form_urlencoded::parse(&body).into_owned().collect(),
    };
    let asked = Asked { members, authorization: header(AUTHORIZATION) };
    let habits = &provider.habits;
    let (status, kind, body) = match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/mcp") => return unauthorized(),
        (&Method::GET, "/.well-known/oauth-protected-resource/mcp") => {
            let first = provider.named_first.lock().clone().into_iter();
            let servers: Vec<_> =
                first.chain(habits.servers.iter().map(|server| provider.filled(server))).collect();
            let resource = provider.filled("{}/mcp");
            json_answer(200, json!({"resource": resource, "authorization_servers": servers}))
        }
        (&Method::GET, path) if path == habits.metadata_path => json_answer(200, provider.metadata()),
        (&Method::GET, "/authorize") => return redirected(&provider, parts.uri.query().unwrap_or_default()),
        (&Method::POST, "/register") => (habits.register)(&asked),
        (&Method::POST, "/token") => {
            provider.asked.lock().push(asked.clone());
            (habits.token)(&asked)
        }
        _ => json_answer(404, json!({})),
    };
    (StatusCode::from_u16(status).unwrap(), [(CONTENT_TYPE, kind)], body).into_response()
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], "").into_response()
}

fn redirected(provider: &Provider, query: &str) -> Response {
    let fields: HashMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    provider.asked.lock().push(Asked { members: fields.clone(), authorization: None });
    let mut back = Url::parse(&fields["redirect_uri"]).unwrap();
    let issuer = provider.filled(provider.habits.issuer);
    back.query_pairs_mut().extend_pairs([("code", "c"), ("state", &fields["state"]), ("iss", &issuer)]);
    (StatusCode::FOUND, [(LOCATION, back.to_string())]).into_response()
}

/// A browser whose user agrees to everything.
struct Browser;

impl LoginOpener for Browser {
    fn open<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<VisitedPage, String>> {
        Box::pin(async move {
            let policy = reqwest::redirect::Policy::none();
            let client = reqwest::Client::builder().no_proxy().redirect(policy).build().unwrap();
            let page = client.get(url).send().await.unwrap();
            Ok(VisitedPage::Pasted(page.headers()[LOCATION].to_str().unwrap().to_owned()))
        })
    }
}

#[tokio::test]
async fn answers_with_tokens_are_read_as_providers_give_them() {
    let answers: [Endpoint; 6] = [
        |_| json_answer(200, json!({"access_token": "t", "expires_in": "3600", "scope": ["a", "b"]})),
        |_| json_answer(200, json!({"access_token": "t", "token_type": "BEARER", "expires_in": 3600.0})),
        |_| json_answer(201, json!({"access_token": "t", "token_type": "bearer", "expires_in": -1})),
        |_| json_answer(200, json!({"access_token": "t", "expires_in": null, "scope": null})),
        |_| (200, "text/plain", json!({"access_token": "t", "token_type": "Bearer"}).to_string()),
        |_| (200, "application/x-www-form-urlencoded", "access_token=t&scope=&token_type=bearer".to_owned()),
    ];
    for token in answers {
        let provider = Provider::start(Habits { token, ..Habits::default() }).await;
        let account = provider.account(OauthSettings::default());
        assert_eq!(
            provider.login(&account).await.as_deref(),
            Ok("Bearer t"),
            "{}",
            token(&Asked::default()).2
        );
    }
}

#[tokio::test]
async fn errors_with_the_status_of_success_are_errors() {
    let answers: [Endpoint; 2] = [
        |_| json_answer(200, json!({"error": "bad_verification_code", "error_description": "It is wrong."})),
        |_| (200, "application/x-www-form-urlencoded", "error=bad_verification_code".to_owned()),
    ];
    for token in answers {
        let provider = Provider::start(Habits { token, ..Habits::default() }).await;
        let error = provider.login(&provider.account(OauthSettings::default())).await.unwrap_err();
        assert!(error.contains("bad_verification_code"), "{error}");
    }
}

#[tokio::test]
async fn an_empty_refresh_token_does_not_replace_the_one_that_is_kept() {
    let token: Endpoint = |asked| match (asked.get("grant_type"), asked.get("refresh_token")) {
        ("refresh_token", "r1") => json_answer(200, json!({"access_token": "t2", "refresh_token": ""})),
        ("refresh_token", _) => json_answer(400, json!({"error": "invalid_grant"})),
        _ => json_answer(200, json!({"access_token": "t1", "refresh_token": "r1"})),
    };
    let provider = Provider::start(Habits { token, ..Habits::default() }).await;
    let account = provider.account(OauthSettings::default());
    provider.login(&account).await.unwrap();
    for _ in 0..3 {
        let token = account.token().await.unwrap().unwrap();
        let token = account.another(Some(&token), "").await.unwrap().unwrap();
        assert_eq!(token.header(), "Bearer t2");
    }
}

#[tokio::test]
async fn a_client_authenticates_in_the_way_for_which_it_is_registered() {
    const SECRET: &str = "a:b+c/d=é %&";
    // Registration takes one way alone, and says so in its metadata or not.
    let in_body: Endpoint = |asked| match asked.get("token_endpoint_auth_method") {
        r#""client_secret_post""# => {
            let method = "client_secret_post";
            json_answer(
                201,
                json!({"client_id": "me", "client_secret": SECRET, "token_endpoint_auth_method": method}),
            )
        }
        _ => json_answer(400, json!({"error": "invalid_client_metadata"})),
    };
    let in_header: Endpoint = |_| json_answer(201, json!({"client_id": "m:e", "client_secret": SECRET}));
    let public: Endpoint = |_| {
        json_answer(
            201,
            json!({"client_id": "me", "client_secret": "x", "token_endpoint_auth_method": "none"}),
        )
    };
    let takes_body: Endpoint = |asked| {
        if asked.get("client_secret") == SECRET && asked.authorization.is_none() {
            token_of(asked)
        } else {
            json_answer(401, json!({"error": "invalid_client"}))
        }
    };
    let takes_header: Endpoint = |asked| {
        let escape = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        match asked.pair() == format!("{}:{}", escape("m:e"), escape(SECRET)) {
            true => token_of(asked),
            false => json_answer(401, json!({"error": "invalid_client"})),
        }
    };
    let takes_raw_header: Endpoint = |asked| match asked.pair() == format!("m:e:{SECRET}") {
        true => token_of(asked),
        false => json_answer(400, json!({"error": "invalid_client"})),
    };
    let takes_public: Endpoint = |asked| match (asked.get("client_id"), &asked.authorization) {
        ("me", None) if asked.get("client_secret").is_empty() => token_of(asked),
        _ => json_answer(401, json!({"error": "invalid_client"})),
    };
    for (methods, register, token) in [
        (json!(["client_secret_post"]), in_body, takes_body),
        (json!(["client_secret_basic", "client_secret_post"]), in_body, takes_body),
        (Value::Null, in_body, takes_body),
        (json!(["client_secret_basic"]), in_header, takes_header),
        (json!(["client_secret_basic"]), in_header, takes_raw_header),
        (json!(["client_secret_basic"]), in_header, takes_body),
        (json!(["none"]), public, takes_public),
        (json!(["private_key_jwt"]), public, takes_public),
    ] {
        let provider =
            Provider::start(Habits { methods: methods.clone(), register, token, ..Habits::default() }).await;
        let account = provider.account(OauthSettings::default());
        assert_eq!(provider.login(&account).await.as_deref(), Ok("Bearer t"), "{methods}");
        let token = account.token().await.unwrap();
        account.another(token.as_ref(), "").await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_parameter_resource_can_be_left_out_and_the_error_says_so() {
    let token: Endpoint = |asked| match asked.get("resource") {
        "" => scoped_token(asked),
        _ => {
            let text = "AADSTS901002: The 'resource' request parameter is not supported.";
            json_answer(400, json!({"error": "invalid_request", "error_description": text}))
        }
    };
    let provider = Provider::start(Habits { token, ..Habits::default() }).await;
    let error = provider.login(&provider.account(OauthSettings::default())).await.unwrap_err();
    assert!(error.contains("AADSTS901002") && error.contains("`\"resource\": false` in `oauth`"), "{error}");
    assert!(provider.asked().iter().all(|asked| !asked.get("resource").is_empty()));

    let account = provider.account(OauthSettings { omits_resource: true, ..OauthSettings::default() });
    assert_eq!(provider.login(&account).await.as_deref(), Ok("Bearer t"));
    let token = account.token().await.unwrap();
    account.another(token.as_ref(), "").await.unwrap().unwrap();
    let asked = provider.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|asked| asked.get("resource").is_empty()));
    assert!(!asked[0].get("code_challenge").is_empty() && !asked[1].get("code_verifier").is_empty());
    // The scopes are all that names the resource then.
    assert_eq!((asked[2].get("grant_type"), asked[2].get("scope")), ("refresh_token", "notes"));
}

#[tokio::test]
async fn a_token_is_renewed_without_naming_its_scopes_again() {
    let token: Endpoint = |asked| match (asked.get("grant_type"), asked.get("scope")) {
        ("refresh_token", scope) if !scope.is_empty() => json_answer(400, json!({"error": "invalid_scope"})),
        _ => scoped_token(asked),
    };
    let provider = Provider::start(Habits { token, ..Habits::default() }).await;
    let account = provider.account(OauthSettings::default());
    assert_eq!(provider.login(&account).await.as_deref(), Ok("Bearer t"));
    let token = account.token().await.unwrap();
    account.another(token.as_ref(), "").await.unwrap().unwrap();
}

#[tokio::test]
async fn metadata_are_found_where_and_as_providers_publish_them() {
    let root = "/.well-known/oauth-authorization-server";
    for (servers, issuer, metadata_path) in [
        // The first of two is away, or answers with an error of its own.
        (vec!["http://127.0.0.1:9/", "{}"], "{}", root),
        (vec!["http://127.0.0.1:9/tenant", "{}/"], "{}", root),
        // One of two spellings ends with a slash.
        (vec!["{}"], "{}/", root),
        (vec!["{}/tenant"], "{}/tenant/", "/.well-known/oauth-authorization-server/tenant"),
        (vec!["{}/tenant/"], "{}/tenant", "/.well-known/oauth-authorization-server/tenant"),
        // Each place.
        (vec!["{}/tenant"], "{}/tenant", "/tenant/.well-known/oauth-authorization-server"),
        (vec!["{}/tenant"], "{}/tenant", "/tenant/.well-known/openid-configuration"),
        (vec!["{}/tenant"], "{}/tenant", root),
    ] {
        let named = format!("{servers:?} {issuer} {metadata_path}");
        let provider = Provider::start(Habits { servers, issuer, metadata_path, ..Habits::default() }).await;
        let account = provider.account(OauthSettings::default());
        assert_eq!(provider.login(&account).await.as_deref(), Ok("Bearer t"), "{named}");
        let token = account.token().await.unwrap();
        account.another(token.as_ref(), "").await.unwrap().unwrap();
    }
    // A renewal stays with the server that has given the token, though another one stands before it now.
    let servers = vec!["http://127.0.0.1:9/", "{}"];
    let provider = Provider::start(Habits { servers, ..Habits::default() }).await;
    let account = provider.account(OauthSettings::default());
    provider.login(&account).await.unwrap();
    let other = Provider::start(Habits::default()).await;
    provider.named_first.lock().replace(other.origin.clone());
    let token = account.token().await.unwrap();
    account.another(token.as_ref(), "").await.unwrap().unwrap();
    assert!(other.asked().is_empty());

    let servers = vec!["http://127.0.0.1:9/", "http://127.0.0.1:10/"];
    let provider = Provider::start(Habits { servers, ..Habits::default() }).await;
    let error = provider.login(&provider.account(OauthSettings::default())).await.unwrap_err();
    assert!(error.contains("http://127.0.0.1:9: ") && error.contains("http://127.0.0.1:10: "), "{error}");
}
