//! Errors, names, commands and times as text for people and models.

use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::ground::text::plain;

/// The beginning of a line with a hint.
const HINT: &str = "\nhint: ";

/// An error with all its causes, as one text; hints come last, each on a line of its own. Terminal control
/// characters are removed from quoted foreign text.
pub fn describe(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut hints = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let words = error.to_string();
        let (words, hint) = words.split_at(words.find(HINT).unwrap_or(words.len()));
        // Some libraries repeat their cause in their own message.
        if !text.contains(words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(words);
        }
        hints.push_str(hint);
        next = error.source();
    }
    plain(&(text + &hints))
}

/// The number of names that a text lists.
const LISTED_NAMES: usize = 8;

/// Names in backticks; if there are many, how many more.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    first_few(names.into_iter().map(|name| format!("`{name}`")), LISTED_NAMES)
}

/// The first `most` texts; if there are others, how many.
pub(crate) fn first_few(texts: impl IntoIterator<Item = impl Display>, most: usize) -> String {
    let mut texts = texts.into_iter();
    let shown = texts.by_ref().take(most).map(|text| text.to_string()).collect::<Vec<_>>().join(", ");
    match texts.count() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// All names, in backticks.
pub(crate) fn backticked(names: impl IntoIterator<Item = impl Display>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// `word` as it would be typed in a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_./:=@%+,~${}".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A time in UTC, to the millisecond.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The URL as it is shown: `…@` in place of a user name and password. It may have placeholders.
pub(crate) fn without_user(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#', '\\']).map_or(url.len(), |at| start + at);
    match url[start..end].rfind('@') {
        Some(at) => format!("{}…{}", &url[..start], &url[start + at..]),
        None => url.to_owned(),
    }
}

/// A path that JSON can have: what is no UTF-8 in it is replaced.
pub(crate) fn readable(path: &Path) -> PathBuf {
    path.to_string_lossy().into_owned().into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_is_written_in_utc_to_the_millisecond() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(951_782_400_012_999);
        assert_eq!(rfc3339(time), "2000-02-29T00:00:00.012Z");
    }

    #[test]
    fn urls_are_shown_without_user_names_and_passwords() {
        for (url, shown) in [
            ("http://me:pass@a.example:1/mcp?k=1#f", "http://…@a.example:1/mcp?k=1#f"),
            ("https://a@b:c@d.example/x@y", "https://…@d.example/x@y"),
            ("https://a.example/@me", "https://a.example/@me"),
            ("https://me:${PASSWORD}@${HOST}/mcp", "https://…@${HOST}/mcp"),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("use `x`\nhint: use `y`")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn what_errors_quote_steers_no_terminal() {
        let text = describe(&Outer(std::io::Error::other("\u{1b}[31mred\u{1b}[0m")));
        assert_eq!(text, "use `x`: red\nhint: use `y`");
    }

    #[test]
    fn hints_come_after_the_causes() {
        let text = describe(&Outer(std::io::Error::other("it is gone")));
        assert_eq!(text, "use `x`: it is gone\nhint: use `y`");
    }

    #[test]
    fn every_path_is_readable() {
        use std::os::unix::ffi::OsStrExt as _;

        let path = Path::new(std::ffi::OsStr::from_bytes(b"/w\xff/1.png"));
        assert!(serde_json::to_value(path).is_err());
        assert_eq!(serde_json::to_value(readable(path)).unwrap(), "/w\u{fffd}/1.png");
        assert_eq!(readable(Path::new("/w\u{e9}")), Path::new("/w\u{e9}"));
    }
}
