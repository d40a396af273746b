//! Globs: `*` and `?`, where every other character matches itself.
//!
//! The crates for file names do more than a policy should: braces, classes and escapes that a `[` in a command line
//! would trip over, and a `**` that means `*` unless it is a whole component.

use std::fmt;

use regex::Regex;
use serde::Deserializer;
use serde::de::{self, SeqAccess, Visitor};

use super::text;

/// Special characters of other glob dialects; refused, so that no rule silently matches nothing.
const RESERVED: [char; 5] = ['[', ']', '{', '}', '\\'];

/// Some globs, one of which has to match.
#[derive(Debug, Clone)]
pub(super) struct RuleGlobs(Vec<Regex>);

/// The kind of matched text, which decides the meaning of `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GlobKind {
    /// `*` is any characters.
    Name,
    /// `*` is any characters but `/`, `**` is any characters.
    Target,
    /// As `Target`; compared with paths in their plain form.
    Argument,
}

/// Why a text is no glob.
#[derive(Debug, thiserror::Error)]
enum GlobError {
    #[error(
        "`{character}` has no meaning in the glob `{glob}`; only `*`, `**` and `?` have, and a list gives alternatives"
    )]
    Reserved { glob: String, character: char },
    #[error(
        "the glob `{glob}` never matches: paths are compared without `.`, `..`, `//` and a `/` at the end"
    )]
    Never { glob: String },
    #[error("the empty glob matches nothing")]
    Empty,
    #[error("the glob `{glob}` is too long")]
    TooLong { glob: String, source: regex::Error },
}

impl RuleGlobs {
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.0.iter().any(|glob| glob.is_match(text))
    }
}

/// Globs on names: one, or a list of them.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RuleGlobs>, D::Error> {
    deserializer.deserialize_any(OneOrMore(GlobKind::Name)).map(Some)
}

/// Globs on command lines and URLs: one, or a list of them.
pub(super) fn targets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RuleGlobs>, D::Error> {
    deserializer.deserialize_any(OneOrMore(GlobKind::Target)).map(Some)
}

/// Globs on arguments: one, or a list of them.
pub(super) fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RuleGlobs>, D::Error> {
    deserializer.deserialize_any(OneOrMore(GlobKind::Argument)).map(Some)
}

struct OneOrMore(GlobKind);

impl<'de> Visitor<'de> for OneOrMore {
    type Value = RuleGlobs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a glob or a list of globs")
    }

    fn visit_str<E: de::Error>(self, glob: &str) -> Result<RuleGlobs, E> {
        compile(glob, self.0).map(|glob| RuleGlobs(vec![glob])).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RuleGlobs, A::Error> {
        let mut globs = Vec::new();
        while let Some(glob) = list.next_element::<String>()? {
            globs.push(compile(&glob, self.0).map_err(de::Error::custom)?);
        }
        if globs.is_empty() {
            return Err(de::Error::custom("an empty list matches nothing; leave it out to match everything"));
        }
        Ok(RuleGlobs(globs))
    }
}

