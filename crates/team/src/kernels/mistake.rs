//! Mistakes in the table `[kernels]`, and in settings that contradict it.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use super::KernelTable;
use crate::config::{SessionSettings, TeamSandbox, is_variable};

/// The variable with the files of a cluster's credentials.
const KUBECONFIG: &str = "KUBECONFIG";
/// The shortest time of a claim.
const SHORTEST: Duration = Duration::from_secs(1);

/// A mistake in the table, or in a setting that contradicts it.
pub(crate) struct KernelMistake {
    pub(crate) key: &'static str,
    pub(crate) why: &'static str,
    pub(crate) remedy: &'static str,
}

/// The first mistake in the table.
pub(crate) fn kernel_mistake(
    table: &KernelTable,
    sessions: &SessionSettings,
    publishes: bool,
) -> Option<KernelMistake> {
    let mistake = match (&table.hub_url, &table.pool) {
        (None, None) => return without_place(table),
        (Some(_), _) => hub_mistake(table, sessions),
        (None, Some(_)) => pool_mistake(table, sessions),
    };
    if mistake.is_some() {
        return mistake;
    }
    let is_hub = table.hub_url.is_some();
    let [actions, local] = if is_hub { OF_HUB } else { OF_POOL };
    if publishes {
        let KernelRule { why, remedy } = actions;
        return wrong("actions", why, remedy);
    }
    let settings = [
        ("sessions.sandbox_backend", sessions.sandbox_backend != TeamSandbox::default()),
        ("sessions.sandbox_config", sessions.sandbox_config.is_some()),
        ("sessions.install_domains", !sessions.install_domains.is_empty()),
        ("sessions.python", sessions.python.is_some()),
        ("sessions.limit_memory", sessions.limit_memory.is_some()),
        ("sessions.limit_cpu", sessions.limit_cpu.is_some()),
        ("sessions.limit_processes", sessions.limit_processes.is_some()),
        ("sessions.limit_disk", sessions.limit_disk.is_some()),
    ];
    let (key, _) = settings.into_iter().find(|(_, is_set)| *is_set)?;
    wrong(key, local.why, local.remedy)
}

/// Why a setting does not go with a place of kernels.
struct KernelRule {
    why: &'static str,
    remedy: &'static str,
}

/// For actions, and for settings about kernels of this machine.
const OF_HUB: [KernelRule; 2] = [
    KernelRule {
        why: "run in a sandbox of this machine, and there is none beside a JupyterHub",
        remedy: "leave `[actions]` or `kernels.hub_url` out",
    },
    KernelRule {
        why: "is about kernels of this machine, and those of users run at `kernels.hub_url`",
        remedy: "leave it out; the JupyterHub's spawner has settings like it",
    },
];
const OF_POOL: [KernelRule; 2] = [
    KernelRule {
        why: "run in a sandbox of this machine, and there is none beside a pool",
        remedy: "leave `[actions]` or `kernels.pool` out",
    },
    KernelRule {
        why: "is about kernels of this machine, and those of users run in sandboxes of `kernels.pool`",
        remedy: "leave it out; the pool's `SandboxTemplate` has settings like it",
    },
];

fn wrong(key: &'static str, why: &'static str, remedy: &'static str) -> Option<KernelMistake> {
    Some(KernelMistake { key, why, remedy })
}

/// The mistake in a table that has neither a Hub nor a pool.
fn without_place(table: &KernelTable) -> Option<KernelMistake> {
    if table.hub_token_env.is_some() || table.hub_user_claim.is_some() || !table.hub_servers.is_empty() {
        let remedy = "name the JupyterHub, as \"https://hub.example.org/\", or leave the table out";
        return wrong("kernels.hub_url", "is missing", remedy);
    }
    let is_set = table.namespace.is_some()
        || table.pool_port.is_some()
        || table.router_url.is_some()
        || table.router_token_env.is_some()
        || table.claim_timeout.is_some()
        || table.claim_lease.is_some()
        || table.idle_timeout.is_some()
        || !table.named.is_empty();
    let remedy = "name the `SandboxWarmPool` of sessions that choose no kernel, or leave the table out";
    is_set.then_some(KernelMistake { key: "kernels.pool", why: "is missing", remedy })
}

