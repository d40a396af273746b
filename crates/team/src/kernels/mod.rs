//! The table `[kernels]` of the configuration: kernels of users at a JupyterHub, or in sandboxes of a cluster.

mod mistake;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

pub(crate) use self::mistake::{KernelMistake, kernel_mistake};
use crate::login::SecureUrl;

/// The names of kernels that mean something else to agents.
const RESERVED: [&str; 3] = ["copy", "main", "new"];
/// The longest name of a kernel, which is the value of a label too.
const NAME_CHARACTERS: usize = 63;
/// The keys of the table that are no names of kernels.
const KEYS: [&str; 11] = [
    "hub_url",
    "hub_token_env",
    "hub_user_claim",
    "pool",
    "namespace",
    "pool_port",
    "router_url",
    "router_token_env",
    "claim_timeout",
    "claim_lease",
    "idle_timeout",
];

/// The place of the kernels of users. Default: this machine.
#[derive(Debug, Clone, Default)]
pub struct KernelTable {
    /// The JupyterHub at which each user has a server.
    pub hub_url: Option<SecureUrl>,
    /// The environment variable with the token of a service of the Hub, which makes tokens of its users.
    pub hub_token_env: Option<String>,
    /// The claim of a login that is the user's name at the Hub, or a JSON pointer to it. Default: `preferred_username`, else
    /// `username`, else the subject.
    pub hub_user_claim: Option<String>,
    /// The `SandboxWarmPool` of a Kubernetes cluster from which sessions have a sandbox that choose no other kernel.
    pub pool: Option<String>,
    /// The namespace of all pools. Default: that of the cluster's credentials.
    pub namespace: Option<String>,
    /// The port on which `ipybox pod` listens in sandboxes. Default: 8888.
    pub pool_port: Option<u16>,
    /// The router to the sandboxes. Default: they are reached at the addresses of their pods.
    pub router_url: Option<String>,
    /// The environment variable with the router's token, which sessions have too.
    pub router_token_env: Option<String>,
    /// The time that a sandbox may take to be ready. Default: 10 minutes.
    pub claim_timeout: Option<Duration>,
    /// The time after which the cluster deletes a claim that no server keeps. Default: 5 minutes.
    pub claim_lease: Option<Duration>,
    /// The time after which the kernel of a session ends that nobody uses, and its sandbox is given up if that has no volumes.
    /// Default: it does not end before its session.
    pub idle_timeout: Option<Duration>,
    /// The pools of kernels that agents choose by name.
    pub named: BTreeMap<String, NamedPool>,
    /// The named servers at the Hub whose kernels agents choose by name, with the options for their start.
    pub hub_servers: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}

/// A kernel that agents choose by its name.
#[derive(Debug, Clone)]
pub struct NamedPool {
    /// The `SandboxWarmPool`.
    pub pool: String,
    /// The number of its sandboxes that a user may have at a time. Default: `users.max_sessions`.
    pub max: Option<NonZeroUsize>,
}

/// The table of a name, as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedKernelTable {
    pool: Option<String>,
    max: Option<NonZeroUsize>,
    hub_options: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A time as the file has it: `"5m"`.
#[derive(Deserialize)]
struct TableTime(#[serde(with = "humantime_serde")] Duration);

impl KernelTable {
    /// Whether kernels run on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.hub_url.is_none() && self.pool.is_none()
    }

    /// Adds the kernels under a key that is none of [`KEYS`].
    fn add_named(&mut self, key: String, value: toml::Value) -> Result<(), String> {
        let NamedKernelTable { pool, max, hub_options } = named_table(&key, value)?;
        match (pool, hub_options) {
            (Some(pool), None) => drop(self.named.insert(key, NamedPool { pool, max })),
            (None, Some(options)) if max.is_none() => drop(self.hub_servers.insert(key, options)),
            (None, Some(_)) => {
                return Err(format!(
                    "`{key}`: `max` is about a pool: a user has one server of a name, and the JupyterHub limits their number"
                ));
            }
            (None, None) => {
                return Err(format!("`{key}`: missing field `pool`, or `hub_options` for a JupyterHub"));
            }
            (Some(_), Some(_)) => {
                return Err(format!("`{key}`: `pool` and `hub_options` are two places for one kernel"));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for KernelTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TableVisitor)
    }
}

struct TableVisitor;

impl<'de> Visitor<'de> for TableVisitor {
    type Value = KernelTable;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the table `[kernels]`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KernelTable, A::Error> {
        let mut table = KernelTable::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "hub_url" => table.hub_url = Some(map.next_value()?),
                "hub_token_env" => table.hub_token_env = Some(map.next_value()?),
                "hub_user_claim" => table.hub_user_claim = Some(map.next_value()?),
                "pool" => table.pool = Some(map.next_value()?),
                "namespace" => table.namespace = Some(map.next_value()?),
                "pool_port" => table.pool_port = Some(map.next_value()?),
                "router_url" => table.router_url = Some(map.next_value()?),
                "router_token_env" => table.router_token_env = Some(map.next_value()?),
                "claim_timeout" => table.claim_timeout = Some(map.next_value::<TableTime>()?.0),
                "claim_lease" => table.claim_lease = Some(map.next_value::<TableTime>()?.0),
                "idle_timeout" => table.idle_timeout = Some(map.next_value::<TableTime>()?.0),
                _ => {
                    let named = map.next_value()?;
                    table.add_named(key, named).map_err(A::Error::custom)?;
                }
            }
        }
        Ok(table)
    }
}

