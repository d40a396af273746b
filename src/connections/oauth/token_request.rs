//! Requests for tokens: the secrets in them, and the part of an answer that is used. An authorization server may repeat a
//! request in the text of an error, and code in the kernel, logs and users see such texts.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use rmcp::transport::auth::OAuthTokenResponse;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::token_answer;
use crate::ground::text::{Redactor, plain, shortened};

/// The media type of such a request.
const FORM: &str = "application/x-www-form-urlencoded";

/// The grant by which an identity provider gives an assertion (RFC 8693).
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// The fields that are no secrets (RFC 6749, 7521, 8693, 8707). All others are.
#[rustfmt::skip]
const PUBLIC: [&str; 10] = [
    "grant_type", "client_id", "scope", "resource", "audience", "redirect_uri", "client_assertion_type",
    "subject_token_type", "actor_token_type", "requested_token_type",
];

/// So many letters and digits in common with a secret are a part of it. Fewer can be a word, such as `client`.
const PART: usize = 8;
/// Shorter secrets are not searched for, as by [`Redactor`].
const SHORTEST_SECRET: usize = 4;
/// Shorter secrets are not noted with the redactor: a server chooses many of them, and could make it hide words.
const SHORTEST_NOTED: usize = 16;
/// The longest text of an error that is read, in characters.
const TEXT_CHARS: usize = 1000;

/// The longest access token and list of scopes, in bytes: servers take no longer headers.
const LONGEST: usize = 64 * 1024;

/// A request for a token. It has no `Debug`: it holds secrets.
pub(super) struct TokenRequest {
    secrets: Vec<TokenSecret>,
    /// Whether it asks an identity provider for an assertion, which is no token for a server.
    is_for_assertion: bool,
}

struct TokenSecret {
    name: String,
    value: String,
}

/// Why there is no token in an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoToken {
    #[error("HTTP {0}")]
    Status(StatusCode),
    #[error("its answer is not a token response")]
    NoResponse,
    #[error("its token is of the type `{0}`; servers are sent tokens of the type `Bearer`")]
    Type(String),
    #[error("{0}")]
    Token(#[from] UnusableToken),
    #[error("its answer grants more than {LONGEST} bytes of scopes")]
    Scopes,
}

/// Why an access token cannot be sent to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnusableToken {
    #[error("its access token is empty")]
    Empty,
    #[error("its access token is longer than {LONGEST} bytes")]
    TooLong,
    #[error(
        "its access token has characters that no header can have: RFC 6750 wants letters, digits and `-._~+/=`"
    )]
    Characters,
}

/// Checks that a server can be sent an access token. Servers use more characters than RFC 6750 allows.
pub(super) fn check_token(token: &str) -> Result<(), UnusableToken> {
    match token.len() {
        0 => Err(UnusableToken::Empty),
        length if length > LONGEST => Err(UnusableToken::TooLong),
        _ if !token.bytes().all(|byte| byte.is_ascii_graphic()) => Err(UnusableToken::Characters),
        _ => Ok(()),
    }
}

impl TokenRequest {
    /// `None` if the request asks for no token.
    pub(super) fn of(request: &Request<Vec<u8>>) -> Option<Self> {
        let kind = request.headers().get(CONTENT_TYPE)?.as_bytes();
        if request.method() != Method::POST || !kind.starts_with(FORM.as_bytes()) {
            return None;
        }
        let fields = || form_urlencoded::parse(request.body());
        let is_for_assertion = fields().any(|(name, value)| name == "grant_type" && value == TOKEN_EXCHANGE);
        let secrets = fields().filter(|(name, _)| !PUBLIC.contains(&name.as_ref()));
        let secrets = secrets.map(|(name, value)| TokenSecret::new(&name, &value));
        let secrets = secrets.chain(credentials(request.headers())).collect();
        Some(Self { secrets, is_for_assertion })
    }

    /// Lets the redactor know the secrets.
    pub(super) fn note(&self, redactor: &Redactor) {
        for TokenSecret { name, value } in
            self.secrets.iter().filter(|secret| secret.value.len() >= SHORTEST_NOTED)
        {
            redactor.note(name, value);
        }
    }

