//! The words of messages: they name flags of the program, and the library has options of nearly the same names.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// What stands in messages, and what is right in a library. Longer ones come first.
const WORDS: &[(&str, &str)] = &[
    ("`--sandbox --sandbox-backend bwrap`", "`sandbox=True, sandbox_backend=\"bwrap\"`"),
    ("`--sandbox-backend bwrap`", "`sandbox_backend=\"bwrap\"`"),
    ("`--sandbox-backend`", "`sandbox_backend`"),
    ("`--sandbox`", "`sandbox`"),
    ("`--allow-home-workspace`", "`allow_home_workspace`"),
    ("`--approve-shell-cmds` (`approve_shell_cmds` in Rust)", "`approve_shell_cmds`"),
    ("`--connect-timeout`", "`connect_timeout`"),
    ("`--kernel-gateway-ca`", "`kernel_gateway_ca`"),
    ("`--kernel-gateway-token-env`", "`kernel_gateway_token`"),
    ("`--kernel-max-file-size`", "`kernel_max_file_size`"),
    ("`--kernel-max-processes`", "`kernel_max_processes`"),
    ("`--kernel-memory-limit`", "`kernel_memory_limit`"),
    ("`--kernel-name`", "`kernel_name`"),
    ("`--python`", "`python`"),
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
    use super::with_options;

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
    }
}
