//! The MCP clients whose configurations are understood, and where each keeps them; what other programs of this kind keep
//! secrets in.

mod secrets;

use std::path::{Path, PathBuf};

pub(crate) use self::secrets::hidden_places;
use crate::ground::env::Variables;

/// An MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownClient {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    VsCode,
    Codex,
    Windsurf,
    Gemini,
}

/// A file that may have servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigurationFile {
    /// The client in whose format it is; `None` if that is unknown.
    pub(crate) client: Option<KnownClient>,
    pub(crate) path: PathBuf,
}

/// The directories in which clients keep their configurations.
pub(crate) struct ClientDirectories<'a> {
    /// The workspace's real path.
    pub(crate) workspace: &'a Path,
    /// The home directory; without one only the files of the workspace are found.
    pub(crate) home: Option<&'a Path>,
    pub(crate) variables: &'a Variables,
}

impl KnownClient {
    /// In the order of precedence.
    pub(crate) const ALL: [Self; 7] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Cursor,
        Self::VsCode,
        Self::Codex,
        Self::Windsurf,
        Self::Gemini,
    ];

    /// Its name as a flag has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
            Self::Windsurf => "windsurf",
            Self::Gemini => "gemini",
        }
    }

    /// Its name as people write it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::Windsurf => "Windsurf",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// The client of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// The client whose file this is, by its path.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let parent = path.parent().and_then(Path::file_name).and_then(|parent| parent.to_str());
        match (parent, name) {
            (_, ".mcp.json" | ".claude.json") => Some(Self::ClaudeCode),
            (_, "claude_desktop_config.json") => Some(Self::ClaudeDesktop),
            (Some(".cursor"), "mcp.json") => Some(Self::Cursor),
            (Some(".vscode" | "User"), "mcp.json") => Some(Self::VsCode),
            (Some(".codex"), "config.toml") => Some(Self::Codex),
            (_, "mcp_config.json") => Some(Self::Windsurf),
            (Some(".gemini"), "settings.json") => Some(Self::Gemini),
            _ => None,
        }
    }

    /// The files of a client, those of the workspace first.
    pub(crate) fn places(self, surroundings: &ClientDirectories<'_>) -> Vec<ConfigurationFile> {
        let place = |path: PathBuf| ConfigurationFile { client: Some(self), path };
        let in_workspace = self.files_of_workspace().iter().map(|file| surroundings.workspace.join(file));
        let mut places: Vec<ConfigurationFile> = in_workspace.map(place).collect();
        for path in self.files_of_user(surroundings) {
            // The workspace may be the home directory.
            if places.iter().all(|known| known.path != path) {
                places.push(place(path));
            }
        }
        places
    }

    /// Relative to the workspace.
    fn files_of_workspace(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &[".mcp.json"],
            Self::Cursor => &[".cursor/mcp.json"],
            Self::VsCode => &[".vscode/mcp.json"],
            Self::Codex => &[".codex/config.toml"],
            Self::Gemini => &[".gemini/settings.json"],
            Self::ClaudeDesktop | Self::Windsurf => &[],
        }
    }

    fn files_of_user(self, surroundings: &ClientDirectories<'_>) -> Vec<PathBuf> {
        let Some(home) = surroundings.home else { return Vec::new() };
        let named = |variable: &str, default: PathBuf| surroundings.named_by(variable).unwrap_or(default);
        let applications = || surroundings.applications().unwrap_or_default();
        match self {
            Self::ClaudeCode => vec![named("CLAUDE_CONFIG_DIR", home.to_owned()).join(".claude.json")],
            Self::ClaudeDesktop => vec![applications().join("Claude/claude_desktop_config.json")],
            Self::Cursor => vec![home.join(".cursor/mcp.json")],
            Self::VsCode => ["Code/User/mcp.json", "Code - Insiders/User/mcp.json", "VSCodium/User/mcp.json"]
                .map(|file| applications().join(file))
                .into(),
            Self::Codex => vec![named("CODEX_HOME", home.join(".codex")).join("config.toml")],
            Self::Windsurf => {
                vec![home.join(".codeium/windsurf/mcp_config.json"), home.join(".codeium/mcp_config.json")]
            }
            Self::Gemini => vec![home.join(".gemini/settings.json")],
        }
    }
}

impl ClientDirectories<'_> {
    /// The directory that a variable of the process names. `.env` must not choose which files are read.
    fn named_by(&self, variable: &str) -> Option<PathBuf> {
        self.variables.in_process(variable).map(PathBuf::from).filter(|named| named.is_absolute())
    }

    /// The directory in which desktop applications have directories.
    fn applications(&self) -> Option<PathBuf> {
        if cfg!(target_os = "macos") {
            return Some(self.home?.join("Library/Application Support"));
        }
        self.configs()
    }

    fn configs(&self) -> Option<PathBuf> {
        self.named_by("XDG_CONFIG_HOME").or_else(|| Some(self.home?.join(".config")))
    }

    fn data(&self) -> Option<PathBuf> {
        self.named_by("XDG_DATA_HOME").or_else(|| Some(self.home?.join(".local/share")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_workspace_come_first() {
        let variables = Variables::from_pairs([("CODEX_HOME", "/c"), ("XDG_CONFIG_HOME", "relative")]);
        let (workspace, home) = (Path::new("/w"), Some(Path::new("/h")));
        let surroundings = ClientDirectories { workspace, home, variables: &variables };
        let paths = |client: KnownClient| -> Vec<String> {
            let places = client.places(&surroundings).into_iter();
            places.map(|place| place.path.display().to_string()).collect()
        };
        assert_eq!(paths(KnownClient::ClaudeCode), ["/w/.mcp.json", "/h/.claude.json"]);
        assert_eq!(paths(KnownClient::Codex), ["/w/.codex/config.toml", "/c/config.toml"]);
        if cfg!(target_os = "linux") {
            assert_eq!(paths(KnownClient::ClaudeDesktop), ["/h/.config/Claude/claude_desktop_config.json"]);
        }
        for client in KnownClient::ALL {
            assert_eq!(KnownClient::named(client.name()), Some(client));
            for place in client.places(&surroundings) {
                let found = KnownClient::of_file(&place.path);
                assert!(found == Some(client) || place.path.starts_with("/c"), "{place:?}: {found:?}");
            }
        }
    }

    #[test]
    fn a_workspace_that_is_the_home_directory_has_each_file_once() {
        let variables = Variables::default();
        let here = Path::new("/h");
        let surroundings = ClientDirectories { workspace: here, home: Some(here), variables: &variables };
        assert_eq!(KnownClient::Cursor.places(&surroundings).len(), 1);
    }
}
