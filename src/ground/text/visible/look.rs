//! Characters that look like ASCII where they would mislead.
//!
//! Source: the confusable characters of Unicode Technical Standard #39.

use unicode_security::skeleton;

use super::TextUse;

/// Which characters of `text` look like something else that could stand there.
pub(super) fn misleading(text: &str, used: TextUse) -> Vec<bool> {
    let characters: Vec<char> = text.chars().collect();
    let mut hides: Vec<bool> =
        (0..characters.len()).map(|index| is_misleading_sign(&characters, index, used)).collect();
    let is_prose = used != TextUse::Code && is_prose(text) && characters.iter().any(|each| is_evident(*each));
    let mut start = 0;
    for word in characters.split(|character| !belongs_to_word(*character)) {
        let end = start + word.len();
        if is_misleading_word(word, is_prose) {
            for (character, hides) in word.iter().zip(&mut hides[start..end]) {
                *hides |= looks_like_ascii(*character) && !(used != TextUse::Code && is_european(*character));
            }
        }
        start = end + 1;
    }
    hides
}

/// Whether `text` is a sentence of a language that is not written in Latin letters, and nothing that a program reads: of
/// ASCII it has digits and the signs of sentences only.
pub(super) fn is_prose(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_digit() || b" \n.,;:!?'\"()-%".contains(&byte);
    text.bytes().all(|byte| !byte.is_ascii() || is_sign(byte))
}

/// A word of which some letters only look like ASCII, or all of them. In prose the second is a word of its language.
fn is_misleading_word(word: &[char], is_prose: bool) -> bool {
    if !word.iter().any(|character| looks_like_ascii(*character)) {
        return false;
    }
    word.iter().any(char::is_ascii_alphanumeric) || !is_prose && !word.iter().any(|each| is_evident(*each))
}

/// A sign that looks like one of ASCII's. In a text those are common, and mislead where they join what could be a name,
/// and where a quote seems to end the text.
fn is_misleading_sign(characters: &[char], index: usize, used: TextUse) -> bool {
    let character = characters[index];
    if character.is_ascii() || belongs_to_word(character) || !looks_like_ascii(character) {
        return false;
    }
    let is_in_name = |index: Option<usize>| {
        index.and_then(|index| characters.get(index)).is_some_and(char::is_ascii_alphanumeric)
    };
    let joins = is_in_name(index.checked_sub(1)) && is_in_name(Some(index + 1));
    let is_quote = looks_like(character, |look| "'\"`".contains(look));
    let rest = &characters[index + 1..];
    let ends_the_text = || match rest.iter().find(|next| !next.is_whitespace()) {
        Some(',' | ':') => rest.contains(&'='),
        next => next.is_none_or(|next| ")]}=".contains(*next)),
    };
    match used {
        TextUse::Code => true,
        _ if is_quote => ends_the_text(),
        _ => joins,
    }
}

fn belongs_to_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// A letter that cannot be taken for one of ASCII's.
fn is_evident(character: char) -> bool {
    !character.is_ascii() && character.is_alphabetic() && !looks_like_ascii(character)
}

/// Letters of European languages that are written in Latin, such as the Turkish i without a dot.
fn is_european(character: char) -> bool {
    matches!(character, '\u{c0}'..='\u{17f}')
}

fn looks_like_ascii(character: char) -> bool {
    !character.is_ascii() && looks_like(character, |look| look.is_ascii())
}

/// Whether all that `character` looks like is so.
fn looks_like(character: char, is_so: impl Fn(char) -> bool) -> bool {
    skeleton(character.encode_utf8(&mut [0; 4])).all(is_so)
}
