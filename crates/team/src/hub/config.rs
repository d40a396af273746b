//! The table `[kernels]` of the configuration: kernels of users at a JupyterHub.

use serde::Deserialize;

use crate::config::{SessionSettings, TeamSandbox, is_variable};
use crate::login::SecureUrl;

/// The place of the kernels of users. Default: this machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelTable {
    /// The JupyterHub at which each user has a server.
    pub hub_url: Option<SecureUrl>,
    /// The environment variable with the token of a service of the Hub, which makes tokens of its users.
    pub hub_token_env: Option<String>,
    /// The claim of a login that is the user's name at the Hub, or a JSON pointer to it. Default: `preferred_username`, else
    /// `username`, else the subject.
    pub hub_user_claim: Option<String>,
}

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
    let wrong = |key, why, remedy| Some(KernelMistake { key, why, remedy });
    let Some(url) = &table.hub_url else {
        let is_set = table.hub_token_env.is_some() || table.hub_user_claim.is_some();
        return is_set.then_some(KernelMistake {
            key: "kernels.hub_url",
            why: "is missing",
            remedy: "name the JupyterHub, as \"https://hub.example.org/\", or leave the table out",
        });
    };
    if url.url().query().is_some() {
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
    if publishes {
        let remedy = "leave `[actions]` or `kernels.hub_url` out";
        return wrong(
            "actions",
            "run in a sandbox of this machine, and there is none beside a JupyterHub",
            remedy,
        );
    }
    let local = [
        ("sessions.sandbox_backend", sessions.sandbox_backend != TeamSandbox::default()),
        ("sessions.sandbox_config", sessions.sandbox_config.is_some()),
        ("sessions.install_domains", !sessions.install_domains.is_empty()),
        ("sessions.python", sessions.python.is_some()),
        ("sessions.limit_memory", sessions.limit_memory.is_some()),
        ("sessions.limit_cpu", sessions.limit_cpu.is_some()),
        ("sessions.limit_processes", sessions.limit_processes.is_some()),
        ("sessions.limit_disk", sessions.limit_disk.is_some()),
    ];
    let (key, _) = local.into_iter().find(|(_, is_set)| *is_set)?;
    wrong(
        key,
        "is about kernels of this machine, and those of users run at `kernels.hub_url`",
        "leave it out; the JupyterHub's spawner has settings like it",
    )
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
        assert_eq!(mistake(&format!("{HUB}hub_user_claim = \"email\""), "idle = \"1m\"", false), None);
        for (table, sessions, key, why) in [
            ("hub_token_env = \"HUB\"", "", "kernels.hub_url", "is missing"),
            ("hub_user_claim = \"email\"", "", "kernels.hub_url", "is missing"),
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
}
