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

impl Emphasis {
    /// The text with this emphasis, for a terminal. It is not empty, and has no sequences of its own.
    pub fn of(self, text: &str) -> String {
        let code = match self {
            Self::Title => "1",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "1;31",
            Self::Quiet => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
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
