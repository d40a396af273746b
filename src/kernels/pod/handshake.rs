//! The first messages over each WebSocket: both sides prove that they have the key that was made when the pod was taken.
//!
//! A pod is anonymous until somebody takes it by giving it a key. From then on it speaks to nobody else. It may be kept for those
//! who know a secret.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{SinkExt as _, StreamExt as _};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::Message;

use super::carrier::CarriedSocket;
use crate::ground::text::describe;

/// The time that the other side may take for all of it.
const TIMEOUT: Duration = Duration::from_secs(10);
const KEY_BYTES: usize = 32;
/// The longest message, in bytes.
const MESSAGE_BYTES: usize = 4096;

/// The secret of a pod and who has taken it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LinkKey([u8; KEY_BYTES]);

/// The first message of who connects.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerHello {
    version: String,
    nonce: String,
}

/// The pod's answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodHello {
    version: String,
    nonce: String,
    is_taken: bool,
    /// The proof that it has the key, if it is taken, or else the secret, if it is kept for those who know it.
    proof: Option<String>,
}

/// The second message of who connects.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum CallerProof {
    Take { key: String, proof: Option<String> },
    Resume { proof: String, received: u64 },
}

/// The last message.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum PodAnswer {
    Accepted { received: u64 },
    Refused { why: String },
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// It may work later.
    #[error("{0}")]
    Broken(String),
    /// It will not.
    #[error("{0}")]
    Refused(String),
}

/// A caller who has proved itself, or is the first one.
pub(crate) struct PodGreeting {
    /// The new key, if it takes the pod.
    pub(crate) key: Option<LinkKey>,
    /// The number of bytes that it has received.
    pub(crate) received: u64,
}

/// Without the bytes.
impl std::fmt::Debug for LinkKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LinkKey")
    }
}

impl LinkKey {
    pub(super) fn new() -> Self {
        Self(random())
    }

    /// A secret that a user has made.
    pub(crate) fn of_secret(secret: &str) -> Self {
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, secret.trim().as_bytes()).as_ref());
        Self(key)
    }

    fn proof(&self, role: &str, caller: &str, pod: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        BASE64.encode(hmac::sign(&key, format!("{role}\n{caller}\n{pod}").as_bytes()))
    }

    fn proves(&self, proof: &str, role: &str, caller: &str, pod: &str) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let Ok(proof) = BASE64.decode(proof) else { return false };
        hmac::verify(&key, format!("{role}\n{caller}\n{pod}").as_bytes(), &proof).is_ok()
    }
}

fn random() -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    #[expect(clippy::expect_used, reason = "without random numbers nothing is secret")]
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// The purpose of a connection to a pod.
pub(super) enum PodApproach<'a> {
    /// To take it, with the secret for which it is kept.
    Take { secret: Option<&'a LinkKey> },
    /// To go on, with the number of bytes that were received.
    Resume { received: u64 },
}

/// Connects to a pod, which has this key or gets it. Returns the number of bytes that the pod has received.
pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut CarriedSocket<S>,
    key: &LinkKey,
    approach: PodApproach<'_>,
) -> Result<u64, HandshakeError> {
    let connecting = async {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let nonce = BASE64.encode(random());
        say(socket, &CallerHello { version, nonce: nonce.clone() }).await?;
        let pod: PodHello = hear(socket).await?;
        let refused = |why: String| Err(HandshakeError::Refused(why));
        if pod.version != env!("CARGO_PKG_VERSION") {
            let ours = env!("CARGO_PKG_VERSION");
            return refused(format!(
                "the pod runs ipybox {}, and this is {ours}: use the same version",
                pod.version
            ));
        }
        let proves = |key: &LinkKey| {
            pod.proof.as_ref().is_some_and(|proof| key.proves(proof, "pod", &nonce, &pod.nonce))
        };
        let said = match approach {
            PodApproach::Take { .. } if pod.is_taken => {
                return refused("the pod is taken by another session".to_owned());
            }
            PodApproach::Take { secret: None } if pod.proof.is_some() => {
                return refused(
                    "the pod is kept for those who know its token: name it by `--kernel-pod-token-env`"
                        .to_owned(),
                );
            }
            PodApproach::Take { secret: Some(secret) } if !proves(secret) => {
                return refused("the pod does not have this token".to_owned());
            }
            PodApproach::Take { secret } => CallerProof::Take {
                key: BASE64.encode(key.0),
                proof: secret.map(|secret| secret.proof("caller", &nonce, &pod.nonce)),
            },
            PodApproach::Resume { .. } if !pod.is_taken => {
                return refused("the pod was started anew".to_owned());
            }
            PodApproach::Resume { .. } if !proves(key) => {
                return refused("another pod is at its address".to_owned());
            }
            PodApproach::Resume { received } => {
                CallerProof::Resume { proof: key.proof("caller", &nonce, &pod.nonce), received }
            }
        };
        say(socket, &said).await?;
        match hear(socket).await? {
            PodAnswer::Accepted { received } => Ok(received),
            PodAnswer::Refused { why } => refused(why),
        }
    };
    tokio::time::timeout(TIMEOUT, connecting)
        .await
        .unwrap_or_else(|_| Err(HandshakeError::Broken("the pod does not answer".to_owned())))
}

