//! Logins of users to servers behind OAuth.

use std::sync::Arc;
use std::time::Duration;

use super::Connector;
use crate::connections::mcp_client::failure::Error;
use crate::connections::mcp_client::failure::http_failure::AccessRefusal;
use crate::connections::mcp_client::parameters::{ServerParameters, ServerReach};
use crate::connections::mcp_client::transport::FilledHttp;
use crate::connections::oauth::{self, Account, LoginOpener, RefusedAccess, RefusedRequest};

/// Why there is no login, or none that could be forgotten.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The server is a program, or its parameters have credentials of their own.
    #[error(
        "the server has no login: it is a program, or its parameters turn the login off (`oauth`: false, or a header \
         `Authorization`)"
    )]
    NoLogin,
    /// The parameters cannot be used.
    #[error(transparent)]
    Parameters(#[from] Box<Error>),
    /// The login failed.
    #[error(transparent)]
    Login(#[from] oauth::Error),
}

impl Connector {
    /// The account with the server, if it may have one.
    fn account(&self, parameters: &ServerParameters) -> Result<Option<Arc<Account>>, Error> {
        let ServerReach::Http(parameters) = &parameters.reach else { return Ok(None) };
        let (filled, _secrets) = FilledHttp::fill(parameters, &self.variables)?;
        Ok(filled.login.map(|login| self.accounts.with(&filled.url, login)))
    }

    /// Notes that the server `name` has refused a request, for `ipybox login` in another process.
    pub(crate) async fn note(&self, name: &str, parameters: &ServerParameters, refusal: &AccessRefusal) {
        if refusal.command.is_none() {
            return;
        }
        if let Ok(Some(account)) = self.account(parameters) {
            let name = name.to_owned();
            let parameters = parameters.to_json();
            let challenge = refusal.challenge.clone();
            let scopes = refusal.scopes();
            account.note(RefusedAccess { name, parameters, challenge, scopes }).await;
        }
    }

    /// Logs a user in to the server, which has answered with `refusal` if it was asked already.
    ///
    /// # Errors
    /// There is no login to the server, or none came of it.
    pub(crate) async fn log_in(
        &self,
        parameters: &ServerParameters,
        refusal: Option<&AccessRefusal>,
        scopes: &[String],
        opener: &dyn LoginOpener,
        limit: Duration,
    ) -> Result<(), LoginError> {
        let account = self.account(parameters).map_err(Box::new)?.ok_or(LoginError::NoLogin)?;
        let refused = refusal.map(refused_request);
        let scopes = scopes_of(refusal, scopes);
        // A large future, which few callers need.
        Ok(Box::pin(account.login(refused, &scopes, opener, limit)).await?)
    }

    /// Begins a login that an answer offers by a link, and that goes on for `limit`. Returns the link; `None` if only a program on
    /// this machine could take the login's end.
    ///
    /// # Errors
    /// The login cannot begin.
    pub(crate) async fn offer_login(
        &self,
        parameters: &ServerParameters,
        refusal: &AccessRefusal,
        limit: Duration,
    ) -> Result<Option<String>, LoginError> {
        let account = self.account(parameters).map_err(Box::new)?.ok_or(LoginError::NoLogin)?;
        let scopes = scopes_of(Some(refusal), &[]);
        let offered = account.offer_login(refused_request(refusal), scopes, limit);
        Ok(Box::pin(offered).await?)
    }

    /// The next answer has this note about a login.
    pub(crate) fn note_offer(&self, note: String) {
        self.accounts.offers.lock().push(note);
    }

    /// The notes about logins that no answer has had yet.
    pub(crate) fn take_offers(&self) -> Vec<String> {
        std::mem::take(&mut *self.accounts.offers.lock())
    }

    /// Forgets the login to the server. Returns whether there was one.
    ///
    /// # Errors
    /// There is no login to the server, or the store cannot be changed.
    pub(crate) async fn log_out(&self, parameters: &ServerParameters) -> Result<bool, LoginError> {
        let account = self.account(parameters).map_err(Box::new)?.ok_or(LoginError::NoLogin)?;
        Ok(account.forget().await?)
    }

    /// As [`log_out`](Self::log_out), of a server that nobody uses any more. Blocks.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn forget_login(&self, parameters: &ServerParameters) -> Result<bool, LoginError> {
        let account = self.account(parameters).map_err(Box::new)?.ok_or(LoginError::NoLogin)?;
        Ok(account.forget_kept()?)
    }
}

fn refused_request(refusal: &AccessRefusal) -> RefusedRequest<'_> {
    RefusedRequest { token: refusal.token.as_ref(), challenge: refusal.challenge.as_deref() }
}

/// The scopes to ask for beside those that were granted before.
fn scopes_of(refusal: Option<&AccessRefusal>, more: &[String]) -> Vec<String> {
    // The scopes of a first login are those of the challenge, which rmcp reads.
    match refusal {
        Some(refusal) if refusal.status == reqwest::StatusCode::UNAUTHORIZED => Vec::new(),
        refusal => refusal
            .map(AccessRefusal::scopes)
            .unwrap_or_default()
            .into_iter()
            .chain(more.iter().cloned())
            .collect(),
    }
}
