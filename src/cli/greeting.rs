//! What a person sees who starts the server by hand.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

/// Says what this is and how an MCP client starts it, if a person is there to read it.
pub(crate) fn show(workspace: &Path) {
    if !std::io::stdin().is_terminal() {
        return;
    }
    // Nothing can be done for a person whose stderr is closed.
    drop(write!(std::io::stderr(), "{}", text(workspace)));
}

fn text(workspace: &Path) -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "ipybox".to_owned(), |path| path.display().to_string());
    let entry = serde_json::json!({
        "mcpServers": {
            "ipybox": {"command": program, "args": ["--workspace", workspace.display().to_string()]},
        },
    });
    format!(
        "ipybox {version}: an MCP server that runs Python over other MCP servers' tools.\n\
         It speaks MCP on stdin and stdout and is meant to be started by an MCP client, with this entry:\n\n\
         {entry:#}\n\n\
         Waiting for a client; end with Ctrl-C.\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_to_paste_names_the_workspace() {
        let text = text(Path::new("/some/work \"space\""));
        let json = &text[text.find('{').unwrap()..=text.rfind('}').unwrap()];
        let entry: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(entry["mcpServers"]["ipybox"]["args"][1], "/some/work \"space\"");
    }
}
