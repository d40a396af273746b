//! Errors of claims, with hints.

use std::time::Duration;

use http::StatusCode;

use super::request::{ClusterResource, ClusterVerb, PAUSE, VERSION};
use crate::ground::text::listed;

/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// Kubernetes has no such names.
    #[error(
        "use `{name}` as the name of {what}: names in Kubernetes have small letters, digits, `-` and `.` only"
    )]
    Name { what: &'static str, name: String },
    /// Nothing says how to reach a cluster.
    #[error(
        "find the credentials for a cluster: {kubeconfig}; and ipybox does not run in a cluster: {inside}\n\
         hint: name a file with them by the environment variable `KUBECONFIG`, or have the pod that ipybox runs in use a \
         service account"
    )]
    NoCredentials { kubeconfig: String, inside: String },
    /// The credentials cannot be used.
    #[error("use the credentials for the cluster: {0}")]
    Credentials(String),
    /// The API server cannot be reached.
    #[error("connect to the Kubernetes cluster at `{server}`: {reason}")]
    Unreachable { server: String, reason: String },
    /// It does not know us.
    #[error(
        "use the Kubernetes cluster at `{server}`: it does not accept the credentials\n\
         hint: they may have expired; `kubectl get sandboxclaims` with the same `KUBECONFIG` shows it"
    )]
    Unauthorized { server: String },
    /// A role lacks a right.
    #[error(
        "{verb} {kind} in the namespace `{namespace}`: the cluster does not allow it: {message}\n\
         hint: if a right is missing, the Role of ipybox needs `{{apiGroups: [{group}], resources: [{kind}], verbs: [{verb}]}}`",
        verb = verb.word(), kind = resource.word(), group = resource.group()
    )]
    Forbidden { verb: ClusterVerb, resource: ClusterResource, namespace: String, message: String },
    /// There is no such object.
    #[error("use an object of the Kubernetes cluster: {message}")]
    NotFound { message: String },
    /// There are no objects of this kind.
    #[error(
        "use `{kind}` of the Kubernetes cluster at `{server}`: it knows none\n\
         hint: is agent-sandbox installed there with its extensions, in a version that serves `{group}/{VERSION}`?",
        kind = resource.word(), group = resource.group()
    )]
    NotInstalled { server: String, resource: ClusterResource },
    /// There is an object of that name.
    #[error("create a claim: {message}")]
    Exists { message: String },
    /// There is no such pool.
    #[error(
        "claim a sandbox of the warm pool `{pool}`: the namespace `{namespace}` has none of that name\nhint: {hint}"
    )]
    NoSuchPool { pool: String, namespace: String, hint: String },
    /// The version from which a watch should go on is forgotten.
    #[error("go on with a watch: its version is too old")]
    Expired,
    /// The API server cannot do it, perhaps now only.
    #[error("{verb} {kind}: the cluster answers {status}: {message}", verb = verb.word(), kind = resource.word())]
    Failed {
        verb: ClusterVerb,
        resource: ClusterResource,
        status: StatusCode,
        message: String,
        retry_after: Option<Duration>,
    },
    /// It answers something else than it should.
    #[error("read the answer of the Kubernetes cluster at `{server}`: {reason}")]
    Answer { server: String, reason: String },
    /// agent-sandbox refuses the claim.
    #[error("claim a sandbox: agent-sandbox says {reason}: {message}")]
    Rejected { reason: String, message: String },
    /// Somebody has deleted the claim.
    #[error("claim a sandbox: the claim was deleted before it was ready")]
    Deleted,
    /// No controller has looked at the claim.
    #[error(
        "claim a sandbox of the warm pool `{pool}`: after {seconds} seconds no controller has looked at the claim\n\
         hint: do the controllers of agent-sandbox run, with `--extensions`? `kubectl get pods -n agent-sandbox-system` shows them"
    )]
    Ignored { pool: String, seconds: u64 },
    /// The server of a team cannot be asked.
    #[error("ask the team server for a sandbox: {0}")]
    Front(String),
    /// It refuses, or the cluster does, in words.
    #[error("{0}")]
    Refused(String),
    /// The last failure of those that were tried again, in words.
    #[error("{0}")]
    Repeated(String),
    /// A sandbox that was suspended does not run in time.
    #[error(
        "have the sandbox `{sandbox}` run again, which was suspended while nobody used it: it does not after {seconds} seconds: \
         {state}\n\
         hint: is there room in the cluster? `kubectl delete sandboxclaim {claim}` gives it up with its files; the session then claims \
         another one"
    )]
    Asleep { sandbox: String, claim: String, seconds: u64, state: String },
    /// There was no sandbox in time.
    #[error(
        "claim a sandbox of the warm pool `{pool}`: it is not ready after {seconds} seconds: {state}\n\
         hint: with no warm sandbox left, a cold one has to start; have more `replicas` in the pool, or wait longer with \
         `--kernel-claim-timeout`"
    )]
    TooLate { pool: String, seconds: u64, state: String },
}

impl ClaimError {
    /// The pause before it is worth another try; `None` if it never is.
    pub(super) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Unreachable { .. } | Self::Expired => Some(PAUSE),
            Self::Failed { status, retry_after, .. } => {
                let is_passing = status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT);
                is_passing.then(|| retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE))
            }
            _ => None,
        }
    }

    /// The error about a missing pool. `known` are the names of those that there are; `None` if they may not be listed.
    pub(super) fn no_such_pool(pool: &str, namespace: &str, known: Option<Vec<String>>) -> Self {
        let hint = match known {
            None => "name a `SandboxWarmPool` by `--kernel-pool`, and its namespace by `--kernel-namespace`".to_owned(),
            Some(names) if names.is_empty() => {
                "it has no warm pools at all; make one there, or name another namespace by `--kernel-namespace`".to_owned()
            }
            Some(names) => format!("it has {}", listed(names.iter().map(String::as_str))),
        };
        Self::NoSuchPool { pool: pool.to_owned(), namespace: namespace.to_owned(), hint }
    }
}