/// The mistake in a table about a Hub.
fn hub_mistake(table: &KernelTable, sessions: &SessionSettings) -> Option<KernelMistake> {
    let is_of_pool = KernelTable {
        hub_url: None,
        hub_token_env: None,
        hub_user_claim: None,
        hub_servers: BTreeMap::new(),
        ..table.clone()
    };
    if table.pool.is_some() || without_place(&is_of_pool).is_some() {
        let remedy = "leave out either what is about the JupyterHub, or what is about pools";
        return wrong("kernels.hub_url", "is beside keys about pools", remedy);
    }
    if table.hub_url.as_ref().is_some_and(|url| url.url().query().is_some()) {
        return wrong("kernels.hub_url", "has a query", "leave out what is after the `?`");
    }
    match &table.hub_token_env {
        None => {
            let remedy = "name the variable with the token of a service of the JupyterHub";
            return wrong("kernels.hub_token_env", "is missing", remedy);
        }
        Some(name) if !is_variable(name) => {
            let remedy = "name the variable, and put the token into it";
            return wrong("kernels.hub_token_env", "is no name of a variable", remedy);
        }
        Some(_) => {}
    }
    if sessions.environment.iter().any(|name| Some(name) == table.hub_token_env.as_ref()) {
        let why = "has the variable of `kernels.hub_token_env`, whose token is for the server alone";
        return wrong("sessions.environment", why, "leave it out");
    }
    if table.hub_user_claim.as_ref().is_some_and(String::is_empty) {
        let remedy = "name a claim, or leave the key out";
        return wrong("kernels.hub_user_claim", "is empty", remedy);
    }
    None
}

