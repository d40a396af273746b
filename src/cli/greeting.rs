//! The greeting for a person who starts the server by hand.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use ipybox::Emphasis;

/// Serves, and greets after the first step of that: until then Ctrl-C would not end it in order, as the greeting promises.
pub(crate) async fn greeting<T>(workspace: &Path, mut serving: impl Future<Output = T> + Unpin) -> T {
    tokio::select! {
        biased;
        served = &mut serving => return served,
        () = std::future::ready(()) => show(workspace),
    }
    serving.await
}

/// Prints what this is and how an MCP client starts it, if stdin is a terminal.
fn show(workspace: &Path) {
    if !std::io::stdin().is_terminal() {
        return;
    }
    // Nothing can be done for a person whose stderr is closed.
    write!(super::stderr(), "{}", text(workspace)).ok();
}

fn text(workspace: &Path) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "ipybox".into());
    let (command, mut args) = lasting(&program);
    // Not relative: the command may change the directory.
    let workspace = std::path::absolute(workspace).unwrap_or_else(|_| workspace.to_owned());
    args.extend(["--workspace".to_owned(), workspace.display().to_string()]);
    args.extend(["--keep-session", "30m", "--long-cells"].map(str::to_owned));
    let entry = serde_json::json!({"mcpServers": {"ipybox": {"command": command, "args": args}}});
    format!(
        "{name}: an MCP server that runs Python over other MCP servers' tools.\n\
         It speaks MCP on stdin and stdout and is meant to be started by an MCP client, with this entry:\n\n\
         {entry:#}\n\n\
         {next}: paste it into your client's configuration, and restart the client. `ipybox doctor` checks this machine, and\n\
         `ipybox import` registers the MCP servers of your other clients.\n\n\
         Waiting for a client; end with Ctrl-C.\n",
        name = Emphasis::Title.of(concat!("ipybox ", env!("CARGO_PKG_VERSION"))),
        next = Emphasis::Title.of("Next"),
    )
}

/// Starts the package from a directory without packages: npx runs what is in `node_modules` of its own directory first, and code
/// may have written there.
const NPX: [&str; 3] = ["-c", r#"cd / && exec npx -y ipybox "$@""#, "ipybox"];

/// A command that keeps working: npx and uvx run `program` from caches, where it does not stay.
fn lasting(program: &Path) -> (String, Vec<String>) {
    let is_below = |is_it: fn(&str) -> bool| program.iter().filter_map(|name| name.to_str()).any(is_it);
    if is_below(|name| name == "_npx") {
        ("sh".to_owned(), NPX.map(str::to_owned).to_vec())
    } else if is_below(|name| name.starts_with("archive-v")) {
        ("uvx".to_owned(), vec!["ipybox-rs".to_owned()])
    } else {
        (program.display().to_string(), Vec::new())
    }
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

    #[test]
    fn the_entry_names_no_cache() {
        let check = |program: &str, expected: &[&str]| {
            let (command, args) = lasting(Path::new(program));
            assert_eq!([&[command][..], &args].concat(), expected);
        };
        check("/usr/local/bin/ipybox", &["/usr/local/bin/ipybox"]);
        let npx = "/home/me/.npm/_npx/3f/node_modules/@ipybox-rs/linux-x64/bin/ipybox";
        check(npx, &["sh", "-c", "cd / && exec npx -y ipybox \"$@\"", "ipybox"]);
        check("/home/me/.cache/uv/archive-v0/Yd8/bin/ipybox", &["uvx", "ipybox-rs"]);
    }
}
