//! The flags of `ipybox login`, `logout` and `servers`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use ipybox::{Label, UnknownLabel};

use super::values::seconds;

/// Where registered servers are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Working directory of the kernel
    #[arg(long, value_name = "DIR", default_value = ".", global = true)]
    pub(crate) workspace: PathBuf,

    /// Directory that holds registered servers and Python environments
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// The flags of `ipybox login`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// The name under which the server is registered, or was to be; or its URL
    #[arg(value_name = "NAME|URL")]
    pub(crate) server: String,

    /// Open no browser: print the address, and read from stdin the one that the browser shows after the login
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// A scope to ask for, beside those that were granted before; may be given several times
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Vec<String>,

    /// How long to wait for the login, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// The flags of `ipybox logout`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// The name under which the server is registered, or its URL
    #[arg(value_name = "NAME|URL")]
    pub(crate) server: String,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// The flags of `ipybox servers`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServersArgs {
    #[command(subcommand)]
    pub(crate) action: Option<ServersAction>,

    /// Print JSON, whose keys do not change
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// What to do with a registered server.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersAction {
    /// Connect to a server, and print how many tools it has
    Test {
        /// Its name
        name: String,
    },
    /// Say what the data of a server is: the label that policies and questions use
    Label {
        /// Its name
        name: String,
        /// `untrusted` if strangers write there, `confidential` if it must not be passed on, `trusted`, or `none`
        #[arg(value_parser = label)]
        label: LabelArg,
    },
    /// Remove a registration, with its package `mcptools/<name>/` and its login
    Remove {
        /// Its name
        name: String,
    },
}

/// A label, or none.
pub(crate) type LabelArg = Option<Label>;

fn label(word: &str) -> Result<LabelArg, String> {
    match word {
        "none" => Ok(None),
        word => word.parse().map(Some).map_err(|error: UnknownLabel| error.to_string()),
    }
}