/// The mistake in a table about pools.
fn pool_mistake(table: &KernelTable, sessions: &SessionSettings) -> Option<KernelMistake> {
    if table.hub_token_env.is_some() || table.hub_user_claim.is_some() {
        let key =
            if table.hub_token_env.is_some() { "kernels.hub_token_env" } else { "kernels.hub_user_claim" };
        return wrong(
            key,
            "is about a JupyterHub, and kernels run in sandboxes of `kernels.pool`",
            "leave it out",
        );
    }
    if !table.hub_servers.is_empty() {
        let why = "has names with `hub_options`, and kernels run in sandboxes of `kernels.pool`";
        return wrong("kernels", why, "give each name a `pool`");
    }
    let is_address = |text: &String| {
        Url::parse(text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
        })
    };
    if table.router_url.as_ref().is_some_and(|url| !is_address(url)) {
        let remedy = "write one like \"https://router.example.org/\", or leave it out";
        return wrong("kernels.router_url", "is no URL of a router", remedy);
    }
    match (&table.router_token_env, &table.router_url) {
        (Some(_), None) => {
            return wrong(
                "kernels.router_url",
                "is missing",
                "name the router, or leave `kernels.router_token_env` out",
            );
        }
        (Some(name), _) if !is_variable(name) => {
            let remedy = "name the variable, and put the token into it";
            return wrong("kernels.router_token_env", "is no name of a variable", remedy);
        }
        _ => {}
    }
    let times = [
        ("kernels.claim_timeout", table.claim_timeout),
        ("kernels.claim_lease", table.claim_lease),
        ("kernels.idle_timeout", table.idle_timeout),
    ];
    if let Some((key, _)) = times.into_iter().find(|(_, time)| time.is_some_and(|time| time < SHORTEST)) {
        return wrong(key, "is shorter than a second", "use the default, or some minutes");
    }
    if sessions.environment.iter().any(|name| name == KUBECONFIG) {
        let why = "has `KUBECONFIG`, whose credentials are for the server alone";
        return wrong("sessions.environment", why, "leave it out");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = "hub_url = \"https://hub.example/\"\nhub_token_env = \"HUB\"\n";

    fn mistake(table: &str, sessions: &str, publishes: bool) -> Option<(&'static str, &'static str)> {
        let table: KernelTable = toml::from_str(table).unwrap();
        let sessions: SessionSettings = toml::from_str(sessions).unwrap();
        kernel_mistake(&table, &sessions, publishes).map(|mistake| (mistake.key, mistake.why))
    }

    #[test]
    fn a_hub_needs_its_url_and_a_variable_and_bears_nothing_about_kernels_of_this_machine() {
        assert_eq!(mistake("", "sandbox_backend = \"srt\"\nlimit_cpu = 1", true), None);
        let usable = format!("{HUB}hub_user_claim = \"email\"\ngpu = {{ hub_options = {{}} }}");
        assert_eq!(mistake(&usable, "idle = \"1m\"", false), None);
        for (table, sessions, key, why) in [
            ("hub_token_env = \"HUB\"", "", "kernels.hub_url", "is missing"),
            ("hub_user_claim = \"email\"", "", "kernels.hub_url", "is missing"),
            ("gpu = { hub_options = {} }", "", "kernels.hub_url", "is missing"),
            ("hub_url = \"https://hub.example/\"", "", "kernels.hub_token_env", "is missing"),
            (
                "hub_url = \"https://hub.example/\"\nhub_token_env = \"a secret\"",
                "",
                "kernels.hub_token_env",
                "is no name",
            ),
            (
                "hub_url = \"https://hub.example/?a\"\nhub_token_env = \"HUB\"",
                "",
                "kernels.hub_url",
                "has a query",
            ),
            (&format!("{HUB}hub_user_claim = \"\""), "", "kernels.hub_user_claim", "is empty"),
            (HUB, "environment = [\"HUB\"]", "sessions.environment", "has the variable of"),
            (
                HUB,
                "sandbox_backend = \"srt\"",
                "sessions.sandbox_backend",
                "is about kernels of this machine",
            ),
            (HUB, "python = \"python3\"", "sessions.python", "is about kernels of this machine"),
            (HUB, "limit_memory = \"4G\"", "sessions.limit_memory", "is about kernels of this machine"),
        ] {
            let (found_key, found_why) = mistake(table, sessions, false).unwrap();
            assert!(found_key == key && found_why.starts_with(why), "{table}: {found_key} {found_why}");
        }
        assert_eq!(mistake(HUB, "", true).map(|(key, _)| key), Some("actions"));
        assert!(toml::from_str::<KernelTable>("hub_url = \"http://hub.example/\"").is_err());
    }

    const POOL: &str = "pool = \"ipybox\"\n";

    #[test]
    fn a_pool_needs_its_name_and_bears_nothing_of_a_hub_or_about_kernels_of_this_machine() {
        let all = "namespace = \"a\"\npool_port = 1\nrouter_url = \"http://router/\"\nrouter_token_env = \"R\"\nclaim_timeout = \"1m\"\nclaim_lease = \"1m\"\nidle_timeout = \"1m\"\ngpu = { pool = \"g\" }\n";
        assert_eq!(mistake(&format!("{POOL}{all}"), "idle = \"1m\"\nenvironment = [\"R\"]", false), None);
        for (table, sessions, key, why) in [
            ("namespace = \"a\"", "", "kernels.pool", "is missing"),
            ("gpu = { pool = \"g\" }", "", "kernels.pool", "is missing"),
            (&format!("{POOL}{HUB}"), "", "kernels.hub_url", "is beside keys about pools"),
            (&format!("{HUB}gpu = {{ pool = \"g\" }}"), "", "kernels.hub_url", "is beside keys about pools"),
            (&format!("{POOL}hub_token_env = \"HUB\""), "", "kernels.hub_token_env", "is about a JupyterHub"),
            (&format!("{POOL}gpu = {{ hub_options = {{}} }}"), "", "kernels", "has names with `hub_options`"),
            (&format!("{POOL}hub_user_claim = \"a\""), "", "kernels.hub_user_claim", "is about a JupyterHub"),
            (&format!("{POOL}router_url = \"router\""), "", "kernels.router_url", "is no URL"),
            (&format!("{POOL}router_token_env = \"R\""), "", "kernels.router_url", "is missing"),
            (
                &format!("{POOL}router_url = \"http://router/\"\nrouter_token_env = \"a b\""),
                "",
                "kernels.router_token_env",
                "is no name",
            ),
            (&format!("{POOL}claim_lease = \"0s\""), "", "kernels.claim_lease", "is shorter"),
            (POOL, "environment = [\"KUBECONFIG\"]", "sessions.environment", "has `KUBECONFIG`"),
            (POOL, "python = \"python3\"", "sessions.python", "is about kernels of this machine"),
            (POOL, "limit_disk = \"4G\"", "sessions.limit_disk", "is about kernels of this machine"),
        ] {
            let (found_key, found_why) = mistake(table, sessions, false).unwrap();
            assert!(found_key == key && found_why.starts_with(why), "{table}: {found_key} {found_why}");
        }
        assert_eq!(mistake(POOL, "", true).map(|(key, _)| key), Some("actions"));
    }
}
