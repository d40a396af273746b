//! The places in which clients of MCP servers keep secrets: the files that `ipybox import` reads, and those of further clients, which it
//! does not. A sandbox hides all of them.

use std::path::{Path, PathBuf};

use super::{ClientDirectories, KnownClient};
use crate::ground::env::Variables;

/// Files of a workspace, of clients whose formats are not read. Missing ones are left out: an empty file in place of
/// `opencode.json` would keep its program from starting, and directories such as `.cursor` cannot be created anyway.
#[rustfmt::skip]
const OF_WORKSPACE: &[&str] = &[
    "opencode.json", "opencode.jsonc", "crush.json", ".crush.json", "mcp.json", ".claude/settings.json",
    ".claude/settings.local.json", ".vscode/settings.json", ".vs/mcp.json", ".continue/config.json",
    ".continue/config.yaml", ".continue/mcpServers", ".continue/.env", ".zed/settings.json", ".opencode/opencode.json",
    ".opencode/opencode.jsonc", ".roo/mcp.json", ".kilocode/mcp.json", ".kiro/settings/mcp.json", ".qwen/settings.json",
    ".qwen/.env", ".gemini/.env", ".codex/.env", ".amazonq/mcp.json", ".amazonq/default.json", ".junie/mcp/mcp.json", ".trae/mcp.json",
    ".windsurf/mcp_config.json", ".factory/mcp.json", ".copilot/mcp-config.json", ".grok/settings.json",
    ".aider.conf.yml",
];

/// Files and directories in the home: of clients whose formats are not read, and what others keep beside their servers.
#[rustfmt::skip]
const OF_HOME: &[&str] = &[
    // What is kept of `.claude.json`, logins, and the environment of Claude Code's settings.
    ".claude.json.backup", ".claude/.claude.json", ".claude/backups", ".claude/.credentials.json",
    ".claude/settings.json", ".claude/settings.local.json",
    ".cursor", ".codex", ".gemini", ".codeium", ".mcp-auth", ".continue", ".copilot", ".roo", ".cline", ".kilocode", ".kiro",
    ".qwen", ".junie", ".trae", ".factory", ".augment", ".crush", ".grok", ".vibe", ".lmstudio/mcp.json",
    ".cache/lm-studio/mcp.json", ".aider.conf.yml", ".aider", ".aws/amazonq", ".warp",
];

/// The same below the directories for configurations (`~/.config`) and for data (`~/.local/share`).
#[rustfmt::skip]
const OF_CONFIG: &[&str] = &[
    "zed", "opencode", "crush", "goose", "github-copilot", "mcp", "mcp-auth", "amp", "io.datasette.llm", "configstore",
    "JetBrains",
];
#[rustfmt::skip]
const OF_DATA: &[&str] = &["opencode", "crush", "amp", "goose", "zed", "cursor-agent", "JetBrains", "amazon-q", "kiro-cli"];

/// Directories of desktop applications, each with its settings, extensions and cookies.
#[rustfmt::skip]
const APPLICATIONS: &[&str] = &[
    "Claude", "Cursor", "Code", "Code - Insiders", "VSCodium", "Windsurf", "Trae", "Kiro", "Zed", "JetBrains", "goose",
    "5ire", "LibreChat", "Cherry Studio", "CherryStudio", "AnythingLLM", "Witsy", "com.github.copilot", "io.datasette.llm",
];

/// Variables that move the directory of a client, with what is secret in it: `.` is all of it.
const MOVED: &[(&str, &[&str])] = &[
    (
        "CLAUDE_CONFIG_DIR",
        &[
            ".claude.json",
            ".claude.json.backup",
            "backups",
            ".credentials.json",
            "settings.json",
            "settings.local.json",
        ],
    ),
    ("CODEX_HOME", &["."]),
    ("MCP_REMOTE_CONFIG_DIR", &["."]),
    ("OPENCODE_CONFIG", &["."]),
    ("OPENCODE_CONFIG_DIR", &["."]),
    ("CONTINUE_GLOBAL_DIR", &["."]),
    ("COPILOT_HOME", &["."]),
    ("GEMINI_CLI_HOME", &[".gemini"]),
    ("CRUSH_GLOBAL_CONFIG", &["."]),
];

