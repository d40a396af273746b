//! Which variables `<workspace>/.env` may set without the user's permission: secrets, recognised by their
//! names.
//!
//! A `.env` may have come with a cloned workspace. Programs that the user allows (a shell, git, npm, pip,
//! less, ssh) act upon hundreds of variables, so that a list of bad names is never complete. Variables named
//! like secrets are mere data to all of them; other variables take effect from the real environment, or if it
//! names them in [`IPYBOX_DOTENV`].
//!
//! [`IPYBOX_DOTENV`]: super::IPYBOX_DOTENV

use super::KERNEL_ENV_PREFIX;

/// The last words of a secret's name, after its last `_`. `LESSKEY` and `SSH_ASKPASS`, by which programs run
/// others, have no `_` there.
const LAST_WORDS: &[&str] =
    &["KEY", "APIKEY", "PASS", "PASSWD", "PASSPHRASE", "PAT", "CREDENTIAL", "USERNAME", "ID"];
/// The same, also behind other letters: `PGPASSWORD`.
const ENDINGS: &[&str] = &["TOKEN", "SECRET", "PASSWORD"];

/// Prefixes of variables that configure programs, whatever their ends: `GIT_CONFIG_KEY_0` is a part of an
/// option of git.
const SETTINGS: &[&str] =
    &["GIT_", "LD_", "DYLD_", "PYTHON", "JUPYTER_", "IPYTHON", "IPYBOX_", "NPM_CONFIG_"];

/// The value of [`IPYBOX_DOTENV`](super::IPYBOX_DOTENV): names, with commas or white space between them.
#[derive(Default)]
pub(super) struct AllowedNames<'a>(pub(super) &'a str);

impl AllowedNames<'_> {
    /// Whether `.env` may set the variable.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.is_named(name) || is_for_a_secret(name.strip_prefix(KERNEL_ENV_PREFIX).unwrap_or(name))
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        !name.is_empty() && self.0.split([',', ' ', '\t', '\n']).any(|allowed| allowed == name)
    }
}

/// Whether a variable of this name holds a secret, as in `BRAVE_API_KEY` and `SECRET_1`.
pub(crate) fn is_for_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let unnumbered = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let unnumbered = if unnumbered.len() < name.len() { unnumbered.trim_end_matches('_') } else { &name };
    let last_word = unnumbered.rsplit('_').next().unwrap_or_default();
    let is_setting = SETTINGS.iter().any(|beginning| name.starts_with(beginning));
    !is_setting
        && (LAST_WORDS.contains(&last_word) || ENDINGS.iter().any(|ending| last_word.ends_with(ending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_by_its_name() {
        for name in [
            "API_KEY",
            "API_KEY_1",
            "SECRET_2",
            "SECRET",
            "TOKEN",
            "GITHUB_TOKEN",
            "GITHUB_PERSONAL_ACCESS_TOKEN",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD",
            "DB_PASSWORD",
            "api_key",
            "SMTP_PASS",
        ] {
            assert!(is_for_a_secret(name), "{name}");
        }
    }

    #[test]
    fn what_programs_act_upon_is_none() {
        for name in [
            "SHELL",
            "PATH",
            "ENV",
            "BASH_ENV",
            "HOME",
            "EDITOR",
            "PAGER",
            "MANPAGER",
            "LESSOPEN",
            "LESSKEY",
            "GIT_CONFIG_COUNT",
            "GIT_CONFIG_KEY_0",
            "GIT_CONFIG_VALUE_0",
            "GIT_SSH_COMMAND",
            "GIT_ASKPASS",
            "SSH_ASKPASS",
            "SUDO_ASKPASS",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "NODE_OPTIONS",
            "npm_config_script_shell",
            "NPM_CONFIG_KEY",
            "PIP_INDEX_URL",
            "UV_INDEX_URL",
            "PERL5OPT",
            "RUBYOPT",
            "JAVA_TOOL_OPTIONS",
            "MAKEFLAGS",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "GOFLAGS",
            "HTTPS_PROXY",
            "OPENAI_BASE_URL",
            "SSL_CERT_FILE",
            "AWS_CONFIG_FILE",
            "DOCKER_HOST",
            "KUBECONFIG",
            "PWD",
            "OLDPWD",
            "IPYBOX_TOOL_SERVER_TOKEN",
            "JUPYTER_CONFIG_DIR",
            "GREETING",
            "",
            "_",
            "1",
            "__1",
        ] {
            assert!(!is_for_a_secret(name), "{name}");
        }
    }

    #[test]
    fn the_users_word_counts_for_the_very_name() {
        let allowed = AllowedNames("DATABASE_URL, KERNEL_ENV_PAGER");
        assert!(allowed.holds("DATABASE_URL") && allowed.holds("KERNEL_ENV_PAGER"));
        assert!(!allowed.holds("KERNEL_ENV_DATABASE_URL") && !allowed.holds("PAGER") && !allowed.holds(""));
        assert!(allowed.holds("KERNEL_ENV_API_KEY"));
    }
}
