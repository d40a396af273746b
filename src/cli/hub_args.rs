//! The flags for a Jupyter server at a JupyterHub.

use std::collections::BTreeSet;
use std::str::FromStr;

use ipybox::RemoteHub;
use serde_json::{Map, Value};

use super::headings::REMOTE;
use super::values::object;

/// The flag `--kernel-hub-url`, and those beside it.
#[derive(Debug, clap::Args)]
pub(crate) struct HubArgs {
    /// Run the kernel on your Jupyter server at the JupyterHub at this URL, which starts it if it does not run
    #[arg(
        long,
        help_heading = REMOTE,
        value_name = "URL",
        group = "kernel_server",
        requires = "hub_token",
        conflicts_with_all = ["sandbox", "python", "checkpoint", "tool_server_host", "tool_server_port"]
    )]
    pub(super) kernel_hub_url: Option<String>,

    /// Environment variable that holds your token for the Hub, or a service's
    #[arg(long, help_heading = REMOTE, value_name = "VAR", requires = "kernel_hub_url", group = "hub_token")]
    pub(super) kernel_hub_token_env: Option<String>,

    /// Have the team server, which names this session in `--front`, make tokens of the Hub's user
    #[arg(long, hide = true, requires_all = ["kernel_hub_user", "front"], group = "hub_token")]
    pub(super) kernel_hub_token_team: bool,

    /// Named server at the Hub [default: your default server]
    #[arg(long, help_heading = REMOTE, value_name = "NAME", requires = "kernel_hub_url")]
    kernel_hub_server: Option<String>,

    /// User of the Hub whose server it is [default: the token's]
    #[arg(long, help_heading = REMOTE, value_name = "NAME", requires = "kernel_hub_url")]
    kernel_hub_user: Option<String>,

    /// Options for the start of the server, a JSON object as the Hub's spawner takes it: `{"profile": "cpu"}` [default: those of
    /// its last start]. With a name, those of your named server of this name, which an agent chooses for a session of its own:
    /// gpu={"profile": "gpu"}
    #[arg(long, help_heading = REMOTE, value_name = "[NAME=]JSON", requires = "kernel_hub_url")]
    kernel_hub_options: Vec<HubOptionsArg>,
}

/// Options for the start of a server, with the name of a named one.
#[derive(Debug, Clone)]
struct HubOptionsArg {
    /// `None` for the server of sessions that choose none.
    name: Option<String>,
    options: Map<String, Value>,
}

impl FromStr for HubOptionsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once('=').filter(|_| !text.trim_start().starts_with('{'));
        Ok(match named {
            Some((name, options)) => Self { name: Some(name.to_owned()), options: object(options)? },
            None => Self { name: None, options: object(text)? },
        })
    }
}

impl HubArgs {
    /// Why these options cannot be used together.
    pub(super) fn refusal(&self) -> Option<String> {
        let mut names = BTreeSet::new();
        let twice = self.kernel_hub_options.iter().find(|arg| !names.insert(arg.name.as_deref()))?;
        Some(match &twice.name {
            Some(name) => {
                format!("`--kernel-hub-options {name}=…` is given twice: each name is that of one server")
            }
            None => {
                "`--kernel-hub-options` is given twice without a name: name the servers that agents choose, \
                     `--kernel-hub-options NAME=JSON`"
                    .to_owned()
            }
        })
    }

    /// The servers, if there is a Hub.
    pub(super) fn hub(&self) -> Option<RemoteHub> {
        self.kernel_hub_url.as_ref()?;
        let mut hub = RemoteHub {
            server: self.kernel_hub_server.clone(),
            user: self.kernel_hub_user.clone(),
            ..RemoteHub::default()
        };
        for HubOptionsArg { name, options } in self.kernel_hub_options.clone() {
            match name {
                Some(name) => drop(hub.named.insert(name, options)),
                None => hub.options = options,
            }
        }
        Some(hub)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::cli::args::Args;

    fn parsed(options: &[&str]) -> Result<HubArgs, clap::Error> {
        let hub = ["ipybox", "--kernel-hub-url", "https://hub.example/", "--kernel-hub-token-env", "HUB"];
        let options = options.iter().flat_map(|options| ["--kernel-hub-options", options]);
        Args::try_parse_from(hub.into_iter().chain(options)).map(|args| args.serve.hub)
    }

    #[test]
    fn options_with_a_name_are_those_of_a_named_server() {
        let hub = parsed(&[r#"gpu={"profile": "a=b"}"#, r#" {"profile": "c=d"}"#, "large={}"])
            .unwrap()
            .hub()
            .unwrap();
        assert_eq!(json!(hub.options), json!({"profile": "c=d"}));
        assert_eq!(json!(hub.named), json!({"gpu": {"profile": "a=b"}, "large": {}}));
        assert!(parsed(&["gpu"]).unwrap_err().to_string().contains("not an object in JSON"));
        assert!(parsed(&["gpu=[]"]).unwrap_err().to_string().contains("not an object in JSON"));
    }

    #[test]
    fn servers_that_cannot_be_told_apart_are_refused() {
        let refusal = |options: &[&str]| parsed(options).unwrap().refusal();
        assert_eq!(refusal(&["{}", "a={}", "b={}"]), None);
        assert!(refusal(&["{}", "{}"]).unwrap().contains("twice without a name"));
        assert!(refusal(&["a={}", "a={}"]).unwrap().contains("`--kernel-hub-options a=…` is given twice"));
    }
}
