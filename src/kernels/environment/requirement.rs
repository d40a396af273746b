//! Parses a requirement of an installation, and refuses everything that is not exactly one. Pure, except for checking
//! whether a local path exists.

use std::path::{Path, PathBuf};

/// The longest requirement that is accepted.
const LIMIT_BYTES: usize = 2_000;
/// The beginnings of direct references (pip's and uv's version control schemes among them).
const SCHEMES: &[&str] = &["http", "https", "file"];
const VERSION_CONTROL: &[&str] = &["git", "hg", "svn", "bzr"];
const VERSION_CONTROL_TRANSPORTS: &[&str] = &["https", "http", "ssh", "file", "git"];
/// Version comparisons of PEP 440, longer ones before their prefixes.
const COMPARISONS: &[&str] = &["===", "==", "~=", "!=", "<=", ">=", "<", ">"];

/// Why a text is not accepted as a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RequirementError {
    #[error(
        "install a package without a name\nhint: give one requirement, as in `requests` or `numpy>=1.20`"
    )]
    Empty,
    #[error("install a package whose name is longer than {LIMIT_BYTES} bytes")]
    TooLong,
    #[error("install `{input}`: control characters and line breaks are not allowed")]
    ControlCharacter { input: String },
    #[error(
        "install `{input}`: installer options such as `{option}` are not allowed\nhint: give the requirement alone"
    )]
    Option { input: String, option: String },
    #[error(
        "install `{input}`: a command is no requirement\nhint: give the requirements alone, as in `pandas seaborn`"
    )]
    Command { input: String },
    #[error("install {count} packages: at most {most} at a time")]
    TooMany { count: usize, most: usize },
    #[error(
        "install `{input}`: not a requirement\nhint: as in `requests`, `numpy>=1.20`, `httpx[http2]`, \
         `git+https://host/repository`, `name @ https://host/file.whl` or `./directory`"
    )]
    Malformed { input: String },
    #[error("install `{input}`: `{}` does not exist", path.display())]
    NoSuchPath { input: String, path: PathBuf },
}

/// Checks `input` and returns it as the installer gets it: trimmed, a local path made absolute.
///
/// Accepted are a requirement of PEP 508 (name, extras, versions, `@` URL, marker), a URL (version
/// control included) and a path that begins with `/`, `./` or `../`, relative to `workspace`.
pub(super) fn parse(input: &str, workspace: &Path) -> Result<String, RequirementError> {
    let text = input.trim();
    if text.is_empty() {
        return Err(RequirementError::Empty);
    }
    if text.len() > LIMIT_BYTES {
        return Err(RequirementError::TooLong);
    }
    check_characters(text)?;
    if is_path(text) {
        return local_path(text, workspace);
    }
    match after_one(text) {
        Some("") => Ok(text.to_owned()),
        _ => Err(RequirementError::Malformed { input: text.to_owned() }),
    }
}

/// Refuses what is in no requirement: control characters and options.
pub(super) fn check_characters(text: &str) -> Result<(), RequirementError> {
    if text.chars().any(char::is_control) {
        return Err(RequirementError::ControlCharacter { input: text.escape_debug().to_string() });
    }
    match text.split_whitespace().find(|word| word.starts_with('-')) {
        Some(option) => Err(RequirementError::Option { input: text.to_owned(), option: option.to_owned() }),
        None => Ok(()),
    }
}

/// Splits `text`, which is trimmed, after its first requirement. A path ends at white space unless there is a longer one.
pub(super) fn first<'a>(text: &'a str, workspace: &Path) -> Result<(&'a str, &'a str), RequirementError> {
    let word = || text.split(char::is_whitespace).next().unwrap_or_default();
    if is_path(text) {
        let first = if local_path(text, workspace).is_ok() { text } else { word().trim_end_matches(',') };
        return Ok((first, &text[first.len()..]));
    }
    let rest = after_one(text);
    let first = rest.map_or("", |rest| &text[..text.len() - rest.len()]);
    let is_apart =
        |rest: &str| rest.is_empty() || rest.starts_with(',') || first.ends_with(char::is_whitespace);
    match rest {
        Some(rest) if is_apart(rest) => Ok((first.trim_end(), rest)),
        _ => Err(RequirementError::Malformed { input: word().to_owned() }),
    }
}

/// The name in a requirement; `None` if it is only a URL or a path.
pub(super) fn name_of(requirement: &str) -> Option<&str> {
    let text = requirement.trim();
    if is_path(text) || is_url(text) {
        return None;
    }
    Some(text[..text.len() - after_name(text)?.len()].trim_end())
}

/// The rest of `text` after its first requirement; `None` if it begins with none.
fn after_one(text: &str) -> Option<&str> {
    let rest = if is_url(text) { after_url(text) } else { after_requirement(text) }?;
    rest.strip_prefix(';').map_or(Some(rest), after_marker)
}

fn is_path(text: &str) -> bool {
    matches!(text, "." | "..") || ["/", "./", "../"].iter().any(|start| text.starts_with(start))
}