    /// The answer as far as it is used: of an error its code and description, unless they repeat a part of a secret.
    ///
    /// # Errors
    /// It has neither tokens that can be used nor an error of RFC 6749.
    pub(super) fn read(&self, answer: Response<Vec<u8>>) -> Result<Response<Vec<u8>>, NoToken> {
        let status = answer.status();
        let mut fields = token_answer::members(answer.body()).ok_or(match status {
            status if status.is_success() => NoToken::NoResponse,
            status => NoToken::Status(status),
        })?;
        let error = token_answer::error_code(&fields);
        let is_token = match fields.get("access_token") {
            Some(Value::String(token)) if !token.is_empty() => true,
            Some(_) => error.is_none(),
            None => false,
        };
        if status.is_success() && is_token {
            if self.is_for_assertion {
                return Ok(json_answer(StatusCode::OK, fields));
            }
            token_answer::tidy(&mut fields);
            self.check(&fields)?;
            return Ok(json_answer(StatusCode::OK, fields));
        }
        // Escape sequences could separate the characters of a secret until they are taken away.
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(plain);
        let error =
            error.map(plain).filter(|error| !self.is_repeated_in(error)).ok_or(NoToken::Status(status))?;
        let mut shown = Map::from_iter([("error".to_owned(), json!(error))]);
        let description = text("error_description").map(|text| shortened(&text, TEXT_CHARS));
        if let Some(description) = description.filter(|text| !self.is_repeated_in(text)) {
            shown.insert("error_description".to_owned(), json!(description));
        }
        // Some servers answer errors with 200.
        Ok(json_answer(if status.is_success() { StatusCode::BAD_REQUEST } else { status }, shown))
    }

    /// The same request with the client's secret written in other ways, for a server that does not know the client: the
    /// standard escapes it in the header, many servers do not, and some read it in the body alone.
    pub(super) fn other_ways(request: &Request<Vec<u8>>) -> Vec<Request<Vec<u8>>> {
        let Some((id, secret)) = basic_pair(request.headers()) else { return Vec::new() };
        let raw = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{id}:{secret}"))));
        let raw = raw.ok().filter(|raw| Some(raw) != request.headers().get(AUTHORIZATION)).map(|raw| {
            let mut other = request.clone();
            other.headers_mut().insert(AUTHORIZATION, raw);
            other
        });
        let mut fields: Vec<_> = form_urlencoded::parse(request.body()).into_owned().collect();
        fields.retain(|(name, _)| !matches!(name.as_str(), "client_id" | "client_secret"));
        fields.extend([("client_id".to_owned(), id), ("client_secret".to_owned(), secret)]);
        let mut in_body = request.clone();
        in_body.headers_mut().remove(AUTHORIZATION);
        *in_body.body_mut() = form(fields);
        raw.into_iter().chain([in_body]).collect()
    }

    /// Takes the parameter `resource` out of a request for a token.
    pub(super) fn leave_out_resource(&self, request: &mut Request<Vec<u8>>) {
        if self.is_for_assertion {
            return;
        }
        let fields = form_urlencoded::parse(request.body()).into_owned();
        *request.body_mut() = form(fields.filter(|(name, _)| name != "resource"));
    }

    /// Whether a server says in this answer that it does not know the client.
    pub(super) fn is_unknown_client(answer: &Response<Vec<u8>>) -> bool {
        let error = token_answer::members(answer.body());
        let is_named =
            error.is_some_and(|members| token_answer::error_code(&members) == Some("invalid_client"));
        is_named || answer.status() == StatusCode::UNAUTHORIZED
    }

    /// Checks that an answer has a token for a server, and that it can be kept.
    fn check(&self, fields: &Map<String, Value>) -> Result<(), NoToken> {
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let (Some(token), Some(kind)) = (text("access_token"), text("token_type")) else {
            return Err(NoToken::NoResponse);
        };
        if !kind.eq_ignore_ascii_case("bearer") {
            return Err(NoToken::Type(if self.is_repeated_in(kind) {
                "…".to_owned()
            } else {
                shortened(kind, 40)
            }));
        }
        if text("scope").is_some_and(|scopes| scopes.len() > LONGEST) {
            return Err(NoToken::Scopes);
        }
        // The rest is rmcp's, and has no secret in an error but this.
        serde_json::from_value::<OAuthTokenResponse>(Value::Object(fields.clone()))
            .map_err(|_| NoToken::NoResponse)?;
        Ok(check_token(token)?)
    }

    /// Whether the text has a part of a secret, however it is escaped.
    fn is_repeated_in(&self, text: &str) -> bool {
        let text = shortened(text, TEXT_CHARS);
        let decoded = |text: &String| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let once = decoded(&text);
        // A form in an address, for instance.
        let twice = decoded(&once);
        let spellings = [letters(&text), letters(&once), letters(&twice)];
        self.secrets.iter().any(|secret| {
            secret.value.len() >= SHORTEST_SECRET
                && (text.contains(&secret.value)
                    || spellings.iter().any(|text| secret.shares_a_part_with(text)))
        })
    }
}