impl PodGreeting {
    /// Greets who connects to this pod, which `taken` may have taken, or which may be kept for those who know `secret`.
    ///
    /// # Errors
    /// It is not who has taken the pod, or does not speak as it should.
    pub(crate) async fn of<S: AsyncRead + AsyncWrite + Unpin>(
        socket: &mut CarriedSocket<S>,
        taken: Option<&LinkKey>,
        secret: Option<&LinkKey>,
    ) -> Result<Self, HandshakeError> {
        let greeting = async {
            let caller: CallerHello = hear(socket).await?;
            let nonce = BASE64.encode(random());
            let is_taken = taken.is_some();
            let proof = taken.or(secret).map(|key| key.proof("pod", &caller.nonce, &nonce));
            let version = env!("CARGO_PKG_VERSION").to_owned();
            say(socket, &PodHello { version, nonce: nonce.clone(), is_taken, proof }).await?;
            let knows = |proof: &Option<String>, secret: &LinkKey| {
                proof.as_ref().is_some_and(|proof| secret.proves(proof, "caller", &caller.nonce, &nonce))
            };
            let why = match (hear(socket).await?, taken) {
                (CallerProof::Take { proof, .. }, None)
                    if secret.is_some_and(|secret| !knows(&proof, secret)) =>
                {
                    "the token is another one"
                }
                (CallerProof::Take { key, .. }, None) => match BASE64.decode(key).map(TryInto::try_into) {
                    Ok(Ok(key)) => return Ok(Self { key: Some(LinkKey(key)), received: 0 }),
                    _ => "the key is none",
                },
                (CallerProof::Resume { proof, received }, Some(key))
                    if key.proves(&proof, "caller", &caller.nonce, &nonce) =>
                {
                    return Ok(Self { key: None, received });
                }
                (CallerProof::Resume { .. }, _) => "the key is another one",
                (CallerProof::Take { .. }, Some(_)) => "the pod is taken",
            };
            refused(socket, why).await;
            Err(HandshakeError::Refused(why.to_owned()))
        };
        tokio::time::timeout(TIMEOUT, greeting)
            .await
            .unwrap_or_else(|_| Err(HandshakeError::Broken("the caller says nothing".to_owned())))
    }
}

/// Tells a caller that it is accepted, and how many of its bytes have been received.
pub(crate) async fn accepted<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut CarriedSocket<S>,
    received: u64,
) -> Result<(), HandshakeError> {
    say(socket, &PodAnswer::Accepted { received }).await
}

/// Tells a caller that it is refused.
pub(crate) async fn refused<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut CarriedSocket<S>, why: &str) {
    if let Err(error) = say(socket, &PodAnswer::Refused { why: why.to_owned() }).await {
        tracing::debug!(%error, "a caller has gone before it was refused");
    }
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut CarriedSocket<S>,
    message: &impl Serialize,
) -> Result<(), HandshakeError> {
    let broken = |error: &dyn std::error::Error| HandshakeError::Broken(describe(error).to_string());
    let text = serde_json::to_string(message).map_err(|error| broken(&error))?;
    socket.send(Message::Text(text.into())).await.map_err(|error| broken(&error))
}

