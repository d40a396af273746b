//! The words of messages: they name flags of the program, and the library has options of nearly the same names.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// The words of messages, and the right ones in a library. Longer ones come first.
const WORDS: &[(&str, &str)] = &[
    ("`--sandbox --sandbox-backend bwrap`", "`sandbox=True, sandbox_backend=\"bwrap\"`"),
    ("`--sandbox-backend bwrap`", "`sandbox_backend=\"bwrap\"`"),
    ("`--sandbox-backend`", "`sandbox_backend`"),
    ("`--branch-files`", "`branch_files`"),
    ("`--changes ask`", "`changes=\"ask\"`"),
    ("`--sandbox-config`", "`sandbox_config`"),
    ("`--sandbox-workspace-config`", "`sandbox_workspace_config`"),
    ("`--sandbox-install-domain ", "`sandbox_install_domains` with `"),
    ("`--sandbox`", "`sandbox`"),
    ("`--allow-home-workspace`", "`allow_home_workspace`"),
    ("`--approval policy --approval-policy FILE`", "`approval_policy`"),
    ("`--approval-policy`", "`approval_policy`"),
    ("`--approve-shell-cmds` (`approve_shell_cmds` in Rust)", "`approve_shell_cmds`"),
    ("`--connect-timeout`", "`connect_timeout`"),
    ("`--kernel-gateway-ca`", "`kernel_gateway_ca`"),
    ("`--kernel-gateway-header-env X-Api-Key=API_KEY`", "`kernel_gateway_headers`"),
    ("`--kernel-gateway-header-env`", "`kernel_gateway_headers`"),
    ("`--kernel-gateway-token-env`", "`kernel_gateway_token`"),
    ("`--kernel-hub-token-env`", "`kernel_hub_token`"),
    ("`--kernel-hub-user`", "`kernel_hub_user`"),
    ("`--checkpoint`", "`checkpoint`"),
    ("`--kernel-idle-timeout`", "`kernel_idle_timeout`"),
    ("`--kernel-claim-timeout`", "`kernel_claim_timeout`"),
    ("`--kernel-max-file-size`", "`kernel_max_file_size`"),
    ("`--kernel-max-processes`", "`kernel_max_processes`"),
    ("`--kernel-memory-limit`", "`kernel_memory_limit`"),
    ("`--limit-cpu`", "`limit_cpu`"),
    ("`--limit-disk`", "`limit_disk`"),
    ("`--limit-memory`", "`limit_memory`"),
    ("`--limit-processes`", "`limit_processes`"),
    ("`--kernel-name`", "`kernel_name`"),
    ("`--kernel-namespace`", "`kernel_namespace`"),
    ("`--kernel-pod-token-env`", "`kernel_pod_token`"),
    ("`--kernel-pool`", "`kernel_pool`"),
    ("`--python`", "`python`"),
    ("`--undo-memory 512M`", "`undo_memory=512 * 1024**2`"),
    ("`--undo-memory`", "`undo_memory`"),
    ("`--state-dir`", "`state_dir`"),
    ("`--workspace`", "`working_dir`"),
];

/// A message with the names of options in place of flags.
pub(super) fn with_options(text: &str) -> String {
    static FLAGS: LazyLock<Option<AhoCorasick>> =
        LazyLock::new(|| AhoCorasick::new(WORDS.iter().map(|(flag, _)| flag)).ok());
    let options: Vec<&str> = WORDS.iter().map(|(_, option)| *option).collect();
    FLAGS.as_ref().map_or_else(|| text.to_owned(), |flags| flags.replace_all(text, &options))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{WORDS, with_options};

    /// In messages that an application never gets, or of Jupyter's servers.
    const NO_OPTIONS: [&str; 6] = [
        "`--ignore-client-sandbox`",
        "`--mcp-config`",
        "`--from`",
        "`--extensions`",
        "`--ServerApp.",
        "`--ZMQChannelsWebsocketConnection.",
    ];

    /// The files of the rooms whose messages applications get.
    fn sources() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let rooms = ["approval", "config", "connections", "ground", "kernels", "session", "tools"];
        let mut directories: Vec<PathBuf> = rooms.iter().map(|room| root.join(room)).collect();
        let mut files = Vec::new();
        while let Some(directory) = directories.pop() {
            for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                match path.extension() {
                    None => directories.push(path),
                    Some(extension) if extension == "rs" => files.push(path),
                    Some(_) => {}
                }
            }
        }
        files
    }

    #[test]
    fn every_flag_in_a_message_has_its_option_here() {
        for file in sources() {
            let text = std::fs::read_to_string(&file).unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for flag in lines.flat_map(|line| line.match_indices("`--").map(|(at, _)| &line[at..])) {
                let is_known = WORDS.iter().map(|(flag, _)| *flag).chain(NO_OPTIONS);
                let is_known = is_known.into_iter().any(|known| flag.starts_with(known));
                assert!(is_known, "{}: {flag}", file.display());
            }
        }
    }

    #[test]
    fn flags_become_options_and_nothing_else_changes() {
        assert_eq!(
            with_options("hint: name a directory that you can write to with `--state-dir`, not --state-dir"),
            "hint: name a directory that you can write to with `state_dir`, not --state-dir"
        );
        assert_eq!(
            with_options("`--sandbox --sandbox-backend bwrap`"),
            "`sandbox=True, sandbox_backend=\"bwrap\"`"
        );
        assert_eq!(
            with_options("allow it by `--sandbox-install-domain example.com:443`"),
            "allow it by `sandbox_install_domains` with `example.com:443`"
        );
    }
}
