//! Python's grammar, as far as it says where statements begin, and what certainly is no Python.

/// The words that may stand beside a name.
#[rustfmt::skip]
const KEYWORDS: [&str; 35] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else",
    "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not",
    "or", "pass", "raise", "return", "try", "while", "with", "yield",
    // Those that are keywords in their place only.
    "case", "match", "type",
];

const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];

/// The end of what was read of a statement.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Previous {
    /// Nothing that a name or a text could not follow.
    #[default]
    Other,
    /// A name, a number or a closing bracket.
    Operand,
    Text,
}

/// Reads a cell line by line.
#[derive(Default)]
pub(super) struct Scan {
    /// The quotes that end the text that is open.
    text: Option<&'static str>,
    brackets: usize,
    is_continued: bool,
    previous: Previous,
    /// Whether the statement has a text with fields: what is between them may be in quotes too.
    has_fields: bool,
}

impl Scan {
    /// Whether the next line begins a statement.
    pub(super) fn is_at_statement(&self) -> bool {
        self.text.is_none() && self.brackets == 0 && !self.is_continued
    }

    /// Goes on by a line; `None` if the cell is certainly no Python.
    pub(super) fn line(&mut self, line: &str) -> Option<()> {
        if self.is_at_statement() {
            (self.previous, self.has_fields) = (Previous::Other, false);
        }
        self.is_continued = false;
        let mut rest = line;
        while let Some(char) = rest.chars().next() {
            let next = &rest[char.len_utf8()..];
            if char == '\\' {
                let mut after = next.chars();
                self.is_continued = after.next().is_none();
                rest = after.as_str();
            } else if let Some(quotes) = self.text {
                let end = rest.strip_prefix(quotes);
                if end.is_some() {
                    (self.text, self.previous) = (None, Previous::Text);
                }
                rest = end.unwrap_or(next);
            } else if let Some(quotes) = QUOTES.into_iter().find(|quotes| rest.starts_with(quotes)) {
                self.begin_text(quotes, "")?;
                rest = &rest[quotes.len()..];
            } else if char == '#' {
                break;
            } else if is_of_word(char) {
                rest = self.word(rest)?;
            } else {
                self.symbol(char, next)?;
                // `!=` is one symbol.
                rest = if char == '!' { &next[1..] } else { next };
            }
        }
        // A text in single quotes ends with its line, unless that goes on.
        let is_short = self.text.is_some_and(|quotes| quotes.len() == 1);
        (!is_short || self.is_continued).then_some(())
    }

    fn begin_text(&mut self, quotes: &'static str, prefix: &str) -> Option<()> {
        let is_beside = self.previous == Previous::Operand && !self.has_fields;
        self.text = Some(quotes);
        self.has_fields |= prefix.contains(['f', 'F', 't', 'T']);
        (!is_beside).then_some(())
    }

    /// Reads a name, a keyword, a number, or the prefix of a text and its quotes.
    fn word<'a>(&mut self, rest: &'a str) -> Option<&'a str> {
        let end = rest.find(|char| !is_of_word(char)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let quotes = QUOTES.into_iter().find(|quotes| after.starts_with(quotes));
        if let Some(quotes) = quotes.filter(|_| is_prefix(word)) {
            self.begin_text(quotes, word)?;
            return Some(&after[quotes.len()..]);
        }
        let is_keyword = KEYWORDS.contains(&word);
        if self.previous != Previous::Other && !is_keyword && !self.has_fields {
            return None;
        }
        self.previous = if is_keyword { Previous::Other } else { Previous::Operand };
        Some(after)
    }

    fn symbol(&mut self, char: char, next: &str) -> Option<()> {
        match char {
            ' ' | '\t' => return Some(()),
            '?' | '$' | '`' => return None,
            '!' if !next.starts_with('=') => return None,
            '(' | '[' | '{' => self.brackets += 1,
            ')' | ']' | '}' => {
                self.brackets = self.brackets.checked_sub(1)?;
                self.previous = Previous::Operand;
                return Some(());
            }
            _ => {}
        }
        self.previous = Previous::Other;
        Some(())
    }
}

fn is_of_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Whether a word can stand before the quotes of a text.
fn is_prefix(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["r", "u", "b", "f", "t", "br", "rb", "fr", "rf", "tr", "rt"].contains(&word.as_str())
}

/// What is assigned by a line where a statement begins: the text behind its first `=` that is within no brackets.
pub(super) fn assigned(line: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, char) in line.char_indices() {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            '#' | '"' | '\'' if depth == 0 => return None,
            '=' if depth == 0 => return Some(line[at + 1..].trim_start()),
            _ => {}
        }
    }
    None
}