/// All places in which clients keep the secrets of MCP servers, and their own. They need not exist.
pub(crate) fn hidden_places(surroundings: &ClientDirectories<'_>) -> Vec<PathBuf> {
    let ClientDirectories { workspace, home, variables } = *surroundings;
    let mut places: Vec<PathBuf> = OF_WORKSPACE.iter().map(|file| workspace.join(file)).collect();
    // What was there before a variable moved it is secret too.
    let unmoved = Variables::default();
    for variables in [variables, &unmoved] {
        let surroundings = ClientDirectories { workspace, home, variables };
        let read = KnownClient::ALL.into_iter().flat_map(|client| client.places(&surroundings));
        places.extend(read.map(|place| place.path));
        let bases = [(surroundings.configs(), OF_CONFIG), (surroundings.data(), OF_DATA)];
        let of_bases = bases.into_iter().chain([(surroundings.applications(), APPLICATIONS)]);
        for (base, names) in of_bases {
            places.extend(base.iter().flat_map(|base| names.iter().map(|name| base.join(name))));
        }
    }
    places.extend(home.iter().flat_map(|home| OF_HOME.iter().map(|name| home.join(name))));
    for (variable, names) in MOVED {
        let Some(directory) = surroundings.named_by(variable) else { continue };
        places.extend(names.iter().map(|name| directory.join(name).components().collect::<PathBuf>()));
    }
    let is_left_out = |place: &Path| place.starts_with(workspace) && place.symlink_metadata().is_err();
    // A variable that names the workspace, or what is above it, hides nothing: the session needs it.
    let is_above = |place: &Path| workspace.starts_with(place.canonicalize().as_deref().unwrap_or(place));
    places.retain(|place| !is_left_out(place) && !is_above(place));
    places.sort();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(variables: &Variables, workspace: &Path) -> Vec<String> {
        let surroundings = ClientDirectories { workspace, home: Some(Path::new("/h")), variables };
        hidden_places(&surroundings).iter().map(|place| place.display().to_string()).collect()
    }

    #[test]
    fn every_file_that_is_imported_is_hidden() {
        let variables = Variables::from_pairs([
            ("CODEX_HOME", "/c"),
            ("CLAUDE_CONFIG_DIR", "/claude"),
            ("XDG_CONFIG_HOME", "/x"),
        ]);
        let workspace = tempfile::tempdir().unwrap();
        let workspace = workspace.path();
        for name in [
            ".mcp.json",
            ".cursor/mcp.json",
            ".vscode/mcp.json",
            ".codex/config.toml",
            ".gemini/settings.json",
        ] {
            std::fs::create_dir_all(workspace.join(name).parent().unwrap()).unwrap();
            std::fs::write(workspace.join(name), "{}").unwrap();
        }
        let home = Some(Path::new("/h"));
        for variables in [&variables, &Variables::default()] {
            let surroundings = ClientDirectories { workspace, home, variables };
            let hidden = hidden_places(&surroundings);
            for client in KnownClient::ALL {
                for place in client.places(&surroundings) {
                    let is_hidden = hidden.iter().any(|hidden| place.path.starts_with(hidden));
                    assert!(is_hidden, "{place:?} of {client:?}");
                }
            }
        }
    }

    #[test]
    fn a_moved_directory_is_hidden_beside_the_usual_one() {
        let variables = Variables::from_pairs([
            ("CODEX_HOME", "/c"),
            ("MCP_REMOTE_CONFIG_DIR", "/m"),
            ("CLAUDE_CONFIG_DIR", "/claude"),
            ("COPILOT_HOME", "relative"),
        ]);
        let hidden = hidden(&variables, Path::new("/w"));
        for place in ["/c", "/h/.codex", "/m", "/h/.mcp-auth", "/claude/.claude.json", "/h/.claude.json"] {
            assert!(hidden.iter().any(|hidden| hidden == place), "{place}: {hidden:?}");
        }
        assert!(
            !hidden.iter().any(|hidden| hidden.contains("relative") || hidden == "/claude"),
            "{hidden:?}"
        );
    }

    #[test]
    fn the_workspace_itself_is_never_hidden() {
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().canonicalize().unwrap();
        for name in [".", "..", "/"] {
            let directory = workspace.join(name);
            let variables = Variables::from_pairs([("CODEX_HOME", directory.to_str().unwrap())]);
            let hidden = hidden(&variables, &workspace);
            let real = hidden.iter().filter_map(|hidden| Path::new(hidden).canonicalize().ok());
            let above: Vec<PathBuf> = real.filter(|real| workspace.starts_with(real)).collect();
            assert!(above.is_empty(), "{above:?}");
        }
    }

    #[test]
    fn a_missing_file_of_the_workspace_is_left_to_its_program() {
        let place = tempfile::tempdir().unwrap();
        let name = place.path().join("opencode.json").display().to_string();
        let is_hidden = || hidden(&Variables::default(), place.path()).contains(&name);
        assert!(!is_hidden());
        std::fs::write(&name, "{}").unwrap();
        assert!(is_hidden());
    }
}
