//! A program that is told of questions to approvers, signed as [Standard Webhooks](https://www.standardwebhooks.com) are: for
//! chat systems. It can answer nothing; its link leads to the page with its login.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, StatusCode};
use ring::hmac;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::question::{AskedApproval, QuestionFor, WaitingQuestion};
use super::routes::APPROVALS_PATH;
use crate::config::WebhookTable;
use crate::login::SecureUrl;
use crate::storage::now;

/// The shortest secret, in bytes; Standard Webhooks have 24 at least.
const SECRET_BYTES: usize = 24;
/// The pauses before the tries to send a message.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
];
/// The time that a try may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of messages that are on their way. Others are left out: the questions wait on the page all the same.
const ON_THEIR_WAY: usize = 64;

/// Why messages cannot be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// There is no secret.
    #[error("sign messages to `approvals.webhook`: the environment variable `{0}` is not set")]
    Missing(String),
    /// The secret is none.
    #[error(
        "sign messages to `approvals.webhook`: the secret in `{0}` has less than {SECRET_BYTES} bytes, or is no `whsec_…`\n\
         hint: make one by `echo whsec_$(openssl rand -base64 32)`"
    )]
    Weak(String),
}

/// The program that is told.
pub(crate) struct ApprovalWebhook {
    client: Client,
    url: SecureUrl,
    secret: hmac::Key,
    has_arguments: bool,
    link: String,
    places: Arc<Semaphore>,
}

impl ApprovalWebhook {
    /// Sends by `client`, which follows no redirects, the address of the page with this origin.
    pub(crate) fn open(table: &WebhookTable, client: Client, origin: &str) -> Result<Self, WebhookError> {
        let name = &table.secret_env;
        let text = std::env::var(name).map_err(|_| WebhookError::Missing(name.clone()))?;
        let secret = secret(&text).ok_or_else(|| WebhookError::Weak(name.clone()))?;
        Ok(Self {
            client,
            url: table.url.clone(),
            secret,
            has_arguments: table.arguments,
            link: format!("{origin}{APPROVALS_PATH}"),
            places: Arc::new(Semaphore::new(ON_THEIR_WAY)),
        })
    }

    /// Tells of a question to approvers, in the background.
    pub(crate) fn announce(self: &Arc<Self>, question: &WaitingQuestion) {
        let QuestionFor::Approvers(asked) = &question.is_for else { return };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!("a question is not announced: too many messages are on their way");
            return;
        };
        let body = self.body(question, asked).to_string();
        // The same for a question that is asked again: its receiver knows it.
        let id = asked.question.clone();
        let webhook = Arc::clone(self);
        let left = asked.left();
        tokio::spawn(async move {
            if tokio::time::timeout(left, webhook.deliver(&id, &body)).await.is_err() {
                tracing::warn!(question = %id, "a question was over before its message was taken");
            }
            drop(place);
        });
    }

    fn body(&self, question: &WaitingQuestion, asked: &AskedApproval) -> Value {
        let mut data = json!({
            "question": asked.question,
            "url": self.link,
            "asker": {"name": question.asker.name, "user": question.asker.identity.to_string()},
            "server": asked.name("server"),
            "tool": asked.name("tool"),
            "rule": asked.rule(),
            "approvers": asked.approvers(),
            "seconds_left": asked.left().as_secs(),
        });
        if let Some(arguments) = asked.arguments().filter(|_| self.has_arguments) {
            data["arguments"] = arguments.clone();
        }
        json!({"type": "approval.asked", "timestamp": now(), "data": data})
    }

    async fn deliver(&self, id: &str, body: &str) {
        for pause in PAUSES {
            tokio::time::sleep(pause).await;
            match self.send(id, body).await {
                Ok(status) if status.is_success() => return,
                Ok(StatusCode::GONE) => break,
                Ok(status) => tracing::warn!(question = %id, %status, "the webhook refuses a message"),
                Err(error) => {
                    let error = crate::describe(&error.without_url());
                    tracing::warn!(question = %id, %error, "the webhook cannot be reached");
                }
            }
        }
        tracing::error!(question = %id, "the webhook has not taken a message: it is given up");
    }

    async fn send(&self, id: &str, body: &str) -> reqwest::Result<StatusCode> {
        let time = now();
        let signed = hmac::sign(&self.secret, format!("{id}.{time}.{body}").as_bytes());
        let request = self.client.post(self.url.url().clone()).timeout(TIMEOUT);
        let request = request
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", time)
            .header("webhook-signature", format!("v1,{}", STANDARD.encode(signed)));
        Ok(request.body(body.to_owned()).send().await?.status())
    }
}

/// The key of a secret: the bytes of a text, or those that follow `whsec_` in Base64.
fn secret(text: &str) -> Option<hmac::Key> {
    let bytes = match text.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).ok()?,
        None => text.as_bytes().to_vec(),
    };
    (bytes.len() >= SECRET_BYTES).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_signed_as_the_specification_shows() {
        // The example of the reference libraries.
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = hmac::sign(&secret, br#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#);
        assert_eq!(STANDARD.encode(signed), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_that_can_be_guessed_are_refused() {
        assert!(
            secret("whsec_short").is_none() && secret("whsec_c2hvcnQ=").is_none() && secret("x").is_none()
        );
        assert!(secret(&"x".repeat(SECRET_BYTES)).is_some());
    }
}
