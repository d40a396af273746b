//! Short values by which something can be recognised: numbers, addresses, identifiers.

/// The number of significant digits that a number must have.
const DIGITS: usize = 6;

/// The length of an identifier of letters and digits, and the number of its digits.
const IDENTIFIER: usize = 10;
const ITS_DIGITS: usize = 3;

/// The changes between letters and digits in it, unless it has as many digits as a number.
const SWITCHES: usize = 2;

/// The number of different digits that a number must have: 999999 and 1000001 are everywhere.
const DIFFERENT_DIGITS: usize = 4;

/// The longest value, in bytes.
const LONGEST: usize = 200;

/// The classes of bytes in a text: nothing of a value, a part of one, or a part that some are recognised by.
const OTHER: u8 = 0;
const PART: u8 = 1;
const DISTINCTIVE: u8 = 2;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' | b'@' => DISTINCTIVE,
            b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'_' | b'+' | b'-' => PART,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
}

/// Calls `each` with the hash of every such value in a text.
pub(super) fn tokens(text: &str, mut each: impl FnMut(u64)) {
    let bytes = text.as_bytes();
    let mut end = 0;
    // Most words are none: only where a digit or an `@` is there is more to look at.
    while let Some(found) = bytes[end..].iter().position(|byte| CLASSES[usize::from(*byte)] == DISTINCTIVE) {
        let is_other = |byte: &u8| CLASSES[usize::from(*byte)] == OTHER;
        let at = end + found;
        let begin = bytes[end..at].iter().rposition(is_other).map_or(end, |other| end + other + 1);
        end = bytes[at..].iter().position(is_other).map_or(bytes.len(), |other| at + other);
        let word = &bytes[begin..end];
        let first = word.iter().position(u8::is_ascii_alphanumeric).unwrap_or(word.len());
        let last = word.iter().rposition(u8::is_ascii_alphanumeric).map_or(first, |last| last + 1);
        let word = &word[first..last];
        if word.len() >= DIGITS && word.len() <= LONGEST && is_distinctive(word) {
            each(hash(word));
        }
    }
}

/// Whether a value is so rare that it shows where it comes from.
fn is_distinctive(word: &[u8]) -> bool {
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = word.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    if let Some(at) = word.iter().position(|byte| *byte == b'@') {
        return at > 0 && word[at + 1..].contains(&b'.') && letters >= 4;
    }
    if letters == 0 {
        return is_number(word, digits);
    }
    let is_mixed = digits >= DIGITS || switches(word) >= SWITCHES;
    word.len() >= IDENTIFIER && digits >= ITS_DIGITS && letters >= 3 && is_mixed && !is_time(word)
}

/// The number of changes between letters and digits: names such as `iso-8859-1` have their number at the end.
fn switches(word: &[u8]) -> usize {
    let signs: Vec<bool> =
        word.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::is_ascii_digit).collect();
    signs.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

fn is_number(word: &[u8], digits: usize) -> bool {
    let mut different = [false; 256];
    word.iter().filter(|byte| byte.is_ascii_digit()).for_each(|byte| different[usize::from(*byte)] = true);
    if different.iter().filter(|is_there| **is_there).count() < DIFFERENT_DIGITS {
        return false;
    }
    if word.iter().any(|byte| *byte == b'-' || *byte == b'_') {
        // Dates, telephone numbers and the like: the latter are long.
        return digits >= 9;
    }
    if word.iter().filter(|byte| **byte == b'.').count() > 1 {
        // Versions and addresses of networks are common.
        return false;
    }
    let significant: Vec<u8> = word.iter().copied().filter(u8::is_ascii_digit).collect();
    let first = significant.iter().position(|digit| *digit != b'0').unwrap_or(significant.len());
    let last = significant.iter().rposition(|digit| *digit != b'0').map_or(first, |last| last + 1);
    last - first >= DIGITS && !is_limit(&significant[first..])
}

/// Whether digits are a power of two or one less: sizes and limits of computers.
fn is_limit(digits: &[u8]) -> bool {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u128>().ok());
    number.is_some_and(|number| number.is_power_of_two() || number.wrapping_add(1).is_power_of_two())
}

/// Whether it is a time such as `2026-11-23T06`: clocks are everywhere.
fn is_time(word: &[u8]) -> bool {
    let is = |index: usize, sign: u8| word.get(index) == Some(&sign);
    word.iter().take(4).all(u8::is_ascii_digit) && is(4, b'-') && is(7, b'-')
}

/// FNV-1a over lower case, mixed.
fn hash(word: &[u8]) -> u64 {
    let hash = word.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}