fn is_url(text: &str) -> bool {
    let is_scheme = |scheme: &str| scheme.chars().all(|each| each.is_ascii_alphanumeric() || each == '+');
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// A directory or an archive, with extras after it or without.
fn local_path(text: &str, workspace: &Path) -> Result<String, RequirementError> {
    let path = |text: &str| workspace.join(text.strip_prefix("./").unwrap_or(text));
    let (place, extras) = match text.rfind('[') {
        Some(start) if text.ends_with(']') && !path(text).exists() => text.split_at(start),
        _ => (text, ""),
    };
    let place = path(place);
    match place.canonicalize() {
        Ok(real) => Ok(format!("{}{extras}", real.display())),
        Err(_) => Err(RequirementError::NoSuchPath { input: text.to_owned(), path: place }),
    }
}

/// The rest of `text` after its requirement; `None` if it begins with none.
fn after_requirement(text: &str) -> Option<&str> {
    let rest = after_extras(after_name(text)?)?;
    match rest.strip_prefix('@') {
        Some(url) => after_url(url.trim_start()),
        None => after_versions(rest),
    }
}

fn after_name(text: &str) -> Option<&str> {
    let (name, rest) = split_where(text, |character| {
        character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
    });
    let is_name = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.ends_with(|last: char| last.is_ascii_alphanumeric());
    is_name.then(|| rest.trim_start())
}

fn after_extras(text: &str) -> Option<&str> {
    let Some(inside) = text.strip_prefix('[') else { return Some(text) };
    let (extras, rest) = inside.split_once(']')?;
    let mut extras = extras.split(',').map(str::trim);
    extras.all(|extra| extra.is_empty() || after_name(extra) == Some("")).then(|| rest.trim_start())
}

fn after_versions(text: &str) -> Option<&str> {
    if let Some(inside) = text.strip_prefix('(') {
        let rest = after_versions(inside.trim_start())?.strip_prefix(')')?;
        return Some(rest.trim_start());
    }
    let mut rest = text;
    while let Some(comparison) = COMPARISONS.iter().find(|comparison| rest.starts_with(**comparison)) {
        let (version, after) = split_where(rest[comparison.len()..].trim_start(), |character| {
            character.is_ascii_alphanumeric() || matches!(character, '.' | '*' | '+' | '!' | '_' | '-')
        });
        if version.is_empty() {
            return None;
        }
        rest = after.trim_start();
        match rest.strip_prefix(',').map(str::trim_start) {
            Some(next) if next.starts_with(['=', '~', '!', '<', '>']) => rest = next,
            _ => return Some(rest),
        }
    }
    Some(rest)
}

/// A URL ends with white space; `${NAME}`, which uv would fill, is not allowed in it.
fn after_url(text: &str) -> Option<&str> {
    let url = text.split(char::is_whitespace).next().unwrap_or_default().trim_end_matches(',');
    let rest = &text[url.len()..];
    let (scheme, address) = url.split_once("://")?;
    let is_known = match scheme.split_once('+') {
        Some((system, transport)) => {
            VERSION_CONTROL.contains(&system) && VERSION_CONTROL_TRANSPORTS.contains(&transport)
        }
        None => SCHEMES.contains(&scheme),
    };
    // A host or a revision that begins with `-` would be an option of git or hg.
    let hides_option = address.starts_with('-') || url.contains("@-");
    let is_url = !address.is_empty()
        && address.chars().all(|character| {
            character.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(character)
        });
    (is_known && is_url && !hides_option).then(|| rest.trim_start())
}

/// The rest after a marker of PEP 508: comparisons with `and` and `or` between them.
fn after_marker(text: &str) -> Option<&str> {
    let mut rest = after_comparison(text.trim_start())?;
    while let Some(next) = ["and", "or"].iter().find_map(|word| after_word(rest, word)) {
        rest = after_comparison(next)?;
    }
    Some(rest)
}

fn after_comparison(text: &str) -> Option<&str> {
    if let Some(inside) = text.strip_prefix('(') {
        return Some(after_marker(inside)?.strip_prefix(')')?.trim_start());
    }
    let rest = after_operand(text)?;
    let rest = match COMPARISONS.iter().find_map(|comparison| rest.strip_prefix(comparison)) {
        Some(rest) => rest.trim_start(),
        None => after_word(after_word(rest, "not").unwrap_or(rest), "in")?,
    };
    after_operand(rest)
}

/// The rest after a quoted text, or the name of a variable.
fn after_operand(text: &str) -> Option<&str> {
    if let Some(quote) = text.chars().next().filter(|first| matches!(first, '\'' | '"')) {
        return Some(text[1..].split_once(quote)?.1.trim_start());
    }
    let (name, rest) =
        split_where(text, |character| character.is_ascii_alphanumeric() || matches!(character, '_' | '.'));
    (!name.is_empty()).then(|| rest.trim_start())
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(word)?;
    rest.starts_with([' ', '(', '\'', '"']).then(|| rest.trim_start())
}

fn split_where(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|character| !belongs(character)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str) {
        assert_eq!(parse(input, Path::new("/")).as_deref(), Ok(input.trim()), "{input:?}");
    }

    fn check_refused(input: &str, expected: &str) {
        let error = parse(input, Path::new("/")).expect_err(input);
        let name = format!("{error:?}");
        assert!(name.starts_with(expected), "{input:?}: {name}");
    }

    #[test]
    fn requirements_are_accepted() {
        check("requests");
        check("  requests\n");
        check("zope.interface");
        check("Foo_Bar-2");
        check("numpy>=1.20.0");
        check("numpy >= 1.20, < 2");
        check("numpy>=1.20,<2,!=1.24.*");
        check("numpy (>=1.20, <2)");
        check("foo==1!2.0.post1+local-1");
        check("foo===any_thing");
        check("foo ~= 1.0");
        check("httpx[http2]");
        check("httpx [http2, socks] >= 0.27");
        check("pkg[]");
        check("tomli; python_version < '3.11'");
        check("tomli>=2 ; python_version < \"3.11\" and extra == 'x'");
    }

    #[test]
    fn urls_are_accepted() {
        check("git+https://github.com/psf/requests");
        check("git+https://github.com/psf/requests@v2.32.3#egg=requests&subdirectory=a");
        check("git+ssh://git@github.com/psf/requests.git");
        check("https://host/a/b-1.0-py3-none-any.whl#sha256=abc");
        check("name @ https://host/a.whl");
        check("name@https://host/a.whl");
        check("name[x] @ git+https://host/r ; python_version >= '3.10'");
        check("file:///tmp/a.whl");
    }

    #[test]
    fn options_are_refused() {
        check_refused("-r requirements.txt", "Option");
        check_refused("--index-url=https://evil", "Option");
        check_refused("requests --index-url https://evil", "Option");
        check_refused("requests -i https://evil", "Option");
        check_refused("requests\n--pre", "ControlCharacter");
        check_refused("requests\t--pre", "ControlCharacter");
        check_refused("requests\0", "ControlCharacter");
        check_refused("git+https://host/r@--upload-pack=x", "Malformed");
        check_refused("git+ssh://-oProxyCommand=x/r", "Malformed");
        check_refused("git+ssh://user@-oProxyCommand=x/r", "Malformed");
    }

    #[test]
    fn it_is_exactly_one() {
        check_refused("", "Empty");
        check_refused(" \n ", "Empty");
        check_refused("requests numpy", "Malformed");
        check_refused("requests, numpy", "Malformed");
        check_refused("git+https://host/r numpy", "Malformed");
        check_refused("tomli; python_version < '3.11' six", "Malformed");
    }

    #[test]
    fn a_requirement_has_a_name_unless_it_is_a_url_or_a_path() {
        let names =
            ["numpy >= 1.20", "httpx[http2]", "a-b @ https://host/a.whl", "x;os_name=='nt'"].map(name_of);
        assert_eq!(names, [Some("numpy"), Some("httpx"), Some("a-b"), Some("x")]);
        assert_eq!(["git+https://host/r", "./x", "."].map(name_of), [None, None, None]);
    }

    #[test]
    fn anything_else_is_refused() {
        check_refused(&"x".repeat(3000), "TooLong");
        check_refused("'requests'", "Malformed");
        check_refused("requests>=", "Malformed");
        check_refused("requests[", "Malformed");
        check_refused("requests[a b]", "Malformed");
        check_refused("requests=1", "Malformed");
        check_refused("_requests", "Malformed");
        check_refused("requests-", "Malformed");
        check_refused("~/package", "Malformed");
        check_refused("package/sub", "Malformed");
        check_refused("requests @", "Malformed");
        check_refused("requests @ ftp://host/a", "Malformed");
        check_refused("git+ext://sh", "Malformed");
        check_refused("https://host/${SECRET}", "Malformed");
        check_refused("requests && rm", "Malformed");
        check_refused("%pip install x", "Malformed");
        check_refused("naïve", "Malformed");
    }

    #[test]
    fn local_paths_are_relative_to_the_workspace() {
        let workspace = tempfile::tempdir().unwrap();
        let real = workspace.path().canonicalize().unwrap();
        std::fs::create_dir(workspace.path().join("my package")).unwrap();
        let expected = real.join("my package").display().to_string();
        let parse = |text: &str| parse(text, workspace.path());
        assert_eq!(parse("./my package").as_ref(), Ok(&expected));
        assert_eq!(parse("./my package[dev]"), Ok(format!("{expected}[dev]")));
        assert_eq!(parse(&expected).as_ref(), Ok(&expected));
        assert_eq!(parse("."), Ok(real.display().to_string()));
        assert!(matches!(parse("./other"), Err(RequirementError::NoSuchPath { .. })));
        assert!(matches!(parse("./my package --pre"), Err(RequirementError::Option { .. })));
    }
}
