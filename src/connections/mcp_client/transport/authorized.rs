//! Sends HTTP requests with the token of an account, and renews it where a server refuses it.

use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::transport::common::http_header::HEADER_SESSION_ID;

use crate::connections::mcp_client::failure::http_failure::{AccessRefusal, BadStatus, RequestFailure};
use crate::connections::oauth::{self, AccessToken, Account};
use crate::ground::text::describe;

/// Sends the requests of one connection.
#[derive(Clone)]
pub(crate) struct AuthorizedClient {
    pub(crate) client: Client,
    /// `None` if there is no login to the server.
    pub(crate) account: Option<Arc<Account>>,
    /// The command by which a user logs in.
    pub(crate) command: Arc<str>,
}

impl AuthorizedClient {
    /// Sends `request`, in the session if there is one. If the server refuses its token, it is sent once more with another.
    pub(crate) async fn send(
        &self,
        request: RequestBuilder,
        session: Option<&str>,
    ) -> Result<Response, RequestFailure> {
        let request = match session {
            Some(session) => request.header(HEADER_SESSION_ID, session),
            None => request,
        };
        let Some(account) = &self.account else {
            return self.judge(sent(request, session).await?, None, None);
        };
        let again = request.try_clone();
        let token = match account.token().await {
            Ok(token) => token,
            Err(error) => return Err(self.refusal(StatusCode::UNAUTHORIZED, None, Some(error), None)),
        };
        let response = sent(with(request, token.as_ref()), session).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.judge(response, None, token);
        }
        let found = challenge(&response);
        match (account.another(token.as_ref(), found.as_deref().unwrap_or_default()).await, again) {
            (Ok(Some(token)), Some(again)) => {
                self.judge(sent(with(again, Some(&token)), session).await?, None, Some(token))
            }
            (Ok(_), _) => self.judge(response, None, token),
            (Err(error), _) => self.judge(response, Some(error), token),
        }
    }

    /// Lets everything pass but refusals of credentials.
    fn judge(
        &self,
        response: Response,
        why: Option<oauth::Error>,
        token: Option<AccessToken>,
    ) -> Result<Response, RequestFailure> {
        let status = response.status();
        let challenge = challenge(&response);
        match (status, &challenge) {
            (StatusCode::UNAUTHORIZED, _) | (StatusCode::FORBIDDEN, Some(_)) => {
                Err(self.refusal(status, challenge, why, token))
            }
            _ => Ok(response),
        }
    }

    fn refusal(
        &self,
        status: StatusCode,
        challenge: Option<String>,
        why: Option<oauth::Error>,
        token: Option<AccessToken>,
    ) -> RequestFailure {
        let has_login = match (&self.account, status) {
            (None, _) => false,
            (Some(_), StatusCode::FORBIDDEN) => {
                challenge.as_deref().is_some_and(|challenge| challenge.contains("insufficient_scope"))
            }
            // A login does not help if the authorization server is away.
            (Some(account), _) => {
                account.needs_user()
                    && !matches!(why, Some(oauth::Error::Unavailable(_) | oauth::Error::Discovery(_)))
            }
        };
        let why = why.map(|error| describe(&error));
        let command = has_login.then(|| Arc::clone(&self.command));
        RequestFailure::Refused(AccessRefusal { status, challenge, why, token, command })
    }
}

/// Sends the request. Some servers answer 401, and ask for no credentials, because they do not know the session.
async fn sent(request: RequestBuilder, session: Option<&str>) -> Result<Response, RequestFailure> {
    let response = request.send().await?;
    let asks_for_none = response.status() == StatusCode::UNAUTHORIZED && challenge(&response).is_none();
    if session.is_none() || !asks_for_none {
        return Ok(response);
    }
    let refusal = BadStatus::read(response).await;
    if refusal.names_lost_session() {
        return Err(refusal.lost_session());
    }
    let mut unauthorized = http::Response::new(refusal.body);
    *unauthorized.status_mut() = refusal.code;
    Ok(unauthorized.into())
}

fn with(request: RequestBuilder, token: Option<&AccessToken>) -> RequestBuilder {
    let Some(token) = token else { return request };
    // It always can: the characters of a token are checked when it comes.
    let Ok(mut value) = HeaderValue::from_str(&token.header()) else { return request };
    value.set_sensitive(true);
    // In place of the header that a user name and password in the URL have become.
    request.headers(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

fn challenge(response: &Response) -> Option<String> {
    let values = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}
