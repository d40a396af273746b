//! The places of the user's secrets that no code in a sandbox reads. Nothing is read there.

use std::path::{Path, PathBuf};

use super::Config;
use crate::ground::clients::{ClientDirectories, hidden_places};
use crate::ground::env::MovedPlace;

/// The directories in which systems have the homes of their users.
const HOMES: [&str; 2] = ["/home", "/Users"];
/// The home of root.
const HOME_OF_ROOT: &str = "/root";

/// Places of secrets, as they are when the session starts.
#[derive(Debug, Clone, Default)]
pub(super) struct SecretPlaces {
    /// The secrets of MCP servers in the configurations of their clients.
    pub(super) clients: Vec<PathBuf>,
    /// The user's home in the system's list of users, if `HOME` is another one.
    pub(super) other_homes: Vec<PathBuf>,
    /// Homes of other users, which root can read.
    pub(super) foreign_homes: Vec<PathBuf>,
    /// Places that variables have moved.
    pub(super) moved: Vec<MovedPlace>,
    /// Places that the user has named.
    pub(super) named: Vec<PathBuf>,
}

impl SecretPlaces {
    /// Those of a session with this configuration, in whose settings the places `named` are.
    pub(super) fn of(config: &Config, named: &[PathBuf]) -> Self {
        let home = (config.home != Path::new("/")).then_some(config.home.as_path());
        let workspace = config.workspace.as_path();
        let variables = config.variables();
        let mut clients = hidden_places(&ClientDirectories { workspace, home, variables });
        clients.extend(config.mcp_configs.iter().filter_map(|file| std::path::absolute(file).ok()));
        let is_another =
            |other: &PathBuf| *other != config.home && *other != Path::new("/") && other.is_dir();
        let other_homes: Vec<PathBuf> = listed_home().into_iter().filter(is_another).collect();
        let mut foreign_homes = Vec::new();
        if nix::unistd::geteuid().is_root() {
            let listed = HOMES.iter().filter_map(|homes| Path::new(homes).read_dir().ok()).flatten();
            foreign_homes.extend(listed.flatten().map(|entry| entry.path()).chain([HOME_OF_ROOT.into()]));
            foreign_homes.retain(|foreign| is_another(foreign) && !other_homes.contains(foreign));
        }
        let moved = variables.moved_places(&config.home, &config.kernel_variables());
        let named = named.iter().map(|path| workspace.join(path)).collect();
        Self { clients, other_homes, foreign_homes, moved, named }
    }
}

/// The user's home in the system's list of users.
pub(super) fn listed_home() -> Option<PathBuf> {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.dir)
}
