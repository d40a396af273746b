//! A text without what changes when it is wrapped, quoted or escaped: its letters and digits, in lower case.

/// The classes of bytes: the letter or digit that a byte counts as, or one of these.
const OTHER: u8 = 0;
const SPECIAL: u8 = 1;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            letter @ (b'a'..=b'z' | b'0'..=b'9') => letter,
            letter @ b'A'..=b'Z' => letter | 0x20,
            b'\\' | b'%' | b'&' | 0x80.. => SPECIAL,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
}

/// The letters and digits of a text, as UTF-8. An escape sequence of JSON, Python, URLs or HTML counts as the character
/// that it means.
pub(super) fn letters(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut letters = vec![0; bytes.len()];
    let mut at = 0;
    let mut count = 0;
    while let Some(&byte) = bytes.get(at) {
        let class = CLASSES[usize::from(byte)];
        if class == SPECIAL {
            let (character, length) = match byte {
                0x80.. => {
                    text[at..].chars().next().map_or((None, 1), |found| (Some(found), found.len_utf8()))
                }
                _ => escape(&bytes[at..]),
            };
            if let Some(character) = character {
                count = push(&mut letters, count, character);
            }
            at += length;
            make_room(&mut letters, count + bytes.len() - at);
        } else {
            // Written in any case, and kept if it counts: a branch would cost more.
            letters[count] = class;
            count += usize::from(class != OTHER);
            at += 1;
        }
    }
    letters.truncate(count);
    letters
}

/// Writes a letter. Returns how many bytes there are then.
fn push(letters: &mut Vec<u8>, count: usize, character: char) -> usize {
    if !character.is_alphanumeric() {
        return count;
    }
    character.to_lowercase().fold(count, |count, lower| {
        let end = count + lower.len_utf8();
        make_room(letters, end);
        lower.encode_utf8(&mut letters[count..end]);
        end
    })
}

/// Room for so many bytes. A text seldom needs more than it has: the lower case of a few letters is longer.
fn make_room(letters: &mut Vec<u8>, count: usize) {
    if letters.len() < count {
        letters.resize(count, 0);
    }
}

/// The character that an escape sequence means, if it can be a letter, and the length of the sequence: 1 if the sign
/// begins none.
fn escape(bytes: &[u8]) -> (Option<char>, usize) {
    match bytes {
        [b'\\', b'u', rest @ ..] => match number(rest, 4) {
            Some(code) => (char::from_u32(code), 6),
            None => (None, 1),
        },
        [b'\\', b'x', rest @ ..] => match number(rest, 2) {
            Some(code) => (char::from_u32(code), 4),
            None => (None, 1),
        },
        // A text that is escaped twice has two backslashes before the letter.
        [b'\\', b'\\', ..] => (None, 1),
        [b'\\', b'n' | b't' | b'r' | b'b' | b'f', ..] => (None, 2),
        [b'%', rest @ ..] => match number(rest, 2).filter(|code| *code < 0x80) {
            Some(code) => (char::from_u32(code), 3),
            None => (None, 1),
        },
        [b'&', rest @ ..] => {
            let end = rest.iter().take(10).position(|byte| *byte == b';');
            let is_name = |name: &[u8]| {
                !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#')
            };
            match end.filter(|end| is_name(&rest[..*end])) {
                Some(end) => (entity(&rest[..end]), end + 2),
                None => (None, 1),
            }
        }
        _ => (None, 1),
    }
}

/// A number of so many hexadecimal digits.
fn number(digits: &[u8], count: usize) -> Option<u32> {
    let digits = digits.get(..count).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The names that HTML escapes have are of signs, unless they are numbers.
fn entity(name: &[u8]) -> Option<char> {
    let digits = std::str::from_utf8(name.strip_prefix(b"#")?).ok()?;
    let code = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    char::from_u32(code)
}
