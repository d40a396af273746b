//! Emphasis in texts for people: escape sequences of terminals, which whoever prints the text takes out where they do not
//! belong. Pure.

use std::fmt::Formatter;

/// Why a part of a text stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a part is emphasised in no other way")]
pub enum Emphasis {
    /// It is a title, or the name that a line is about.
    Title,
    /// It is as it should be.
    Good,
    /// It should be looked at.
    Warning,
    /// It is not as it should be.
    Bad,
    /// It matters less than what is beside it.
    Quiet,
}

/// The end of an emphasis.
const END: &str = "\u{1b}[0m";

impl Emphasis {
    const ALL: [Self; 5] = [Self::Title, Self::Good, Self::Warning, Self::Bad, Self::Quiet];

    /// The text with this emphasis, for a terminal. It is not empty, and has no sequences of its own.
    pub fn of(self, text: &str) -> String {
        format!("{}{text}{END}", self.start())
    }

    fn start(self) -> &'static str {
        match self {
            Self::Title => "\u{1b}[1m",
            Self::Good => "\u{1b}[32m",
            Self::Warning => "\u{1b}[33m",
            Self::Bad => "\u{1b}[1;31m",
            Self::Quiet => "\u{1b}[2m",
        }
    }

    /// The sequence of an emphasis with which `text` begins.
    pub(super) fn sequence(text: &str) -> Option<&'static str> {
        let mut all = Self::ALL.into_iter().map(Self::start).chain([END]);
        all.find(|sequence| text.starts_with(sequence))
    }

    /// The text with this emphasis if the report is written for a terminal, as `{:#}`.
    pub(crate) fn within(self, formatter: &Formatter<'_>, text: &str) -> String {
        if formatter.alternate() { self.of(text) } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    struct Report;

    impl fmt::Display for Report {
        fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
            write!(formatter, "{}: {:4}|", Emphasis::Title.within(formatter, "name"), "ok")
        }
    }

    #[test]
    fn a_report_has_sequences_only_for_a_terminal() {
        assert_eq!(format!("{Report}"), "name: ok  |");
        assert_eq!(format!("{Report:#}"), "\u{1b}[1mname\u{1b}[0m: ok  |");
    }
}
