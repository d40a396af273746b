//! Text from outside as people are shown it: nothing in it is invisible, moves what stands beside it, or looks like
//! something else. Pure.
//!
//! Unicode's properties of a character decide, never a list of bad ones. Letters, digits, punctuation and symbols
//! are shown as they are, all else (controls, formats, private use, what is not assigned, blanks but the space) as an
//! escape of Python. Combining marks stay on letters, and what makes one picture of several emoji stays between them.

mod look;

use std::fmt::{self, Formatter};

use icu_properties::props::{
    BidiClass, BinaryProperty as _, DefaultIgnorableCodePoint, EnumeratedProperty as _, ExtendedPictographic,
    GeneralCategory, GeneralCategoryGroup,
};

/// The use of a text, which decides how much of other languages is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextUse {
    /// A command, an address, a path: each character counts. All that looks like ASCII, and all that is written from
    /// right to left, is escaped.
    Code,
    /// Any other text.
    Text,
    /// The same, as a part of something larger, whose order text from right to left could change.
    Part,
}

/// The number of marks that may stand on one letter; languages need three.
const MARKS: usize = 3;

/// Characters without a picture, of which Unicode says otherwise: the blank of Braille, of notes and of hieroglyphs, and
/// the placeholder of an object.
const BLANK: [char; 5] = ['\u{2800}', '\u{fffc}', '\u{13441}', '\u{13442}', '\u{1d159}'];

/// `text` as a literal of Python.
pub(crate) struct PythonLiteral<'a>(pub(crate) &'a str, pub(crate) TextUse);

impl fmt::Display for PythonLiteral<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self(text, used) = *self;
        let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
        write!(formatter, "{quote}")?;
        for (character, is_shown) in judged(text, used) {
            match character {
                '\\' => formatter.write_str("\\\\")?,
                _ if character == quote => write!(formatter, "\\{quote}")?,
                '\n' => formatter.write_str("\\n")?,
                '\r' => formatter.write_str("\\r")?,
                '\t' => formatter.write_str("\\t")?,
                _ if is_shown => write!(formatter, "{character}")?,
                _ => escape(character, formatter)?,
            }
        }
        write!(formatter, "{quote}")
    }
}

/// A name in quotes, in ASCII: letters of other scripts look like those of ours.
pub(crate) struct QuotedName<'a>(pub(crate) &'a str);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("'")?;
        for character in self.0.chars() {
            match character {
                '\\' | '\'' => write!(formatter, "\\{character}")?,
                ' '..='~' => write!(formatter, "{character}")?,
                _ => escape(character, formatter)?,
            }
        }
        formatter.write_str("'")
    }
}

/// A word of a command line as it would be typed in a shell: `$'…'` if something in it has to be escaped.
pub(crate) fn word(word: &str) -> String {
    if judged(word, TextUse::Code).all(|(_, is_shown)| is_shown) {
        return crate::ground::text::quoted(word);
    }
    let literal = PythonLiteral(word, TextUse::Code).to_string();
    // Python prefers the other quote if there are only single ones.
    match literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => format!("$'{}'", inner.replace('\'', "\\'")),
        None => format!("${literal}"),
    }
}

/// `text`, of which each character counts, without quotes.
pub(crate) fn line(text: &str) -> String {
    shown(text, TextUse::Code)
}

/// `text`, without quotes.
pub(crate) fn shown(text: &str, used: TextUse) -> String {
    let mut line = String::with_capacity(text.len());
    for (character, is_shown) in judged(text, used) {
        if is_shown {
            line.push(character);
        } else {
            line.push_str(&EscapedCharacter(character).to_string());
        }
    }
    line
}

