//! The flags for sandboxes that are claimed from a cluster.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;

use ipybox::RemotePool;

use super::headings::REMOTE;
use super::values::seconds;

/// The flag `--kernel-pool`, and those beside it.
#[derive(Debug, clap::Args)]
pub(crate) struct ClaimArgs {
    /// Run the kernel in a sandbox that is claimed from this warm pool of a Kubernetes cluster with agent-sandbox. Credentials
    /// are found as `kubectl` finds them, or are those of the pod's service account. Further pools have a name, by which an agent
    /// chooses them for a session of its own: gpu=POOL
    #[arg(
        long,
        help_heading = REMOTE,
        value_name = "[NAME=]POOL",
        group = "kernel_server",
        conflicts_with_all = ["sandbox", "python"]
    )]
    kernel_pool: Vec<PoolArg>,

    /// Have the team server, which names this session in `--front`, claim the sandboxes
    #[arg(long, hide = true, requires_all = ["kernel_pool", "front"])]
    kernel_pool_team: bool,

    /// Namespace of the pools [default: that of the credentials]
    #[arg(long, help_heading = REMOTE, value_name = "NAME", requires = "kernel_pool")]
    kernel_namespace: Option<String>,

    /// Port on which `ipybox pod` listens in the pools' sandboxes
    #[arg(long, help_heading = REMOTE, value_name = "PORT", requires = "kernel_pool", default_value = "8888")]
    kernel_pool_port: u16,

    /// Reach the pools' sandboxes through the router at this URL [default: at the addresses of their pods]
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

/// A pool, with the name by which agents choose it.
#[derive(Debug, Clone)]
struct PoolArg {
    /// `None` for the pool of sessions that choose none.
    name: Option<String>,
    pool: String,
}

impl FromStr for PoolArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once('=') {
            Some((name, pool)) => Self { name: Some(name.to_owned()), pool: pool.to_owned() },
            None => Self { name: None, pool: text.to_owned() },
        })
    }
}

impl ClaimArgs {
    /// Why these pools cannot be used together.
    pub(super) fn refusal(&self) -> Option<String> {
        let without = self.kernel_pool.iter().filter(|arg| arg.name.is_none()).count();
        if without != 1 && !self.kernel_pool.is_empty() {
            let count = if without == 0 { "none" } else { "more than one" };
            return Some(format!(
                "one `--kernel-pool` has no name, as sessions that choose none take it, and {count} is given so: name all others, \
                 `--kernel-pool NAME=POOL`"
            ));
        }
        let mut names = BTreeSet::new();
        let mut given = self.kernel_pool.iter().filter_map(|arg| arg.name.as_deref());
        let twice = given.find(|name| !names.insert(*name))?;
        Some(format!("`--kernel-pool {twice}=…` is given twice: each name is that of one pool"))
    }

    /// The pools.
    pub(super) fn pool(&self) -> Option<RemotePool> {
        let unnamed = self.kernel_pool.iter().find(|arg| arg.name.is_none())?;
        let named = self.kernel_pool.iter().filter_map(|arg| Some((arg.name.clone()?, arg.pool.clone())));
        Some(RemotePool {
            name: unnamed.pool.clone(),
            named: named.collect(),
            namespace: self.kernel_namespace.clone(),
            port: self.kernel_pool_port,
            lease: self.kernel_claim_lease,
            timeout: self.kernel_claim_timeout,
            of_team: self.kernel_pool_team,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::Args;

    fn claims(pools: &[&str]) -> ClaimArgs {
        let flags = pools.iter().flat_map(|pool| ["--kernel-pool", pool]);
        Args::try_parse_from(["ipybox"].into_iter().chain(flags)).unwrap().serve.claims
    }

    #[test]
    fn one_pool_has_no_name_and_further_ones_have() {
        assert!(claims(&[]).pool().is_none());
        let pool = claims(&["gpu=ipybox-gpu", "ipybox", "large=ipybox-large"]).pool().unwrap();
        assert_eq!(pool.name, "ipybox");
        let named: Vec<_> = pool.named.iter().map(|(name, pool)| (name.as_str(), pool.as_str())).collect();
        assert_eq!(named, [("gpu", "ipybox-gpu"), ("large", "ipybox-large")]);
    }

    #[test]
    fn pools_that_cannot_be_told_apart_are_refused() {
        for usable in [&[][..], &["a"], &["a", "b=a"], &["b=a", "a", "c=d"]] {
            assert_eq!(claims(usable).refusal(), None, "{usable:?}");
        }
        for (pools, expected) in [
            (&["gpu=a"][..], "and none is given so"),
            (&["a", "b", "c=d"], "and more than one is given so"),
            (&["a", "b=c", "b=d"], "`--kernel-pool b=…` is given twice"),
        ] {
            let refusal = claims(pools).refusal().unwrap();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }
}
