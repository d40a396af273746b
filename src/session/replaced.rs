//! The packages that an installation has replaced, by the installer's output. Pure.

/// What an agent has to know if `output` says that packages were replaced: the kernel keeps what it has imported.
///
/// uv lists ` - name==version`, or ` ~ …` for the same version, pip says `Successfully uninstalled name-version`.
pub(super) fn note_on_replaced(output: &str) -> Option<String> {
    let names: Vec<&str> = output.lines().filter_map(replaced).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!(
            "Replaced: {names}. If the kernel has imported the earlier version, it keeps that until `reset`."
        )
    })
}

fn replaced(line: &str) -> Option<&str> {
    let of_uv = line.strip_prefix(" - ").or_else(|| line.strip_prefix(" ~ "));
    let name_of_uv = || Some(of_uv?.split_once("==")?.0);
    let of_pip = || Some(line.trim().strip_prefix("Successfully uninstalled ")?.rsplit_once('-')?.0);
    name_of_uv().or_else(of_pip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, names: Option<&str>) {
        let expected = names.map(|names| format!("Replaced: {names}. "));
        let note = note_on_replaced(output);
        assert_eq!(note.is_some(), expected.is_some(), "{output}");
        assert!(note.unwrap_or_default().starts_with(&expected.unwrap_or_default()), "{output}");
    }

    #[test]
    fn packages_that_were_replaced_are_named() {
        check(
            "Installed 2 packages in 5ms\n - six==1.16.0\n + six==1.17.0\n ~ a-b==1.0 (from file:///a)",
            Some("six, a-b"),
        );
        let pip = "  Attempting uninstall: typing-extensions\n    Successfully uninstalled typing-extensions-4.1\n\
                   Successfully installed typing-extensions-4.2";
        check(pip, Some("typing-extensions"));
    }

    #[test]
    fn new_packages_are_not() {
        check("Installed 1 package in 5ms\n + six==1.17.0", None);
        check("Successfully installed six-1.17.0", None);
        check("Audited 1 package in 1ms", None);
    }
}