impl TokenSecret {
    fn new(name: &str, value: &str) -> Self {
        Self { name: name.replace('_', " "), value: value.to_owned() }
    }

    fn shares_a_part_with(&self, text: &[u8]) -> bool {
        let secret = letters(&self.value);
        let length = secret.len().min(PART);
        if length < SHORTEST_SECRET {
            return false;
        }
        let parts: HashSet<&[u8]> = secret.windows(length).collect();
        text.windows(length).any(|part| parts.contains(part))
    }
}

/// An answer in JSON.
fn json_answer(status: StatusCode, members: Map<String, Value>) -> Response<Vec<u8>> {
    let mut answer = Response::new(Value::Object(members).to_string().into_bytes());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn form(fields: impl IntoIterator<Item = (String, String)>) -> Vec<u8> {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish().into_bytes()
}

/// The secrets in the header `Authorization`: its value, and the client's secret in it.
fn credentials(headers: &HeaderMap) -> Vec<TokenSecret> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((_, encoded)) = value.and_then(|value| value.split_once(' ')) else { return Vec::new() };
    let secret = basic_pair(headers).map(|(_, secret)| TokenSecret::new("client secret", &secret));
    std::iter::once(TokenSecret::new("credentials", encoded)).chain(secret).collect()
}

/// The client's name and secret in the header `Authorization`, which are escaped there (RFC 6749 §2.3.1).
fn basic_pair(headers: &HeaderMap) -> Option<(String, String)> {
    let (_, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let pair = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = pair.split_once(':')?;
    let plain = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    Some((plain(id), plain(secret)))
}

/// The letters and digits of a text, in lower case: what all its spellings have in common.
fn letters(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFRESH_TOKEN: &str = "Refresh/0123+456=789~abc";
    const CLIENT_SECRET: &str = "S3cret: of&th3 cl1ent%";

    fn request() -> Request<Vec<u8>> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", REFRESH_TOKEN)
            .append_pair("client_id", "a-known-client")
            .append_pair("code", "x1")
            .finish();
        let pair: String = form_urlencoded::byte_serialize(CLIENT_SECRET.as_bytes()).collect();
        Request::post("https://as.example.com/token")
            .header(CONTENT_TYPE, FORM)
            .header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(format!("a-known-client:{pair}"))))
            .body(form.into_bytes())
            .unwrap()
    }

    fn read(status: u16, body: &str) -> Result<(u16, Value), String> {
        let answer = Response::builder().status(status).body(body.as_bytes().to_vec()).unwrap();
        let read = TokenRequest::of(&request()).unwrap().read(answer).map_err(|error| error.to_string())?;
        Ok((read.status().as_u16(), serde_json::from_slice(read.body()).unwrap()))
    }

    #[track_caller]
    fn check(description: &str, is_shown: bool) {
        let body =
            json!({"error": "invalid_grant", "error_description": description, "error_uri": REFRESH_TOKEN});
        let (_, shown) = read(400, &body.to_string()).unwrap();
        let mut expected = json!({"error": "invalid_grant"});
        if is_shown {
            expected["error_description"] = json!(description);
        }
        assert_eq!(shown, expected, "{description}");
    }

    #[test]
    fn errors_do_not_repeat_a_secret_in_any_spelling() {
        let request = request();
        let (body, headers) = (String::from_utf8_lossy(request.body()), request.headers());
        let basic = headers[AUTHORIZATION].to_str().unwrap();
        for repeated in [REFRESH_TOKEN, CLIENT_SECRET, &body, basic, &json!(CLIENT_SECRET).to_string()] {
            check(&format!("bad request: {repeated}"), false);
            check(&repeated.to_uppercase(), false);
            check(&form_urlencoded::byte_serialize(repeated.as_bytes()).collect::<String>(), false);
        }
        check(&REFRESH_TOKEN[..12], false);
        check(&REFRESH_TOKEN.chars().map(|letter| format!("{letter}\u{1b}[31m")).collect::<String>(), false);
        check(&format!("…{}", &REFRESH_TOKEN[12..]), false);
        check(&format!("{}{REFRESH_TOKEN}", "x".repeat(TEXT_CHARS - 14)), false);
        check("the refresh token of the client `a-known-client` has expired", true);
        let body = json!({"error": REFRESH_TOKEN}).to_string();
        assert_eq!(read(400, &body).unwrap_err(), "HTTP 400 Bad Request");
    }

    #[test]
    fn answers_without_tokens_are_errors() {
        assert_eq!(read(503, "<html>busy").unwrap_err(), "HTTP 503 Service Unavailable");
        assert_eq!(read(200, "<html>").unwrap_err(), "its answer is not a token response");
        assert_eq!(read(200, &"[".repeat(200_000)).unwrap_err(), "its answer is not a token response");
        assert_eq!(read(200, r#"{"error": "bad_code"}"#).unwrap(), (400, json!({"error": "bad_code"})));
        let tokens = json!({"access_token": "t", "token_type": "Bearer", "refresh_token": REFRESH_TOKEN});
        assert_eq!(read(200, &tokens.to_string()).unwrap(), (200, tokens));
    }

    #[test]
    fn tokens_that_no_server_can_be_sent_are_refused() {
        let answer = |token: &str, kind: &str, scope: &str| {
            let body = json!({"access_token": token, "token_type": kind, "scope": scope});
            read(200, &body.to_string())
                .map(drop)
                .map_err(|error| error.split(" than").next().unwrap().to_owned())
        };
        for token in ["t", "eyJ.a-b_c~d+e/f=", "{\"odd\"}"] {
            answer(token, "bEARER", "a b").unwrap();
        }
        let unusable = UnusableToken::Characters.to_string();
        for token in ["AB\r\nX-Evil: 1", "töken\u{202e}", "a b", "a\0"] {
            assert_eq!(answer(token, "Bearer", "a").unwrap_err(), unusable, "{token}");
        }
        assert_eq!(answer("", "Bearer", "a").unwrap_err(), "its access token is empty");
        assert_eq!(answer(&"a".repeat(70_000), "Bearer", "a").unwrap_err(), "its access token is longer");
        assert!(answer("t", "mac", "a").unwrap_err().starts_with("its token is of the type `mac`"));
        assert_eq!(answer("t", "Bearer", &"a ".repeat(40_000)).unwrap_err(), "its answer grants more");
        let odd = json!({"access_token": 5, "token_type": "Bearer", "scope": REFRESH_TOKEN}).to_string();
        assert_eq!(read(200, &odd).unwrap_err(), "its answer is not a token response");
        let unread =
            json!({"access_token": "t", "token_type": "Bearer", "expires_in": REFRESH_TOKEN}).to_string();
        assert_eq!(read(200, &unread).unwrap(), (200, json!({"access_token": "t", "token_type": "Bearer"})));
    }

    #[test]
    fn an_error_is_one_whatever_its_status_and_its_form() {
        let expected = (400, json!({"error": "invalid_grant"}));
        for body in [
            r#"{"access_token": null, "error": "invalid_grant"}"#,
            r#"{"access_token": "", "error": {"code": "invalid_grant"}}"#,
            "error=invalid_grant",
        ] {
            assert_eq!(read(200, body).unwrap(), expected, "{body}");
            assert_eq!(read(400, body).unwrap(), expected, "{body}");
        }
        assert_eq!(read(200, r#"{"access_token": ""}"#).unwrap_err(), "its access token is empty");
    }

    #[test]
    fn a_secret_is_written_in_other_ways_for_a_server_that_does_not_know_the_client() {
        let ways = TokenRequest::other_ways(&request());
        let raw = STANDARD.encode(format!("a-known-client:{CLIENT_SECRET}"));
        assert_eq!(ways[0].headers()[AUTHORIZATION], format!("Basic {raw}"));
        assert_eq!(ways[0].body(), request().body());
        assert!(!ways[1].headers().contains_key(AUTHORIZATION));
        let body: std::collections::HashMap<_, _> =
            form_urlencoded::parse(ways[1].body()).into_owned().collect();
        assert_eq!(body["client_secret"], CLIENT_SECRET);
        assert_eq!(
            (body["client_id"].as_str(), body["refresh_token"].as_str()),
            ("a-known-client", REFRESH_TOKEN)
        );
        assert_eq!(ways.len(), 2);
        let mut other = request();
        TokenRequest::of(&other).unwrap().leave_out_resource(&mut other);
        assert_eq!(other.body(), request().body());
        *other.body_mut() = b"code=a&resource=https%3A%2F%2Fmcp&x=+".to_vec();
        TokenRequest::of(&other).unwrap().leave_out_resource(&mut other);
        assert_eq!(other.body(), b"code=a&x=+");
    }

    #[test]
    fn secrets_are_noted() {
        let redactor = Redactor::default();
        TokenRequest::of(&request()).unwrap().note(&redactor);
        let text = redactor.redact(&format!("x1 {REFRESH_TOKEN} {CLIENT_SECRET}")).into_owned();
        assert_eq!(text, "x1 ${refresh token} ${client secret}");
        let other = Request::post("https://as.example.com/register").header(CONTENT_TYPE, "application/json");
        assert!(TokenRequest::of(&other.body(Vec::new()).unwrap()).is_none());
    }
}
