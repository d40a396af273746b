//! Plain forms of paths, URLs and command lines: those with one literal meaning, which globs can be compared
//! with.
//!
//! `/tmp/a/../../etc` begins with `/tmp/` but is outside of it; `git log; reboot` begins with `git log`. No
//! glob can detect that, so such texts have no plain form, and whether a glob matches them is in doubt.

use std::borrow::Cow;

/// Besides letters, digits and spaces, the characters that a shell always takes literally.
const LITERAL_IN_SHELL: &str = "_-./:=@%+,";

/// The plain form of a path or URL; `None` if it may refer to another place than its text suggests.
///
/// `.` components, doubled and trailing slashes are removed. Links are not resolved: their targets can change
/// before the tool opens them.
pub(super) fn plain(text: &str) -> Option<Cow<'_, str>> {
    match scheme(text) {
        Some((scheme, rest)) => plain_url(text, scheme, rest),
        None => plain_path(text),
    }
}

/// Whether a shell reads `command` as words and nothing else: no operators, quotes or expansions.
pub(super) fn is_plain_command(command: &str) -> bool {
    let is_literal = |c: char| c.is_alphanumeric() || c == ' ' || LITERAL_IN_SHELL.contains(c);
    command.chars().all(is_literal) && !command.contains("..")
}

/// Whether the paths in a command line that no shell reads are plain.
pub(super) fn is_plain_command_line(command_line: &str) -> bool {
    !command_line.contains("..")
}

/// The scheme of a URL, and what follows `://`.
pub(super) fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some((scheme, rest))
}

fn plain_path(path: &str) -> Option<Cow<'_, str>> {
    if path.contains('\0') || path.split(['/', '\\']).any(|component| component == "..") {
        return None;
    }
    let is_plain = !path.split('/').skip(1).any(str::is_empty) && !path.split('/').any(|part| part == ".");
    if is_plain {
        return Some(Cow::Borrowed(path));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    Some(Cow::Owned(format!("{root}{}", parts.join("/"))))
}

/// Parsers of URLs disagree about odd ones: `https://a.org?.b.org/`, `https://a.org\.b.org/` and
/// `https://b.org@a.org/` are all on `a.org`. Only URLs that all parsers read alike are plain.
fn plain_url<'a>(url: &'a str, scheme: &str, rest: &str) -> Option<Cow<'a, str>> {
    // Some servers decode twice, and some end a component at `;`.
    let decoded = rest
        .to_ascii_lowercase()
        .replace("%25", "%")
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "\\");
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    if decoded.contains(is_odd) || decoded.split(['/', '?', '#', ';']).any(|part| matches!(part, "." | ".."))
    {
        return None;
    }
    // A placeholder may have a default, which is anything.
    if decoded.contains("${") && decoded.contains("..") {
        return None;
    }
    let host_end = rest.find('/').unwrap_or(rest.len());
    let host = &rest[..host_end];
    let is_missing = host.is_empty() && !scheme.eq_ignore_ascii_case("file");
    // `℀` in a host is `a/c` to some.
    if is_missing || !host.is_ascii() || host.contains(['@', '?', '#', '%', '$']) {
        return None;
    }
    let path = &rest[host_end..];
    if url[..url.len() - path.len()].contains(|c: char| c.is_ascii_uppercase()) {
        let place = format!("{scheme}://{host}").to_ascii_lowercase();
        return Some(Cow::Owned(place + path));
    }
    Some(Cow::Borrowed(url))
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(text: &str, expected: impl Into<Option<&'static str>>) {
        assert_eq!(super::plain(text).as_deref(), expected.into(), "{text:?}");
    }

    #[test]
    fn paths_lose_what_changes_nothing() {
        check("/tmp/a", "/tmp/a");
        check("//tmp/./a//b/", "/tmp/a/b");
        check("./a", "a");
        check("a/..b/c..", "a/..b/c..");
        check("/", "/");
        check("", "");
        check("some words", "some words");
    }

    #[test]
    fn a_path_that_climbs_is_in_doubt() {
        check("/tmp/../etc", None);
        check("..", None);
        check("../a", None);
        check("a/..", None);
        check("/tmp/..\\..\\etc", None);
        check("/tmp/a\0b", None);
        check("a b://../c", None);
    }

    #[test]
    fn a_url_keeps_its_path_and_has_a_small_host() {
        check("https://docs.rs/a//b?q=1#c", "https://docs.rs/a//b?q=1#c");
        check("HTTPS://Docs.RS/Path", "https://docs.rs/Path");
        check("https://docs.rs", "https://docs.rs");
        check("file:///etc/passwd", "file:///etc/passwd");
        check("https://localhost:8080/mcp", "https://localhost:8080/mcp");
    }

    #[test]
    fn a_url_that_may_be_read_in_two_ways_is_in_doubt() {
        check("https://a.org?.b.org/", None);
        check("https://a.org#.b.org/", None);
        check("https://a.org\\.b.org/", None);
        check("https://b.org@a.org/", None);
        check("https://a.org%2f.b.org/", None);
        check("https:///a.org/", None);
        check("https://b.org/safe/../x", None);
        check("https://b.org/safe/%2E%2e/x", None);
        check("https://b.org/safe/..%2fx", None);
        check("https://b.org/safe/..;/x", None);
        check("https://b.org/safe/%252e%252e/x", None);
        check("https://a.or\u{2100}.b.org/", None);
        check("https://B\u{dc}CHER.example/", None);
        check("https://b.org/a\n", None);
        check("https://${HOST}.b.org/", None);
        check("https://b.org/${PLACE:-..}/a", None);
        check("https://b.org/a?key=${KEY}", "https://b.org/a?key=${KEY}");
    }

    #[test]
    fn a_plain_command_is_words_only() {
        for command in ["git log --oneline -n 3", "cat src/main.rs", "make PREFIX=/usr"] {
            assert!(super::is_plain_command(command), "{command}");
        }
        let others = [
            "git log; reboot",
            "a | b",
            "a && b",
            "$(a)",
            "`a`",
            "a > b",
            "a\nb",
            "a 'b'",
            "a\\b",
            "ls ../x",
        ];
        for command in others.into_iter().chain(["ls ~", "ls *", "{a,b}", "a \u{a0}b", "a #b"]) {
            assert!(!super::is_plain_command(command), "{command}");
        }
    }
}