/// JSON that says the same, with all that is invisible in it escaped.
pub(crate) fn json(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() || has_a_picture(character) || is_mark(character) {
            json.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                json.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    json
}

/// The characters of `text`, and whether each is shown as it is.
pub(crate) fn judged(text: &str, used: TextUse) -> impl Iterator<Item = (char, bool)> {
    let is_ascii = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let hides = if is_ascii { Vec::new() } else { look::misleading(text, used) };
    let is_prose = used == TextUse::Text && look::is_prose(text);
    let mut before = EarlierCharacters::default();
    let mut characters = text.chars().enumerate().peekable();
    std::iter::from_fn(move || {
        let (index, character) = characters.next()?;
        let next = characters.peek().map(|(_, next)| *next);
        let is_shown = !hides.get(index).copied().unwrap_or_default()
            && (is_prose || !is_right_to_left(character))
            && before.lets_stand(character, next, used);
        before.note(character, is_shown);
        Some((character, is_shown))
    })
}

/// The characters before one that is judged.
#[derive(Default)]
struct EarlierCharacters {
    /// The last character that is no mark, if it is shown.
    base: Option<char>,
    marks: usize,
    /// The last character, if it is shown.
    last: Option<char>,
}

impl EarlierCharacters {
    fn lets_stand(&self, character: char, next: Option<char>, used: TextUse) -> bool {
        let is_text = used != TextUse::Code;
        match character {
            ' '..='~' => true,
            // What chooses a coloured picture, and what joins two.
            '\u{fe0f}' => is_text && self.last.is_some_and(is_emoji),
            '\u{200d}' => {
                let joins =
                    |last| is_emoji(last) || last == '\u{fe0f}' || matches!(last, '\u{1f3fb}'..='\u{1f3ff}');
                is_text && self.last.is_some_and(joins) && next.is_some_and(is_emoji)
            }
            // Enclosing marks change what they stand on.
            _ if is_mark(character)
                && GeneralCategory::for_char(character) != GeneralCategory::EnclosingMark =>
            {
                let may_carry = |base: char| base.is_alphabetic() && (is_text || !base.is_ascii());
                self.marks < MARKS && self.base.is_some_and(may_carry)
            }
            _ => has_a_picture(character),
        }
    }

    fn note(&mut self, character: char, is_shown: bool) {
        self.last = is_shown.then_some(character);
        if is_shown && is_mark(character) {
            self.marks += 1;
        } else {
            (self.base, self.marks) = (self.last, 0);
        }
    }
}

/// Whether Unicode says that something is seen where `character` stands by itself.
fn has_a_picture(character: char) -> bool {
    let seen = GeneralCategoryGroup::Letter
        .union(GeneralCategoryGroup::Number)
        .union(GeneralCategoryGroup::Punctuation)
        .union(GeneralCategoryGroup::Symbol);
    character == ' '
        || group(character, seen)
            && !DefaultIgnorableCodePoint::for_char(character)
            && !BLANK.contains(&character)
}

fn is_mark(character: char) -> bool {
    group(character, GeneralCategoryGroup::Mark) && !DefaultIgnorableCodePoint::for_char(character)
}

fn is_emoji(character: char) -> bool {
    !character.is_ascii() && ExtendedPictographic::for_char(character)
}

/// Whether `character` turns the direction in which what stands beside it is shown.
fn is_right_to_left(character: char) -> bool {
    use BidiClass as Class;
    !character.is_ascii()
        && matches!(
            Class::for_char(character),
            Class::RightToLeft | Class::ArabicLetter | Class::ArabicNumber
        )
}

fn group(character: char, group: GeneralCategoryGroup) -> bool {
    group.contains(GeneralCategory::for_char(character))
}

fn escape(character: char, formatter: &mut Formatter<'_>) -> fmt::Result {
    write!(formatter, "{}", EscapedCharacter(character))
}

/// A character as Python escapes it.
pub(crate) struct EscapedCharacter(pub(crate) char);

impl fmt::Display for EscapedCharacter {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match u32::from(self.0) {
            code @ 0..=0x7f => write!(formatter, "\\x{code:02x}"),
            // `\xa0` would be a byte to a shell.
            code @ 0x80..=0xffff => write!(formatter, "\\u{code:04x}"),
            code => write!(formatter, "\\U{code:08x}"),
        }
    }
}

#[cfg(test)]
mod tests;
