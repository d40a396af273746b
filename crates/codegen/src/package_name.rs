//! The valid names of a package of generated tools.

use super::reserved::is_keyword;

/// Longest name that every file system takes as a directory's.
const MAX_CHARS: usize = 100;

/// A name that cannot be that of a package.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PackageNameError {
    /// Not lower-case ASCII letters, digits and underscores, beginning with a letter.
    #[error(
        "use {name:?} as a package name: it must be lower-case letters, digits and `_`, beginning with a letter, such as `{suggestion}`"
    )]
    NotAnIdentifier {
        /// The name as it was given.
        name: String,
        /// A name like it that is right.
        suggestion: String,
    },
    /// One of Python's keywords, so that no `import` statement could name the package.
    #[error("use {name:?} as a package name: it is a Python keyword; `{name}_` would do")]
    Keyword {
        /// The name as it was given.
        name: String,
    },
    /// Too long for a directory.
    #[error("use {name:?} as a package name: it is longer than {MAX_CHARS} characters")]
    TooLong {
        /// The name as it was given.
        name: String,
    },
}

/// Checks that `name` can be a package: `from mcptools.<name> import …` works, and it is one plain directory name.
///
/// Python's soft keywords (`match`, `case`, `type`) are fine.
///
/// # Errors
///
/// Says what is wrong with the name, and what would be right.
pub fn validate_package_name(name: &str) -> Result<(), PackageNameError> {
    let is_identifier = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !is_identifier {
        return Err(PackageNameError::NotAnIdentifier {
            name: name.to_owned(),
            suggestion: suggestion(name),
        });
    }
    if is_keyword(name) {
        return Err(PackageNameError::Keyword { name: name.to_owned() });
    }
    if name.len() > MAX_CHARS {
        return Err(PackageNameError::TooLong { name: name.to_owned() });
    }
    Ok(())
}

/// The valid name nearest to `name`; `None` if it has no letter or digit of a package name.
pub fn nearest_package_name(name: &str) -> Option<String> {
    let has_some = name.contains(|character: char| character.is_ascii_alphanumeric());
    let nearest: String = suggestion(name).chars().take(MAX_CHARS).collect();
    (has_some && validate_package_name(&nearest).is_ok()).then_some(nearest)
}

/// The valid name nearest to `name`.
fn suggestion(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let name = name.trim_matches('_');
    match name.chars().next() {
        None => "server".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("server_{name}"),
        Some(_) if is_keyword(name) => format!("{name}_"),
        Some(_) => name.chars().take(MAX_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_identifiers_are_names() {
        for name in ["github", "brave_search", "fetch2", "match"] {
            assert_eq!(validate_package_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_name_of_another_client_has_a_package_name_near_it() {
        for (name, expected) in [
            ("brave-search", Some("brave_search")),
            ("@scope/Server.One", Some("scope_server_one")),
            ("1password", Some("server_1password")),
            ("import", Some("import_")),
            ("日本語", None),
            ("--", None),
        ] {
            assert_eq!(nearest_package_name(name).as_deref(), expected, "{name}");
        }
        assert_eq!(nearest_package_name(&"1".repeat(200)).unwrap().len(), MAX_CHARS);
    }

    #[test]
    fn others_are_refused_with_a_name_that_would_do() {
        for (name, suggestion) in [
            ("GitHub", "github"),
            ("brave-search", "brave_search"),
            ("../../etc", "etc"),
            ("2fa", "server_2fa"),
            ("", "server"),
            ("_x", "x"),
            ("a.b", "a_b"),
            ("é", "server"),
        ] {
            let message = validate_package_name(name).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{name:?}")) && message.contains(&format!("`{suggestion}`")),
                "{message}"
            );
        }
        assert_eq!(
            validate_package_name("import"),
            Err(PackageNameError::Keyword { name: "import".to_owned() })
        );
        assert!(validate_package_name(&"a".repeat(200)).is_err());
    }
}
