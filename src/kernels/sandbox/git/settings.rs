//! git's settings as `git config --list -z --show-origin` prints them, and what each one names; pure.

use std::path::{Path, PathBuf};

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitSetting {
    /// The file that has it, if it is one.
    pub(super) origin: Option<PathBuf>,
    /// Its name. Section and variable are in lower case.
    pub(super) key: String,
    /// Its value.
    pub(super) value: String,
}

/// The meaning of a setting's value to git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingMeaning {
    /// A file with further settings.
    Include,
    /// A file or directory.
    Path,
    /// A command that git runs by itself.
    Command,
    /// Anything else. Extensions of git and programs that call it have settings that git does not know.
    Other,
    /// No path and no command.
    Nothing,
}

/// Sections whose settings name neither paths nor commands.
const PLAIN: [&str; 14] = [
    "advice",
    "author",
    "branch",
    "color",
    "column",
    "committer",
    "extensions",
    "fetch",
    "init",
    "pull",
    "push",
    "submodule",
    "url",
    "user",
];

/// Sections whose settings are commands, or may be.
#[rustfmt::skip]
const COMMANDS: [&str; 22] = [
    "browser", "credential", "diff", "difftool", "filter", "gpg", "guitool", "help", "hook", "imap",
    "instaweb", "interactive", "lfs", "man", "merge", "mergetool", "pager", "sendemail", "sequence",
    "trailer", "uploadpack", "web",
];

/// Commands in the section `core`.
const COMMANDS_OF_CORE: [&str; 7] =
    ["fsmonitor", "sshcommand", "askpass", "gitproxy", "alternaterefscommand", "pager", "editor"];

impl GitSetting {
    /// The settings in an output of git. Relative files are relative to `directory`.
    pub(super) fn parse(output: &[u8], directory: &Path) -> Vec<Self> {
        let mut settings = Vec::new();
        let text = String::from_utf8_lossy(output);
        let mut fields = text.split('\0');
        while let (Some(origin), Some(setting)) = (fields.next(), fields.next()) {
            let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
            let origin = origin.strip_prefix("file:").map(|file| directory.join(file));
            settings.push(Self { origin, key: key.to_owned(), value: value.to_owned() });
        }
        settings
    }

    pub(super) fn meaning(&self) -> SettingMeaning {
        let section = self.key.split('.').next().unwrap_or_default();
        let variable = self.key.rsplit('.').next().unwrap_or_default();
        match (section, variable) {
            ("include" | "includeif", "path") => SettingMeaning::Include,
            ("core", "hookspath" | "attributesfile") | ("init", "templatedir") => SettingMeaning::Path,
            ("core", variable) if COMMANDS_OF_CORE.contains(&variable) => SettingMeaning::Command,
            ("remote", "uploadpack" | "receivepack" | "vcs") | ("submodule", "update") => {
                SettingMeaning::Command
            }
            ("core" | "remote", _) => SettingMeaning::Nothing,
            (section, _) if COMMANDS.contains(&section) => SettingMeaning::Command,
            (section, _) if PLAIN.contains(&section) => SettingMeaning::Nothing,
            _ => SettingMeaning::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_git_is_read_with_empty_values_and_lines_in_values() {
        let output = b"file:.git/config\0core.hookspath\nhooks\0command line:\0alias.x\n!a\nb\0file:/etc/gitconfig\0core.bare\0";
        let settings = GitSetting::parse(output, Path::new("/ws"));
        let shown: Vec<_> = settings
            .iter()
            .map(|setting| (setting.origin.as_deref(), setting.key.as_str(), setting.value.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (Some(Path::new("/ws/.git/config")), "core.hookspath", "hooks"),
                (None, "alias.x", "!a\nb"),
                (Some(Path::new("/etc/gitconfig")), "core.bare", ""),
            ]
        );
    }

    #[test]
    fn keys_with_any_subsection_have_the_meaning_of_their_section() {
        for (key, expected) in [
            ("core.hookspath", SettingMeaning::Path),
            ("core.fsmonitor", SettingMeaning::Command),
            ("core.filemode", SettingMeaning::Nothing),
            ("includeif.onbranch:a.b.path", SettingMeaning::Include),
            ("filter.a.b.clean", SettingMeaning::Command),
            ("diff.external", SettingMeaning::Command),
            ("remote.origin.url", SettingMeaning::Nothing),
            ("remote.origin.uploadpack", SettingMeaning::Command),
            ("alias.x", SettingMeaning::Other),
            ("credential.https://x.y/.helper", SettingMeaning::Command),
        ] {
            let setting = GitSetting { origin: None, key: key.to_owned(), value: String::new() };
            assert_eq!(setting.meaning(), expected, "{key}");
        }
    }
}
