//! Requests to the API server of a cluster: JSON, the cluster's words for failures, and its time.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::header::{CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use kube::client::{Body, Client};
use kube::config::{Config, ExecInteractiveMode, KubeConfigOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ClaimError;
use super::request::{ClusterRequest, ClusterVerb, PAUSE};
use crate::ground::text::{describe, visible};

/// The time for a request that is answered at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest answer. Claims have a few kilobytes.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The name of the environment variable with files of credentials, as `kubectl` has it.
const KUBECONFIG: &str = "KUBECONFIG";

/// The cluster's words for a failure.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ClusterStatus {
    code: u16,
    message: String,
    reason: String,
    details: StatusDetails,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusDetails {
    /// The object that the failure is about; empty if there is none.
    name: String,
    retry_after_seconds: u64,
}

/// A connection to the API server, as one namespace's user.
pub(super) struct ClusterClient {
    client: Client,
    /// The server's address, for people.
    server: String,
    namespace: String,
    is_of_our_pod: bool,
    /// The files with its credentials.
    files: Vec<PathBuf>,
    /// The milliseconds that the server's clock is ahead of ours.
    ahead: AtomicI64,
}

impl std::fmt::Debug for ClusterClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClusterClient").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ClusterClient {
    /// Finds credentials as `kubectl` does: in the files of `KUBECONFIG` or `~/.kube/config`, else those of the service account
    /// of our pod. Sends no request yet.
    pub(super) async fn connect(namespace: Option<String>) -> Result<Self, ClaimError> {
        // An error means that a provider is installed already, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
        let outside = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
        let is_named = std::env::var_os(KUBECONFIG).is_some_and(|files| !files.is_empty());
        let found = match outside {
            Ok(config) => Ok((config, false)),
            Err(error) if is_named => return Err(ClaimError::Credentials(describe(&error))),
            Err(error) => Config::incluster().map(|config| (config, true)).map_err(|inside| {
                ClaimError::NoCredentials { kubeconfig: describe(&error), inside: describe(&inside) }
            }),
        };
        let (mut config, is_inside) = found?;
        if is_loopback(&config.cluster_url) {
            // A cluster on this machine, or a tunnel that ends here: no proxy must see the token.
            config.proxy_url = None;
        }
        // We say ourselves which requests are sent again, and until when.
        config.default_retry = false;
        if let Some(program) = &mut config.auth_info.exec {
            // It would read our stdin, where the client speaks to us.
            program.interactive_mode = Some(ExecInteractiveMode::Never);
        }
        let mut files = if is_inside { Vec::new() } else { kubeconfig_files() };
        files.extend(
            [&config.auth_info.token_file, &config.auth_info.client_key]
                .into_iter()
                .flatten()
                .map(PathBuf::from),
        );
        let own = config.default_namespace.clone();
        let namespace = namespace.unwrap_or_else(|| own.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        // It may run a program of the user's that fetches a token.
        let client = tokio::task::spawn_blocking(move || Client::try_from(config)).await;
        let client = client
            .map_err(|error| ClaimError::Credentials(error.to_string()))?
            .map_err(|error| ClaimError::Credentials(describe(&error)))?;
        let is_of_our_pod = is_inside && own == namespace;
        Ok(Self { client, server, namespace, is_of_our_pod, files, ahead: AtomicI64::new(0) })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the namespace is that of the pod that we run in, which can then own what is in it.
    pub(super) fn is_of_our_pod(&self) -> bool {
        self.is_of_our_pod
    }

    /// The files with the credentials, which none but us should read.
    pub(super) fn credential_files(&self) -> &[PathBuf] {
        &self.files
    }

    /// A time in the future, by the clock of the server.
    pub(super) fn time_in(&self, time: Duration) -> String {
        let ahead = TimeDelta::milliseconds(self.ahead.load(Ordering::Relaxed));
        let then = DateTime::<Utc>::from(SystemTime::now() + time) + ahead;
        then.to_rfc3339_opts(SecondsFormat::Secs, true)
    }

    /// Sends a request, and returns the object in the answer.
    pub(super) async fn ask(&self, request: &ClusterRequest) -> Result<Value, ClaimError> {
        let late = || self.unreachable(format!("no answer within {} seconds", REQUEST_TIMEOUT.as_secs()));
        let asking = async {
            let body = self.read(self.send(request).await?.into_body()).await?;
            serde_json::from_slice(&body).map_err(|error| self.wrong_answer(error.to_string()))
        };
        tokio::time::timeout(REQUEST_TIMEOUT, asking).await.unwrap_or_else(|_| Err(late()))
    }

    /// The parts of an object that we read.
    pub(super) fn read_object<T: DeserializeOwned>(&self, object: Value) -> Result<T, ClaimError> {
        serde_json::from_value(object).map_err(|error| self.wrong_answer(error.to_string()))
    }

    /// Sends a request until it is answered, also if the server fails at first. The caller limits the time.
    pub(super) async fn insist(&self, request: &ClusterRequest) -> Result<Value, ClaimError> {
        loop {
            match self.ask(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => tokio::time::sleep(error.pause().ok_or(error)?.max(PAUSE)).await,
            }
        }
    }

    /// Sends a request, and returns the answer if it is a success.
    pub(super) async fn send(&self, request: &ClusterRequest) -> Result<Response<Body>, ClaimError> {
        let body = request.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let kind = if request.verb == ClusterVerb::Patch {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let built = Request::builder()
            .method(request.verb.method())
            .uri(request.uri(&self.namespace))
            .header(CONTENT_TYPE, kind)
            .body(Body::from(body))
            .map_err(|error| self.unreachable(error.to_string()))?;
        let answer = self.client.send(built).await.map_err(|error| self.failed(&error))?;
        self.note_time(answer.headers());
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let headers = answer.headers().clone();
        let body = self.read(answer.into_body()).await?;
        Err(self.refusal(request, status, &headers, &body))
    }

    async fn read(&self, body: Body) -> Result<Bytes, ClaimError> {
        let read = Limited::new(body, BODY_BYTES_MAX).collect().await;
        Ok(read.map_err(|error| self.unreachable(describe(error.as_ref())))?.to_bytes())
    }

    /// The error of a request without an answer.
    fn failed(&self, error: &kube::Error) -> ClaimError {
        match error {
            kube::Error::Auth(error) => ClaimError::Credentials(describe(error)),
            error => self.unreachable(describe(error)),
        }
    }

    fn unreachable(&self, reason: String) -> ClaimError {
        ClaimError::Unreachable { server: self.server.clone(), reason }
    }

    pub(super) fn wrong_answer(&self, reason: String) -> ClaimError {
        ClaimError::Answer { server: self.server.clone(), reason }
    }

    /// Remembers how far the server's clock is ahead. Its header has whole seconds.
    fn note_time(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) {
            let ahead = date.to_utc() - DateTime::<Utc>::from(SystemTime::now());
            self.ahead.store(ahead.num_milliseconds(), Ordering::Relaxed);
        }
    }

    /// The error for an answer without success.
    fn refusal(
        &self,
        request: &ClusterRequest,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> ClaimError {
        let said: ClusterStatus = serde_json::from_slice(body).unwrap_or_default();
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        self.of_status(request, status, said, seconds)
    }

    /// The error in an event of a watch.
    pub(super) fn event_error(&self, request: &ClusterRequest, said: ClusterStatus) -> ClaimError {
        let status = StatusCode::from_u16(said.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.of_status(request, status, said, None)
    }

    fn of_status(
        &self,
        request: &ClusterRequest,
        status: StatusCode,
        said: ClusterStatus,
        seconds: Option<u64>,
    ) -> ClaimError {
        let ClusterRequest { verb, resource, .. } = *request;
        let message = visible::line(&said.message);
        match status {
            StatusCode::UNAUTHORIZED => ClaimError::Unauthorized { server: self.server.clone() },
            StatusCode::FORBIDDEN => {
                ClaimError::Forbidden { verb, resource, namespace: self.namespace.clone(), message }
            }
            StatusCode::NOT_FOUND if !said.details.name.is_empty() => ClaimError::NotFound { message },
            StatusCode::NOT_FOUND => ClaimError::NotInstalled { server: self.server.clone(), resource },
            StatusCode::GONE => ClaimError::Expired,
            StatusCode::CONFLICT if said.reason == "AlreadyExists" => ClaimError::Exists { message },
            status => {
                let asked = said.details.retry_after_seconds;
                let retry_after = seconds.or((asked > 0).then_some(asked)).map(Duration::from_secs);
                ClaimError::Failed { verb, resource, status, message, retry_after }
            }
        }
    }
}

/// The files that [`ClusterClient::connect`] takes credentials from outside of a cluster from.
fn kubeconfig_files() -> Vec<PathBuf> {
    match std::env::var_os(KUBECONFIG).filter(|files| !files.is_empty()) {
        Some(files) => std::env::split_paths(&files).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