fn compile(glob: &str, kind: GlobKind) -> Result<Regex, GlobError> {
    if glob.is_empty() {
        return Err(GlobError::Empty);
    }
    // Command lines and URLs have placeholders, `${NAME}`.
    let is_reserved = |c: &char| RESERVED.contains(c) && !(kind == GlobKind::Target && "{}".contains(*c));
    if let Some(character) = glob.chars().find(is_reserved) {
        return Err(GlobError::Reserved { glob: glob.to_owned(), character });
    }
    // A glob with a space may be meant for command lines, which are compared unchanged.
    let is_path = kind == GlobKind::Argument && !glob.contains(' ');
    if is_path && text::scheme(glob).is_none() && text::plain(glob).as_deref() != Some(glob) {
        return Err(GlobError::Never { glob: glob.to_owned() });
    }
    let (one, some) = if kind == GlobKind::Name { (".", ".*") } else { ("[^/]", "[^/]*") };
    let mut pattern = String::from("(?s)^");
    let mut rest = glob;
    while let Some(character) = rest.chars().next() {
        let (taken, meaning) = match character {
            // `a/**/b` matches `a/b` too.
            '*' if rest.starts_with("**/") && (rest.len() == glob.len() || pattern.ends_with('/')) => {
                ("**/", "(?:.*/)?".to_owned())
            }
            '*' if rest.starts_with("**") => ("**", ".*".to_owned()),
            '*' => ("*", some.to_owned()),
            '?' => ("?", one.to_owned()),
            _ => (&rest[..character.len_utf8()], regex::escape(&rest[..character.len_utf8()])),
        };
        pattern.push_str(&meaning);
        rest = &rest[taken.len()..];
    }
    pattern.push('$');
    Regex::new(&pattern).map_err(|source| GlobError::TooLong { glob: glob.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GlobKind, compile};

    #[track_caller]
    fn check(kind: GlobKind, glob: &str, text: &str, expected: bool) {
        assert_eq!(compile(glob, kind).unwrap().is_match(text), expected, "{glob} {text}");
    }

    #[track_caller]
    fn refused(glob: &str, expected: &str) {
        let error = compile(glob, GlobKind::Argument).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_star_in_a_name_is_anything() {
        check(GlobKind::Name, "get_*", "get_x", true);
        check(GlobKind::Name, "get_*", "get_", true);
        check(GlobKind::Name, "get_*", "forget_x", false);
        check(GlobKind::Name, "*", "files/read", true);
        check(GlobKind::Name, "?", "é", true);
        check(GlobKind::Name, "Get", "get", false);
        check(GlobKind::Name, "a", "a\n", false);
    }

    #[test]
    fn a_star_in_an_argument_ends_at_a_slash() {
        check(GlobKind::Argument, "/tmp/*", "/tmp/a", true);
        check(GlobKind::Argument, "/tmp/*", "/tmp/a/b", false);
        check(GlobKind::Argument, "/tmp?a", "/tmp/a", false);
        check(GlobKind::Argument, "*.txt", "a.txt", true);
        check(GlobKind::Argument, "*.txt", "a/b.txt", false);
        check(GlobKind::Argument, "*.txt", "aXtxt", false);
    }

    #[test]
    fn two_stars_are_anything() {
        check(GlobKind::Argument, "/tmp/**", "/tmp/a/b\nc", true);
        check(GlobKind::Argument, "/tmp/**", "/tmp", false);
        check(GlobKind::Argument, "/tmp/**", "/tmpa", false);
        check(GlobKind::Argument, "/tmp/**/x", "/tmp/x", true);
        check(GlobKind::Argument, "/tmp/**/x", "/tmp/a/b/x", true);
        check(GlobKind::Argument, "/tmp/**/x", "/tmp/ax", false);
        check(GlobKind::Argument, "**/x", "x", true);
        check(GlobKind::Argument, "git diff **", "git diff a/b", true);
        check(GlobKind::Target, "npx -y a **", "npx -y a /tmp/b", true);
        check(GlobKind::Target, "https://*.example.com/mcp", "https://evil.org/a.example.com/mcp", false);
    }

    #[test]
    fn what_other_globs_know_is_refused() {
        refused("{a,b}", "`{` has no meaning in the glob `{a,b}`");
        refused("a\\*", "`\\` has no meaning");
        check(GlobKind::Target, "x --key ${KEY}", "x --key ${KEY}", true);
        refused("", "empty");
    }

    #[test]
    fn what_can_never_match_is_refused() {
        refused("/tmp/", "never matches");
        refused("/tmp//a", "never matches");
        refused("./a", "never matches");
        refused("/tmp/../a", "never matches");
        check(GlobKind::Argument, "https://a.org/*", "https://a.org/b", true);
        check(GlobKind::Argument, "ls ./*", "ls ./a", true);
    }

    proptest! {
        #[test]
        fn a_text_without_wildcards_matches_itself_alone(text in "[a-z.+$^|() -]{1,9}", other in "[a-z.+$^|() -]{1,9}") {
            let glob = compile(&text, GlobKind::Name).unwrap();
            prop_assert!(glob.is_match(&text));
            prop_assert_eq!(glob.is_match(&other), text == other);
        }

        #[test]
        fn compiling_never_panics(glob in ".*") {
            drop(compile(&glob, GlobKind::Argument));
        }
    }
}
