//! Whether a server is ipybox itself, whose tools its own code must not call. Pure.

use crate::connections::mcp_client::{ServerParameters, ServerReach, chosen_arguments};

/// Why ipybox is not taken.
pub(crate) const OURSELVES: &str = "it is ipybox itself";

/// Names of the programs and packages that ipybox is shipped as.
const PACKAGES: &[&str] = &["ipybox", "ipybox-rs", "ipyboxrs/ipybox"];

/// Whether the server `name` is ipybox.
pub(super) fn is_ipybox(name: &str, parameters: &ServerParameters) -> bool {
    if name == env!("CARGO_PKG_NAME") {
        return true;
    }
    let ServerReach::Stdio(stdio) = &parameters.reach else { return false };
    let program = stdio.command.rsplit('/').next().unwrap_or_default();
    if is_package(program) {
        return true;
    }
    let is_container = matches!(program, "docker" | "podman" | "nerdctl");
    let chosen = if is_container { stdio.args.len() } else { chosen_arguments(&stdio.command, &stdio.args) };
    stdio.args.iter().take(chosen).any(|argument| {
        // A shell's line may begin with another command: `cd / && exec npx -y ipybox "$@"`.
        let first = argument.split_whitespace().next().unwrap_or_default();
        let last = first.rsplit('/').next().unwrap_or_default();
        let is_in_path = !is_container && is_path(first) && is_package(last);
        is_in_path || is_package(argument) || argument.split_whitespace().any(is_package)
    })
}

fn is_path(word: &str) -> bool {
    word.starts_with(['/', '.', '~'])
}

/// Whether a word names one of the packages, in any version.
fn is_package(word: &str) -> bool {
    let word = word.strip_suffix(".exe").unwrap_or(word);
    let word = word.split(['@', '=', ':', '[', '>', '<', '~']).next().unwrap_or_default();
    PACKAGES.iter().any(|package| word.eq_ignore_ascii_case(package))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(server: Value, expected: bool) {
        let parameters = ServerParameters::parse(server.as_object().unwrap()).unwrap();
        assert_eq!(is_ipybox("x", &parameters), expected, "{server}");
    }

    #[test]
    fn ipybox_is_known_however_it_is_started() {
        for args in [
            json!(["npx", "-y", "ipybox"]),
            json!(["npx", "-y", "ipybox@0.1.0", "--workspace", "."]),
            json!(["uvx", "ipybox-rs", "--sandbox"]),
            json!(["uvx", "--from", "ipybox-rs==0.1", "ipybox"]),
            json!(["docker", "run", "-i", "--rm", "ipyboxrs/ipybox:latest"]),
            json!(["sh", "-c", "ipybox --sandbox"]),
            json!(["sh", "-c", "cd / && exec npx -y ipybox \"$@\"", "ipybox", "--workspace", "/w"]),
            json!(["env", "A=b", "/usr/bin/ipybox"]),
            json!(["/opt/bin/ipybox", "--sandbox"]),
        ] {
            let args = args.as_array().unwrap();
            check(json!({"command": args[0], "args": args[1..]}), true);
        }
    }

    #[test]
    fn a_server_about_ipybox_is_another_one() {
        check(json!({"command": "npx", "args": ["-y", "@scope/filesystem", "/home/me/ipybox"]}), false);
        check(json!({"command": "mcp-server-git", "args": ["--repository", "ipybox"]}), false);
        check(json!({"command": "docker", "args": ["run", "-v", "/home/me/ipybox:/w", "git"]}), false);
        check(json!({"url": "https://ipybox.example/mcp"}), false);
        let parameters = json!({"command": "wrapper.sh"});
        assert!(is_ipybox("ipybox", &ServerParameters::parse(parameters.as_object().unwrap()).unwrap()));
    }
}
