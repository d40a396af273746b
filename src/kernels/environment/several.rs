//! Splits what is to be installed into single requirements. Pure, except for checking whether a local path exists.

use std::path::Path;

use super::requirement::{self, RequirementError};

/// The most requirements of one installation.
const MOST: usize = 100;

/// Tools whose command lines models like to give instead of requirements.
const TOOLS: [&str; 6] = ["pip", "pip3", "uv", "conda", "mamba", "poetry"];

/// The requirements in `texts`: each has one or several, separated by white space or commas, or is a list in JSON.
///
/// # Errors
/// There is none, or one of them is not acceptable.
pub(crate) fn split(texts: &[String], workspace: &Path) -> Result<Vec<String>, RequirementError> {
    let mut requirements = Vec::new();
    for text in texts {
        match serde_json::from_str::<Vec<String>>(text) {
            Ok(list) => {
                for text in list {
                    take(&text, workspace, &mut requirements)?;
                }
            }
            Err(_) => take(text, workspace, &mut requirements)?,
        }
    }
    match requirements.len() {
        0 => Err(RequirementError::Empty),
        1..=MOST => Ok(requirements),
        count => Err(RequirementError::TooMany { count, most: MOST }),
    }
}

/// Takes the requirements of one text.
fn take(text: &str, workspace: &Path, requirements: &mut Vec<String>) -> Result<(), RequirementError> {
    // Lists have a line for each.
    let text = text.replace(['\n', '\r', '\t'], " ");
    let text = text.trim();
    requirement::check_characters(text)?;
    check_no_command(text)?;
    let mut rest = text;
    while !rest.is_empty() {
        let (first, next) = requirement::first(rest, workspace)?;
        requirement::parse(first, workspace)?;
        requirements.push(first.to_owned());
        rest = next.trim_start_matches([',', ' ']);
    }
    Ok(())
}

/// Refuses commands: `install` is the name of a package too.
fn check_no_command(text: &str) -> Result<(), RequirementError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_command =
        words.windows(2).any(|pair| TOOLS.contains(&pair[0]) && ["install", "add", "pip"].contains(&pair[1]));
    if is_command { Err(RequirementError::Command { input: text.to_owned() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_all(texts: &[&str]) -> Result<Vec<String>, RequirementError> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        split(&texts, Path::new("/"))
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(split_all(&[text]).unwrap(), expected, "{text}");
    }

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let error = split_all(&[text]).expect_err(text);
        assert!(format!("{error:?}").starts_with(expected), "{text}: {error:?}");
    }

    #[test]
    fn white_space_and_commas_separate_requirements() {
        check("pandas seaborn scikit-learn", &["pandas", "seaborn", "scikit-learn"]);
        check("pandas, seaborn,scikit-learn", &["pandas", "seaborn", "scikit-learn"]);
        check(" pandas\n\tseaborn\r\n", &["pandas", "seaborn"]);
        check(r#"["pandas", "numpy >= 1.20, < 2"]"#, &["pandas", "numpy >= 1.20, < 2"]);
        assert_eq!(split_all(&["pandas", "six seaborn"]).unwrap(), ["pandas", "six", "seaborn"]);
    }

    #[test]
    fn what_belongs_to_a_requirement_separates_none() {
        check("numpy >= 1.20", &["numpy >= 1.20"]);
        check("numpy >= 1.20 , <2 pandas", &["numpy >= 1.20 , <2", "pandas"]);
        check("numpy>=1.20, pandas", &["numpy>=1.20", "pandas"]);
        check("numpy (>=1.20, <2) six", &["numpy (>=1.20, <2)", "six"]);
        check("httpx [http2, socks] >= 0.27 six", &["httpx [http2, socks] >= 0.27", "six"]);
        check("git+https://host/r@v1#egg=r six", &["git+https://host/r@v1#egg=r", "six"]);
        check("six name @ https://host/a.whl, rich", &["six", "name @ https://host/a.whl", "rich"]);
    }

    #[test]
    fn a_marker_ends_with_its_last_comparison() {
        check("tomli>=2; python_version < '3.11' six", &["tomli>=2; python_version < '3.11'", "six"]);
        let marker = "a ; (os_name == 'nt' or extra=='x') and 'linux' not in sys_platform";
        check(&format!("{marker}, b"), &[marker, "b"]);
        check(
            "a @ https://host/a.whl ; os_name != \"nt\" b",
            &["a @ https://host/a.whl ; os_name != \"nt\"", "b"],
        );
        check_refused("a; python_version", "Malformed");
    }

    #[test]
    fn paths_are_taken_whole_if_they_exist() {
        let workspace = tempfile::tempdir().unwrap();
        for name in ["my package", "other"] {
            std::fs::create_dir(workspace.path().join(name)).unwrap();
        }
        let split = |text: &str| split(&[text.to_owned()], workspace.path());
        assert_eq!(split("./my package").unwrap(), ["./my package"]);
        assert_eq!(split("./other[dev] six ./other").unwrap(), ["./other[dev]", "six", "./other"]);
        assert!(
            matches!(split("six ./gone rich"), Err(RequirementError::NoSuchPath { input, .. }) if input == "./gone")
        );
    }

    #[test]
    fn what_is_no_requirement_is_named() {
        for text in ["", " \n ", "[]"] {
            check_refused(text, "Empty");
        }
        check_refused("pandas requests=1 six", r#"Malformed { input: "requests=1" }"#);
        check_refused("pandas && rm", r#"Malformed { input: "&&" }"#);
        check_refused("six 'rich'", r#"Malformed { input: "'rich'" }"#);
        check_refused("httpx[http2]six", "Malformed");
        check_refused("pandas --pre", "Option");
        check_refused("pandas\n--index-url https://evil", "Option");
        check_refused("pip install requests", "Command");
        check_refused("python -m pip install requests", "Option");
        check_refused("uv pip install requests", "Command");
        check_refused("six\0", "ControlCharacter");
        check_refused(&format!("six {}", "x".repeat(3_000)), "TooLong");
        check_refused(&"six ".repeat(101), "TooMany");
    }
}