/// The table under a key that is none of [`KEYS`].
fn named_table(key: &str, value: toml::Value) -> Result<NamedKernelTable, String> {
    let toml::Value::Table(table) = value else {
        let keys = KEYS.map(|key| format!("`{key}`")).join(", ");
        return Err(format!(
            "unknown field `{key}`, expected one of {keys}; or a table, if it names a kernel: `{key} = {{ pool = \"…\" }}` or `{key} = {{ hub_options = {{ … }} }}`"
        ));
    };
    if !is_kernel_name(key) {
        let reserved = RESERVED.map(|name| format!("`{name}`")).join(", ");
        return Err(format!(
            "`{key}` is no name of a kernel: use a small letter, then small letters, digits and `-`, and neither of {reserved}"
        ));
    }
    table.try_into().map_err(|error: toml::de::Error| format!("`{key}`: {}", error.message()))
}

/// Whether agents can choose a kernel by this name, and a label can have it as its value.
pub(crate) fn is_kernel_name(name: &str) -> bool {
    name.len() <= NAME_CHARACTERS
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !name.ends_with('-')
        && !RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_kernel_and_another_unknown_key_a_mistake_that_is_named() {
        let table: KernelTable = toml::from_str(
            "pool = \"ipybox\"\nclaim_lease = \"90s\"\ngpu = { pool = \"ipybox-gpu\", max = 1 }\nlarge-2.pool = \"large\"\n",
        )
        .unwrap();
        assert_eq!(table.pool.as_deref(), Some("ipybox"));
        assert_eq!(table.claim_lease, Some(Duration::from_secs(90)));
        assert_eq!(table.named.keys().collect::<Vec<_>>(), ["gpu", "large-2"]);
        assert_eq!(table.named["gpu"].max.map(NonZeroUsize::get), Some(1));
        assert_eq!((table.named["large-2"].pool.as_str(), table.named["large-2"].max), ("large", None));
        let table: KernelTable =
            toml::from_str("gpu.hub_options = { profile = \"gpu\", size = 2 }\ncpu = { hub_options = {} }")
                .unwrap();
        let servers = serde_json::json!({"cpu": {}, "gpu": {"profile": "gpu", "size": 2}});
        assert_eq!(serde_json::json!(table.hub_servers), servers);
        for (text, expected) in [
            ("hub_ulr = \"https://hub.example/\"", "unknown field `hub_ulr`, expected one of `hub_url`"),
            ("gpu = \"ipybox-gpu\"", "`gpu = { pool = \"…\" }` or `gpu = { hub_options = { … } }`"),
            ("new = { pool = \"a\" }", "`new` is no name of a kernel"),
            ("GPU = { pool = \"a\" }", "`GPU` is no name of a kernel"),
            ("gpu- = { pool = \"a\" }", "`gpu-` is no name of a kernel"),
            ("gpu = { pool = \"a\", template = \"b\" }", "`gpu`: unknown field `template`"),
            ("gpu = { max = 1 }", "`gpu`: missing field `pool`, or `hub_options`"),
            ("gpu = { pool = \"a\", hub_options = {} }", "`gpu`: `pool` and `hub_options` are two places"),
            ("gpu = { hub_options = {}, max = 1 }", "`gpu`: `max` is about a pool"),
            ("gpu = { hub_options = 1 }", "`gpu`: invalid type: integer `1`"),
            ("gpu = { pool = \"a\", max = 0 }", "`gpu`: invalid value: integer `0`"),
            ("pool_port = \"http\"", "invalid type: string \"http\", expected u16"),
            ("claim_lease = 300", "expected"),
        ] {
            let error = toml::from_str::<KernelTable>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