async fn hear<T: DeserializeOwned, S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut CarriedSocket<S>,
) -> Result<T, HandshakeError> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) if text.len() <= MESSAGE_BYTES => {
                return serde_json::from_str(&text).map_err(|error| {
                    HandshakeError::Refused(format!("it does not speak as ipybox does: {error}"))
                });
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(_)) => {
                return Err(HandshakeError::Refused("it does not speak as ipybox does".to_owned()));
            }
            Some(Err(error)) => return Err(HandshakeError::Broken(describe(&error).to_string())),
            None => return Err(HandshakeError::Broken("the connection was closed".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    async fn sockets() -> [CarriedSocket<DuplexStream>; 2] {
        let (one, other) = tokio::io::duplex(4096);
        [
            WebSocketStream::from_raw_socket(one, Role::Client, None).await,
            WebSocketStream::from_raw_socket(other, Role::Server, None).await,
        ]
    }

    /// The result for who connects, and for the pod.
    async fn meet(
        key: &LinkKey,
        approach: PodApproach<'_>,
        taken: Option<&LinkKey>,
        secret: Option<&LinkKey>,
    ) -> (Result<u64, HandshakeError>, Result<PodGreeting, HandshakeError>) {
        let [mut caller, mut pod] = sockets().await;
        let greeting = async {
            let greeted = PodGreeting::of(&mut pod, taken, secret).await?;
            accepted(&mut pod, 7).await?;
            Ok(greeted)
        };
        tokio::join!(connect(&mut caller, key, approach), greeting)
    }

    #[tokio::test]
    async fn the_first_one_takes_a_pod_and_nobody_else_gets_it() {
        let key = LinkKey::new();
        let (caller, pod) = meet(&key, TAKE, None, None).await;
        assert_eq!(caller.unwrap(), 7);
        assert!(pod.unwrap().key.is_some_and(|taken| taken == key));
        let (caller, pod) = meet(&key, RESUME, Some(&key), None).await;
        assert_eq!((caller.unwrap(), pod.unwrap().received), (7, 3));
        for (approach, said) in [(TAKE, "taken"), (RESUME, "another pod")] {
            let (caller, pod) = meet(&LinkKey::new(), approach, Some(&key), None).await;
            let Err(HandshakeError::Refused(why)) = caller else { panic!("it was accepted") };
            assert!(why.contains(said), "{why}");
            assert!(pod.is_err());
        }
        let (caller, _) = meet(&key, RESUME, None, None).await;
        assert!(matches!(caller, Err(HandshakeError::Refused(_))));
    }

    const TAKE: PodApproach<'static> = PodApproach::Take { secret: None };
    const RESUME: PodApproach<'static> = PodApproach::Resume { received: 3 };

    #[tokio::test]
    async fn a_pod_that_is_kept_is_taken_by_its_secret_alone() {
        let (key, secret, other) = (LinkKey::new(), LinkKey::of_secret("a"), LinkKey::of_secret("b"));
        let with = |secret| PodApproach::Take { secret: Some(secret) };
        let (caller, pod) = meet(&key, with(&secret), None, Some(&secret)).await;
        assert!(caller.is_ok() && pod.is_ok());
        for (approach, kept) in [(with(&other), Some(&secret)), (TAKE, Some(&secret)), (with(&secret), None)]
        {
            let (caller, pod) = meet(&key, approach, None, kept).await;
            assert!(matches!(caller, Err(HandshakeError::Refused(_))));
            assert!(pod.is_err());
        }
    }

    #[tokio::test]
    async fn a_caller_without_the_key_is_refused_by_the_pod_itself() {
        let [mut caller, mut pod] = sockets().await;
        let key = LinkKey::new();
        let lying = async {
            let nonce = String::new();
            say(&mut caller, &CallerHello { version: String::new(), nonce }).await?;
            let hello: PodHello = hear(&mut caller).await?;
            // Its own proof is none of a caller.
            let proof = hello.proof.unwrap_or_default();
            say(&mut caller, &CallerProof::Resume { proof, received: 0 }).await?;
            hear::<PodAnswer, _>(&mut caller).await
        };
        let (answer, greeted) = tokio::join!(lying, PodGreeting::of(&mut pod, Some(&key), None));
        assert!(matches!(answer, Ok(PodAnswer::Refused { .. })));
        assert!(greeted.is_err());
    }
}
