//! The flags for sandboxes that are claimed from a cluster.

use std::time::Duration;

use ipybox::RemotePool;

use super::headings::REMOTE;
use super::values::seconds;

/// The flags beside `--kernel-pool`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClaimArgs {
    /// Have the team server, which names this session in `--front`, claim the sandboxes
    #[arg(long, hide = true, requires_all = ["kernel_pool", "front"])]
    kernel_pool_team: bool,

    /// Namespace of the pool [default: that of the credentials]
    #[arg(long, help_heading = REMOTE, value_name = "NAME", requires = "kernel_pool")]
    kernel_namespace: Option<String>,

    /// Port on which `ipybox pod` listens in the pool's sandboxes
    #[arg(long, help_heading = REMOTE, value_name = "PORT", requires = "kernel_pool", default_value = "8888")]
    kernel_pool_port: u16,

    /// Reach the pool's sandboxes through the router at this URL [default: at the addresses of their pods]
    #[arg(long, help_heading = REMOTE, value_name = "URL", requires = "kernel_pool")]
    pub(super) kernel_router_url: Option<String>,

    /// Environment variable that holds the router's token
    #[arg(long, help_heading = REMOTE, value_name = "VAR", requires = "kernel_router_url")]
    pub(super) kernel_router_token_env: Option<String>,

    /// How long a claimed sandbox may take to be ready, in seconds
    #[arg(
        long,
        help_heading = REMOTE,
        value_name = "SECONDS",
        requires = "kernel_pool",
        default_value = "600",
        value_parser = seconds
    )]
    kernel_claim_timeout: Duration,

    /// Seconds after which the cluster deletes the sandbox of a session that was killed
    #[arg(
        long,
        help_heading = REMOTE,
        value_name = "SECONDS",
        requires = "kernel_pool",
        default_value = "300",
        value_parser = seconds
    )]
    kernel_claim_lease: Duration,
}

impl ClaimArgs {
    /// The pool of this name.
    pub(super) fn pool(&self, name: String) -> RemotePool {
        RemotePool {
            name,
            namespace: self.kernel_namespace.clone(),
            port: self.kernel_pool_port,
            lease: self.kernel_claim_lease,
            timeout: self.kernel_claim_timeout,
            of_team: self.kernel_pool_team,
        }
    }
}
